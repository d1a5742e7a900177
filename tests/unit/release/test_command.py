"""`python -m holdfast.deploy.release`."""

from pathlib import Path

from holdfast.deploy.release.__main__ import main
from holdfast.sink.contract.exits import ExitCode


def test_check_leaves_a_folder_alone_that_is_no_release(tmp_path: Path) -> None:
    kept = tmp_path / "kept.txt"
    kept.write_text("ours")
    assert main(["check", "--to", str(tmp_path)]) == ExitCode.USAGE
    assert kept.read_text() == "ours"

"""`holdfast job new`: what it writes is the example of the documents, under another name."""

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.documents.pages import ROOT

EXAMPLE = ROOT / "docs" / "examples" / "order_review"

NOT_NEEDED = ("pyspark", "pyarrow", "numpy", "pandas", "sqlalchemy", "httpx")
"""Packages that the extra `cli` does not install."""


def _texts(folder: Path) -> dict[str, str]:
    """The files of a job by their places, without what a run of it leaves."""
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and not {"__pycache__", "checkpoint"}.intersection(path.parts)
    }


def test_new_job_is_the_example_under_its_name(tmp_path: Path) -> None:
    same, other = tmp_path / "same", tmp_path / "other"
    holdfast("job", "new", "order_review", "--directory", str(same), process=False, code=0)
    words = ("job", "new", "refund_check", "--directory", str(other), "--json")
    written = holdfast(*words, process=False, code=0).json
    example = _texts(EXAMPLE)
    assert _texts(same) == example
    assert _texts(other) == {
        name: text.replace("order_review", "refund_check") for name, text in example.items()
    }
    assert sorted(written["files"]) == sorted(example)
    assert written["next"][0] == f"cd {other}"
    assert not [each for each in written["next"] if each.startswith("python")]


def test_new_job_needs_the_extra_of_the_command_alone(tmp_path: Path) -> None:
    program = (
        f"import sys; sys.modules |= dict.fromkeys({NOT_NEEDED});"
        "from holdfast.dispatcher.cli.start import main; main()"
    )
    words = [sys.executable, "-c", program, "job", "new", "refund_check"]
    subprocess.run(words, cwd=tmp_path, check=True, timeout=60)
    assert (tmp_path / "refund_check" / "job.py").exists()


@pytest.mark.parametrize("name", ["", "Refunds", "1st", "a-b", "a.b", "../a", "a\n", "a" * 51])
def test_name_that_is_no_stream_and_type_is_refused(name: str, tmp_path: Path) -> None:
    words = ("job", "new", name, "--directory", str(tmp_path / "to"), "--json")
    refused = holdfast(*words, process=False, code=ExitCode.USAGE)
    assert refused.error["code"] == "invalid_name"
    assert not (tmp_path / "to").exists()


def test_new_job_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("mine")
    for place in (tmp_path, tmp_path / "job.py"):
        words = ("job", "new", "refund_check", "--directory", str(place), "--json")
        refused = holdfast(*words, process=False, code=ExitCode.USAGE)
        assert refused.error["code"] == "directory_exists"
    assert [each.name for each in tmp_path.iterdir()] == ["job.py"]
    assert (tmp_path / "job.py").read_text() == "mine"

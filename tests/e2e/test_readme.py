"""What the README tells a newcomer to type works as it stands there."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_parts_run_as_the_readme_says(tmp_path: Path) -> None:
    section = README.read_text().partition("## Run the parts yourself")[2]
    block = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert block
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(("HOLDFAST_", "PAYOUTS_"))
    }
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    said = tmp_path / "said.txt"
    with said.open("w") as output:
        shell = subprocess.Popen(
            ["bash", "-ec", block[1]],  # noqa: S607 - the shell of the reader
            cwd=tmp_path,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        assert shell.wait(400) == 0, said.read_text()
        held = said.read_text()
        held = held[held.rindex("0 dead letters") :]
        assert "m_482" in held
        assert "85,000" in held
    finally:
        # A step that failed leaves the payouts service and Postgres behind.
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        subprocess.run(
            [sys.executable, "-m", "dispatcher.cli.main", "local", "down"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            check=False,
        )

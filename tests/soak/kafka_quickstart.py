"""A newcomer follows the quickstart from a clone to a job that reads a topic: `make test-kafka`.

Real: git, make, Maven, Kafka, Spark, Postgres. Nothing of this checkout's environment is used.
"""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.documents.pages import ROOT, blocks_of
from tests.support.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

PAGE = "docs/quickstart.md"


def test_five_commands_lead_from_a_clone_to_a_job_on_a_topic(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(
        ["git", "clone", "--quiet", str(ROOT), str(clone)],  # noqa: S607 - as a newcomer does
        check=True,
    )
    by_hand, from_a_topic = blocks_of(PAGE, "sh")
    files, _, _ = by_hand.partition("holdfast local up")
    said = tmp_path / "said.txt"
    kept = ("HOME", "PATH", "LANG")
    with said.open("wb") as output:
        bash = subprocess.Popen(
            ["bash", "-ec", files + from_a_topic],  # noqa: S607 - as above
            cwd=clone,
            env={name: os.environ[name] for name in kept if name in os.environ},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    def came() -> bool:
        text = said.read_text(errors="replace")
        assert bash.poll() is None, text
        return "batch=1 outcome=written rows=0 entries=1 " in text

    try:
        eventually(came, 1500)
        shown = subprocess.run(
            ["bash", "-c", 'eval "$(holdfast local env)" && holdfast batch show topic 0'],  # noqa: S607 - as above
            cwd=clone,
            env={**os.environ, "PATH": f"{clone}/.venv/bin:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert "payments" in shown.stdout
    finally:
        os.killpg(bash.pid, signal.SIGTERM)
        bash.wait(60)
        subprocess.run([clone / ".venv/bin/holdfast", "local", "down"], cwd=clone, check=False)
    print(said.read_text(errors="replace"))

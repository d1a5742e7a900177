"""The blocks of docs/spark/testing-jobs.md, as they stand there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.deploy.local.java import spark_environment
from tests.support.documents.pages import blocks_of
from tests.support.job.order_review import EXAMPLE, SUBMIT

PAGE = "docs/spark/testing-jobs.md"
DECISIONS, OUTBOX, CONFTEST, REAL, KILLS = blocks_of(PAGE, "python")


def _pytest(folder: Path, **environment: str) -> str:
    """Run the tests of a project, and return what is shown."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    return done.stdout + done.stderr


def test_decisions_and_outbox_of_the_page_are_as_shown(spark: Any) -> None:
    names = {"spark": spark}
    for block in (DECISIONS, OUTBOX):
        exec(compile(block, PAGE, "exec"), names)  # noqa: S102 - it is ours
    assert names["decided"].num_rows == 2


def test_real_outbox_of_the_page_is_empty(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_outbox.py").write_text(REAL)
    assert "1 passed" in (shown := _pytest(tmp_path)), shown


@pytest.mark.long
@pytest.mark.timeout(600)
def test_kills_of_the_page_change_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "order_review"
    shutil.copytree(EXAMPLE, folder)
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_job.py").write_text(KILLS)
    shown = _pytest(folder, **spark_environment(), PYSPARK_SUBMIT_ARGS=SUBMIT)
    assert "1 passed" in shown, shown

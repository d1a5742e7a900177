"""A plugin of pytest that writes how long each file took, for `tests/run.py`."""

import json
import os
from collections import defaultdict
from pathlib import Path

import pytest

_seconds: dict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add a test's set-up, its call or its end."""
    _seconds[report.nodeid.partition("::")[0]] += report.duration


def pytest_sessionfinish() -> None:
    """Write the seconds of all files."""
    Path(os.environ["HOLDFAST_TEST_DURATIONS"]).write_text(json.dumps(_seconds))

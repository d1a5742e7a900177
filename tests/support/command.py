"""Run the `holdfast` command as a person would: as a process, with exit code and both streams."""

import os
import subprocess
import sys
from collections.abc import Mapping


def holdfast(
    *arguments: str, dsn: str | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `holdfast ARGUMENTS`; never raises for a non-zero exit code."""
    settings = {k: v for k, v in os.environ.items() if k != "HOLDFAST_DSN"}
    settings |= {"COLUMNS": "200", **(environment or {})}
    if dsn is not None:
        settings["HOLDFAST_DSN"] = dsn
    return subprocess.run(
        [sys.executable, "-m", "dispatcher.cli.main", *arguments],
        env=settings,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

"""`make quick`: what can be said of a change within a minute, for every save.

Unit and contract tests, lint, types and import arrows run side by side, and each gives a line. What
a part says is printed if it failed.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tests.run import RECORD, units

FOLDERS = ("unit", "contract")

UNIT_SECONDS = 20.0
"""Tests are divided until every processor has its share to the end."""

BIN = Path(sys.executable).parent

CHECKS: Mapping[str, Sequence[str]] = {
    "types": [str(BIN / "mypy")],
    "lint": [str(BIN / "ruff"), "check", "."],
    "format": [str(BIN / "ruff"), "format", "--check", "."],
    "import arrows": [str(BIN / "lint-imports")],
}


def parts() -> dict[str, Sequence[str]]:
    """Return the command of each part, the longest first."""
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    files = [str(path) for folder in FOLDERS for path in Path("tests", folder).rglob("test_*.py")]
    pytest = [sys.executable, "-m", "pytest", "-q"]
    tests = {str(unit): [*pytest, *unit.files] for unit in units(files, recorded, UNIT_SECONDS)}
    types = {"types": CHECKS["types"]}  # half a minute where nothing is known from before
    return types | tests | dict(CHECKS)


def run(command: Sequence[str]) -> tuple[int, float, bytes]:
    """Run a part to its end; its exit code, its seconds and what it said."""
    began = time.monotonic()
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return done.returncode, time.monotonic() - began, done.stdout


def run_all(commands: Mapping[str, Sequence[str]]) -> int:
    """Return 0 if all parts passed."""
    failed = 0
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        futures = {pool.submit(run, command): name for name, command in commands.items()}
        for future in as_completed(futures):
            code, seconds, output = future.result()
            failed += code != 0
            if code:
                sys.stdout.buffer.write(output)
            closing = b" ".join(output.strip().splitlines()[-1:]).decode(errors="replace")
            end = f"passed in {seconds:.0f} s" if code == 0 else f"FAILED ({code})"
            sys.stdout.write(f"{end}: {futures[future]}: {closing}\n")
            sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(run_all(parts()))

"""The Node receiver as a process, always stopped by its pid."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("independent.mjs")
BODY_MILLISECONDS = 1000
READY = "listening on "
STOP_SECONDS_MAX = 10


def program() -> str:
    """Return the installed Node; skips the test if there is none."""
    path = shutil.which("node")
    if path is None:
        pytest.skip("node is not installed")
    return path


@contextmanager
def node_receiver(*secrets: str) -> Iterator[str]:
    """Run the receiver on a free port until the block ends; yields its URL."""
    process = subprocess.Popen(
        [program(), str(SCRIPT), str(BODY_MILLISECONDS)],
        env=os.environ | {"RECEIVER_SECRETS": " ".join(secrets)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(READY), f"exit code {process.poll()}: {line!r}"
        yield f"http://127.0.0.1:{line.removeprefix(READY).strip()}"
    finally:
        process.kill()
        process.wait(STOP_SECONDS_MAX)
        if process.stdout is not None:
            process.stdout.close()

"""The event files of the demo, written like an uploader does."""

import os
from collections.abc import Iterable
from pathlib import Path

from holdfast.deploy.local.demo.generator import TrafficFile

PATTERN = "*.jsonl"


def write(directory: Path, files: Iterable[TrafficFile]) -> None:
    """Write each file under a temporary name and rename it, so that Spark never reads part of one.

    The file source reads files by modification time, which is therefore the time of the traffic.
    """
    directory.mkdir(parents=True)
    for file in files:
        add(directory, file)


def add(directory: Path, file: TrafficFile) -> None:
    """Write one file, as `write` does."""
    # The file source ignores names that begin with a dot.
    temporary = directory / f".{file.name}"
    temporary.write_text("".join(f"{line}\n" for line in file.lines), encoding="utf-8")
    modified = file.closed_at.timestamp()
    os.utime(temporary, (modified, modified))
    temporary.rename(directory / file.name)


def in_order(directory: Path) -> list[Path]:
    """Return the files in the order of the file source."""
    return sorted(directory.glob(PATTERN), key=lambda path: path.stat().st_mtime_ns)

"""The files that a file source has read up to a batch, from Spark's log of them.

Spark writes one entry for each batch with files (`sources/0/7`), and after every tenth entry one
with all files so far (`sources/0/9.compact`); older entries are removed later.
"""

import json
import re
from collections.abc import Iterable
from typing import Any, Final

from holdfast.spark_app.checkpoint.files import CheckpointFiles

_ENTRY: Final = re.compile(r"([0-9]+)(\.compact)?")

HEADER: Final = "v1"


def log_offset(source_line: str) -> int | None:
    """Return the last log entry that a plan covers; None before the first file.

    Raises ValueError for another format than Spark's file source has.
    """
    if source_line == "-":
        return None
    try:
        offset = int(json.loads(source_line)["logOffset"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"{source_line} is not the offset of a file source") from error
    return offset if offset >= 0 else None


def entries(names: Iterable[str], offset: int) -> list[str]:
    """Return the names of the log entries that have all files up to `offset`.

    Raises ValueError where one of them is missing.

    >>> entries(["8", "9.compact", "10", "11"], 10)
    ['9.compact', '10']
    >>> entries(["9.compact", "10"], 8)
    ['9.compact']
    """
    found = {
        int(match[1]): name
        for name in sorted(names)
        if (match := _ENTRY.fullmatch(name)) is not None
    }
    whole = [number for number, name in found.items() if name.endswith(".compact")]
    before = max((number for number in whole if number <= offset), default=-1)
    wanted = [*([before] if before >= 0 else []), *range(before + 1, offset + 1)]
    if all(number in found for number in wanted):
        return [found[number] for number in wanted]
    after = min((number for number in whole if number > offset), default=None)
    if after is None:
        raise ValueError(f"no entry {min(set(wanted) - found.keys())}")
    return [found[after]]


def read_up_to(files: CheckpointFiles, source: int, offset: int) -> list[dict[str, Any]]:
    """Return path (a URI) and timestamp (milliseconds) of each file, in the order of the log.

    Raises as `logged`.
    """
    rows = logged(files, source, offset)
    return [{"path": row["path"], "timestamp": row["timestamp"]} for row in rows]


def logged(files: CheckpointFiles, source: int, offset: int) -> list[dict[str, Any]]:
    """Return the rows of a log up to an entry; `batchId` is the entry that first had the file.

    Raises CommandError for a damaged entry, and ValueError where the log is not complete.
    """
    folder = f"sources/{source}"
    read: list[dict[str, Any]] = []
    for name in entries(files.names(folder), offset):
        header, *lines = (files.read(f"{folder}/{name}") or "").splitlines()
        if header != HEADER:
            raise ValueError(f"{folder}/{name} has the unknown version {header}")
        read += [row for row in map(json.loads, lines) if row["batchId"] <= offset]
    return read


def log_entry(read: Iterable[dict[str, Any]]) -> str:
    """Return the text of Spark's log entry 0 with these files."""
    lines = (json.dumps({**row, "batchId": 0}, separators=(",", ":")) for row in read)
    return "\n".join([HEADER, *lines])

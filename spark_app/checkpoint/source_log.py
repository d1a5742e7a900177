"""Spark's log of the files of each batch, cut back to the planned batches.

Spark's file source first logs the files of the next batch (`sources/0/N`; the number of another
source instead of 0), and then Spark plans the batch (`offsets/N`). If a JVM dies between the two,
the log has files that belong to no batch; the next start would give its first batch these and a
full batch more. Nothing would be lost, but the batches would differ from those of an uninterrupted
run, and with them which events are late. So a start removes such files from the log; Spark finds
them in the directory again.
"""

import json
import re
from collections.abc import Sequence

from holdfast.spark_app.checkpoint.files import NO_OFFSET, CheckpointFiles
from holdfast.spark_app.input.sources import Files, Source, Ticks

_ENTRY = re.compile(r"([0-9]+)(\.compact)?")


def forget_unplanned(files: CheckpointFiles, sources: Sequence[Source]) -> None:
    """Remove the log entries of batches that were never planned; call before the query starts.

    Raises CommandError where the checksum of one that Spark reads does not match.
    `sources/N` of another kind is not such a log: of a topic, it has where it began.
    """
    planned = files.planned()
    for number, source in enumerate(sources):
        if isinstance(source, Files | Ticks):
            _cut(files, f"sources/{number}", planned and planned.sources[number : number + 1])


def _cut(files: CheckpointFiles, folder: str, planned: tuple[str, ...] | None) -> None:
    position = _position(planned)
    if position is None:
        return
    kept: dict[str, re.Match[str]] = {}
    for name in files.names(folder):
        entry = _ENTRY.fullmatch(name)
        if entry and int(entry[1]) > position:
            files.remove(f"{folder}/{name}")
        elif entry:
            kept[name] = entry
    start = max((int(entry[1]) for entry in kept.values() if entry[2]), default=0)
    for name, entry in kept.items():
        # Spark reads these. It would read a file again whose name was changed by a flipped bit.
        if int(entry[1]) >= start:
            files.check(f"{folder}/{name}")


def _position(planned: tuple[str, ...] | None) -> int | None:
    """Return the last log entry of a planned batch, -1 for none; None for an unknown format."""
    if planned in (None, (), (NO_OFFSET,)):
        return -1
    try:
        return int(json.loads(planned[0])["logOffset"])
    except (ValueError, KeyError, TypeError):
        return None

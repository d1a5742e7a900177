"""Spark's log of the files of each batch, cut back to the planned batches.

Spark's file source first logs the files of the next batch (`sources/0/N`), and then Spark plans the
batch (`offsets/N`). If a JVM dies between the two, the log has files that belong to no batch; the
next start would give its first batch these and a full batch more. Nothing would be lost, but the
batches would differ from those of an uninterrupted run, and with them which events are late. So a
start removes such files from the log; Spark finds them in the directory again.
"""

import json
import re

from spark_app.checkpoint.files import CheckpointFiles

FOLDER = "sources/0"

_ENTRY = re.compile(r"([0-9]+)(\.compact)?")


def forget_unplanned(files: CheckpointFiles) -> None:
    """Remove the log entries of batches that were never planned; call before the query starts."""
    position = _position(files)
    if position is None:
        return
    for name in files.names(FOLDER):
        entry = _ENTRY.fullmatch(name)
        if entry and int(entry[1]) > position:
            files.remove(f"{FOLDER}/{name}")


def _position(files: CheckpointFiles) -> int | None:
    """Return the last log entry of a planned batch; None where the format is unknown."""
    planned = files.planned()
    if planned is None:
        return -1
    try:
        return int(json.loads(planned.source)["logOffset"])
    except (ValueError, KeyError, TypeError):
        return None

"""Spark's own list of the files that each batch has, put back to where the batches are.

Spark's file source first writes down which files the next batch has (`sources/0/N`), and then Spark
plans the batch (`offsets/N`). A JVM that dies between the two has files on the list that no batch
has; the next start would give its first batch these and as many again. Nothing would be lost, but
the batches would be others than those of a stream that nothing happened to, and with them which
events are late. So a start takes such files off the list; Spark finds them in the directory again.
"""

import json
import re

from spark_app.checkpoint.files import CheckpointFiles

FOLDER = "sources/0"

_ENTRY = re.compile(r"([0-9]+)(\.compact)?")


def forget_unplanned(files: CheckpointFiles) -> None:
    """Remove what is on the list for batches that were never planned; before the query starts."""
    position = _position(files)
    if position is None:
        return
    for name in files.names(FOLDER):
        entry = _ENTRY.fullmatch(name)
        if entry and int(entry[1]) > position:
            files.remove(f"{FOLDER}/{name}")


def _position(files: CheckpointFiles) -> int | None:
    """The last entry of the list that a planned batch has; None where Spark says it otherwise."""
    planned = files.planned()
    if planned is None:
        return -1
    try:
        return int(json.loads(planned.source)["logOffset"])
    except (ValueError, KeyError, TypeError):
        return None

"""A checkpoint must stay at the path where it was begun.

Spark writes that path into the state and reads a part of the state from it, wherever the rest was
moved. A start at another path would fail, and leave a new folder at the old one.
"""

from collections.abc import Mapping
from typing import Any

from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.shell import shell_word
from holdfast.spark_app.checkpoint.files import CheckpointFiles
from holdfast.spark_app.checkpoint.shape import FILE, LOCATION


def require_same_path(files: CheckpointFiles, kept: Mapping[str, Any]) -> None:
    """Raise CommandError unless a checkpoint is at the path where it was begun.

    Links are not resolved, as in Spark. `kept` is the content of `shape.FILE`.
    """
    begun_at = kept.get(LOCATION)
    if begun_at is None:
        raise files.damaged(FILE)
    if begun_at == files.location:
        return
    there = str(begun_at).removeprefix("file:")
    raise CommandError(
        f"{files.checkpoint} was begun in another place, {shell_word(there)}, and Spark reads a"
        " part of its state from there. Nothing was read or written; move it back there, unless it"
        f" still is, and start with --checkpoint {shell_word(there)}."
    )

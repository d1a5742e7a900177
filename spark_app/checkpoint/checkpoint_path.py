"""A checkpoint must stay at the path where it was begun.

Spark writes that path into the state and reads a part of the state from it, wherever the rest was
moved. A start at another path would fail, and leave a new folder at the old one.
"""

import json
import shlex
from collections.abc import Mapping
from typing import Any, Final

from sink.contract.exits import CommandError
from spark_app.checkpoint.files import CheckpointFiles
from spark_app.checkpoint.shape import LOCATION

_OPERATOR: Final = "state/0/_metadata/v2"
"""Spark's metadata of the stateful operator: a file for each batch that rewrote it."""

_SCHEMA: Final = "/state/0/_stateSchema/"


def require_same_path(files: CheckpointFiles, kept: Mapping[str, Any]) -> None:
    """Raise CommandError unless a checkpoint is at the path where it was begun.

    Links are not resolved, as in Spark. `kept` is the content of `shape.FILE`.
    """
    # Older versions did not record it.
    begun_at = kept.get(LOCATION) or _of_spark(files)
    if begun_at in (None, files.location):
        return
    there = str(begun_at).removeprefix("file:")
    raise CommandError(
        f"{files.checkpoint} was begun in another place, {there}, and Spark reads a part of its"
        " state from there. Nothing was read or written; move it back there, unless it still is,"
        f" and start with --checkpoint {shlex.quote(there)}."
    )


def _of_spark(files: CheckpointFiles) -> str | None:
    """Return the path from which Spark reads the state's schema; None where there is no state."""
    newest = max(files.batches(_OPERATOR), default=None)
    if newest is None:
        return None
    name = f"{_OPERATOR}/{newest}"
    try:
        [store] = json.loads((files.read(name) or "").partition("\n")[2])["stateStoreInfo"]
        return str(store["stateSchemaFilePaths"][0]).partition(_SCHEMA)[0]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise files.damaged(name) from error

"""A checkpoint belongs to the place where it was begun.

Spark writes that path into the state and looks for a part of it there, wherever the rest has gone
since. A start in another place would fail, and leave a new folder in the old one.
"""

import json
import shlex
from collections.abc import Mapping
from typing import Any, Final

from sink.contract.exits import CommandError
from spark_app.checkpoint.files import CheckpointFiles
from spark_app.checkpoint.shape import LOCATION

_OPERATOR: Final = "state/0/_metadata/v2"
"""What Spark keeps of the stateful operator: a file for each batch in which it was written anew."""

_SCHEMA: Final = "/state/0/_stateSchema/"


def require_same_path(files: CheckpointFiles, kept: Mapping[str, Any]) -> None:
    """Compare where a checkpoint was begun with where it is; raises CommandError in words.

    Links are not followed: Spark does not either. `kept` is what `shape.FILE` holds.
    """
    # An older Holdfast did not write it down.
    begun_at = kept.get(LOCATION) or _of_spark(files)
    if begun_at in (None, files.location):
        return
    there = str(begun_at).removeprefix("file:")
    raise CommandError(
        f"{files.checkpoint} was begun in another place, {there}, and Spark looks for a part of its"
        " state there. Nothing was read or written; bring it back there, unless it still is, and"
        f" start with --checkpoint {shlex.quote(there)}."
    )


def _of_spark(files: CheckpointFiles) -> str | None:
    """Where Spark looks for the schema of the state; None as long as there is no state."""
    newest = max(files.batches(_OPERATOR), default=None)
    if newest is None:
        return None
    name = f"{_OPERATOR}/{newest}"
    try:
        [store] = json.loads((files.read(name) or "").partition("\n")[2])["stateStoreInfo"]
        return str(store["stateSchemaFilePaths"][0]).partition(_SCHEMA)[0]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise files.damaged(name) from error

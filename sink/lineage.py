"""The checkpoint beside the ledger: whether one of the two was put back to an older moment.

Spark writes `offsets/N` before it runs batch N and `commits/N` after the sink has returned, so the
ledger's newest batch is never beyond the first and never behind the second.
"""

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import UUID

from sink.errors import CheckpointBehind, LedgerBehind

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a checkpoint says of its batches; None where it has had none."""

    folder: Path
    planned: int | None
    committed: int | None


def local_folder(checkpoint: str | None) -> Path | None:
    """Return the folder of a checkpoint, None where it is not on a local path.

    >>> local_folder("file:///checkpoints/a%20b")
    PosixPath('/checkpoints/a b')
    >>> local_folder("s3a://bucket/checkpoints") is None
    True
    """
    if checkpoint is None:
        return None
    parts = urlsplit(checkpoint)
    if parts.scheme not in ("", "file"):
        return None
    return Path(unquote(parts.path) if parts.scheme else checkpoint)


def read_checkpoint(checkpoint: str | None, query_id: UUID) -> Checkpoint | None:
    """Return what the checkpoint of `query_id` says; None where it cannot be read from here.

    That is: no local path, or a folder of another query (a path without a scheme may be meant for
    another file system).
    """
    folder = local_folder(checkpoint)
    if folder is None:
        return None
    try:
        if _query_id(folder) != query_id:
            _log.warning(
                "%s is not the checkpoint of query %s as seen from here, so nobody notices when an"
                " older copy of it is restored: give the sink the query's checkpointLocation",
                folder,
                query_id,
            )
            return None
        return Checkpoint(folder, _newest(folder / "offsets"), _newest(folder / "commits"))
    except OSError as error:
        _log.warning("the checkpoint is not compared with the ledger: %s", error)
        return None


def compare(stream: str, checkpoint: Checkpoint, recorded: int | None) -> None:
    """Compare a checkpoint with the ledger's newest batch of its query (None: it knows none).

    Raises `CheckpointBehind` and `LedgerBehind`. A query that the ledger does not know may have
    run before it got this sink.
    """
    if recorded is None:
        return
    way_out = (
        f"begin a new checkpoint and run `holdfast stream adopt {stream} --query-id ID --reason"
        " TEXT` (the id is in its file `metadata`)"
    )
    planned, committed = checkpoint.planned, checkpoint.committed
    if planned is None or recorded > planned:
        newest = (
            "no batch was ever planned" if planned is None else f"batch {planned} is the newest"
        )
        raise CheckpointBehind(
            f"stream {stream!r}: the ledger has batch {recorded} of this query, but in the"
            f" checkpoint {checkpoint.folder} {newest}: it is an older copy, and its state does not"
            " have what the ledger has. Nothing was written, and what the ledger has stands."
            f" Restore the newest copy of the checkpoint; or {way_out}: keys that are recorded"
            " repeat nothing."
        )
    if committed is not None and recorded < committed:
        raise LedgerBehind(
            f"stream {stream!r}: the checkpoint {checkpoint.folder} has finished batch {committed},"
            f" but the newest batch of this query in the ledger is {recorded}: the database was put"
            " back to an older moment (or the sink was not called for each batch, which it has to"
            " be), and Spark does not run the batches between again. Nothing"
            f" was written. Restore the newest copy of the database; or {way_out}: what is missing"
            " is decided again under the same keys, and keys that are recorded repeat nothing."
        )


def _query_id(folder: Path) -> UUID | None:
    try:
        return UUID(json.loads((folder / "metadata").read_text(encoding="utf-8"))["id"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        # Spark itself refuses such a checkpoint, and says so.
        return None


def _newest(folder: Path) -> int | None:
    if not folder.is_dir():
        return None
    names = (path.name for path in folder.iterdir())
    return max((int(name) for name in names if name.isascii() and name.isdigit()), default=None)

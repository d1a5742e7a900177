"""The checkpoint compared with the ledger: whether one of the two was restored to an older state.

Spark writes `offsets/N` before it runs batch N and `commits/N` after the sink has returned, so the
ledger's newest batch is never beyond the first and never behind the second.
"""

import json
import logging
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import ClassVar, Protocol
from uuid import UUID

from holdfast.sink.contract.checkpoint import Safety, file_system, local_folder, refusal
from holdfast.sink.contract.numbers import is_whole
from holdfast.sink.errors import (
    CheckpointBehind,
    CheckpointUnreadable,
    LedgerBehind,
    UnadoptedCheckpoint,
    UnsafeCheckpoint,
)

_log = logging.getLogger(__name__)

_NEW_CHECKPOINT = (
    "start the query with a new checkpointLocation (and `checkpoint=`), which the stream adopts by"
    " the command that the error then has: keys that are recorded repeat nothing"
)


class Files(Protocol):
    """The files of one checkpoint; a name is relative to it, with `/`.

    Both methods raise OSError or UnicodeDecodeError for what is there and cannot be read.
    """

    @property
    def location(self) -> str: ...

    def read(self, name: str) -> str | None:
        """Return the text of a file; None where there is none."""

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder; none where there is no such folder."""

    @property
    def is_cheap(self) -> bool:
        """Whether a look into a file runs no query of Spark."""

    def tail(self, name: str, size: int) -> tuple[str, bool]:
        """Return at least the last `size` bytes of a file, and whether that is all of it.

        The first character may be cut. Raises OSError for a file that is not there.
        """


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """The files of a checkpoint on a local path."""

    folder: Path

    is_cheap: ClassVar[bool] = True

    @property
    def location(self) -> str:
        return str(self.folder)

    def read(self, name: str) -> str | None:
        try:
            return (self.folder / name).read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return None

    def names(self, folder: str) -> list[str]:
        try:
            return [path.name for path in (self.folder / folder).iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def tail(self, name: str, size: int) -> tuple[str, bool]:
        with (self.folder / name).open("rb") as opened:
            start = max(opened.seek(0, 2) - size, 0)
            opened.seek(start)
            return opened.read().decode(errors="replace"), not start


def local_files(checkpoint: str | None) -> LocalFiles | None:
    """Return the files of a checkpoint on a local path; None elsewhere, which needs a session."""
    folder = local_folder(checkpoint)
    return None if folder is None else LocalFiles(folder)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The newest batch ids of a checkpoint; None where there are none."""

    location: str
    planned: int | None
    committed: int | None


def location(checkpoint: str | PathLike[str] | None) -> str | None:
    """Return the location of a checkpoint as text; raises `ValueError` for an invalid one."""
    if checkpoint is None:
        return None
    text = fspath(checkpoint) if isinstance(checkpoint, PathLike) else checkpoint
    if (
        not isinstance(text, str)
        or not text
        or "\x00" in text
        or text != text.encode(errors="replace").decode()
        or (text.startswith("file:") and local_folder(text) is None)
    ):
        raise ValueError(
            f"{text!r} is not the location of a checkpoint: expected a path, or a URI as"
            " file:///checkpoints/payouts (without a host) or hdfs://namenode/payouts, exactly as"
            " the query's checkpointLocation"
        )
    if (why := refusal(text)) is not None:
        raise ValueError(why)
    return text


def query_of(files: Files | None) -> UUID | None:
    """Return the query id of a checkpoint; None where it has none, or cannot be read here."""
    try:
        return None if files is None else _query_id(files)
    except OSError:
        return None


def require_safe(location: str) -> None:
    """Compare the place at which Spark has a checkpoint with what is known of its file system.

    Raises `UnsafeCheckpoint` where two drivers can lose events; warns where nothing was tried.
    """
    if (why := refusal(location)) is not None:
        raise UnsafeCheckpoint(
            f"the checkpoint {why}. Nothing was written. A path without a scheme lies where Spark's"
            " `fs.defaultFS` says"
        )
    system = file_system(location)
    if system.safety is Safety.UNTRIED:
        _log.warning(
            "the checkpoint %s: %s. Let no second driver start on it", location, system.reason
        )


def read_checkpoint(files: Files | None, query_id: UUID) -> Checkpoint | None:
    """Return the checkpoint of `query_id`; None without files, or for the folder of another query.

    A path without a scheme may belong to another file system than the files.
    Raises `CheckpointUnreadable`: a checkpoint that exists is compared, or nothing is written.
    """
    if files is None:
        return None
    try:
        if _query_id(files) != query_id:
            _log.warning(
                "%s is not the checkpoint of query %s on this machine, so the restore of an older"
                " copy goes unnoticed: give the sink the query's checkpointLocation",
                files.location,
                query_id,
            )
            return None
        return Checkpoint(
            files.location, _newest(files.names("offsets")), _newest(files.names("commits"))
        )
    except OSError as error:
        raise unreadable(files.location, error) from error


def unreadable(location: str, error: OSError) -> CheckpointUnreadable:
    """Return the error of a checkpoint whose file system does not answer."""
    return CheckpointUnreadable(
        f"the checkpoint {location} cannot be compared with the ledger ({error}). Nothing was"
        " written, and what the ledger has stands; start again when its file system answers."
    )


def compare(
    stream: str, checkpoint: Checkpoint, recorded: int | None, *, repeated_until: int = -1
) -> None:
    """Compare a checkpoint with the ledger's newest batch of its query (None: it knows none).

    Batches up to `repeated_until` are planned again as they were, so the ledger may have them.
    Raises `CheckpointBehind` and `LedgerBehind`. For a query that the ledger does not know, see
    `require_beginning`.
    """
    if recorded is None:
        return
    planned = checkpoint.planned
    if recorded > max(-1 if planned is None else planned, repeated_until):
        newest = (
            "no batch was ever planned" if planned is None else f"batch {planned} is the newest"
        )
        raise CheckpointBehind(
            f"stream {stream!r}: the ledger has batch {recorded} of this query, but in the"
            f" checkpoint {checkpoint.location} {newest}: it is an older copy, and its state does"
            " not have what the ledger has. Nothing was written, and what the ledger has stands."
            f" Restore the newest copy of the checkpoint; or {_NEW_CHECKPOINT}."
        )
    require_recorded(stream, checkpoint.location, checkpoint.committed, recorded)


def require_beginning(
    stream: str,
    query_id: UUID,
    batch_id: int | None,
    declared: int | None,
    other: tuple[str, int] | None,
) -> None:
    """Refuse a query that begins in the middle, where the ledger has no batch of it in the stream.

    `batch_id` is the batch that Spark runs next, None if that is not known yet; `declared` the one
    with which a person says that the query begins in this ledger; `other` another stream with
    batches of the query, and its newest. Raises `UnadoptedCheckpoint` for a renamed stream, and
    `LedgerBehind` where the batches before are missing.
    """
    if declared is not None and batch_id in (None, declared):
        return
    number = "N" if batch_id is None else batch_id
    declare = f"pass first_batch={number} to OutboxSink"
    if batch_id is None:
        declare += ", with the number of the batch that Spark runs next"
    if other is not None:
        raise renamed(
            stream, query_id, other, f" If the query is meant to write {stream!r} too, {declare}."
        )
    if batch_id:
        raise LedgerBehind(
            f"stream {stream!r}: batch {batch_id} would be the first one of query {query_id} in the"
            " ledger, and Spark does not run those before it again: the database was put back to an"
            " older moment, or is another one. Nothing was written. Restore the newest copy of the"
            f" database; or {_NEW_CHECKPOINT}, and what is missing is decided again under the same"
            " keys. If the query ran without this sink before, and nothing is missing,"
            f" {declare}."
        )


def renamed(
    stream: str, query_id: UUID, other: tuple[str, int], advice: str = ""
) -> UnadoptedCheckpoint:
    """Return the error of a query whose batches another stream has: its name and the newest."""
    name, newest = other
    return UnadoptedCheckpoint(
        f"stream {stream!r} has no batch of query {query_id}, and stream {name!r} has its batches"
        f" until {newest}: under another name the sink does not know the last transition of each"
        f" subject. Nothing was written. Start again with the stream {name!r}.{advice} Or give the"
        f" stream its new name: `holdfast stream rename {name} {stream} --reason TEXT`."
    )


def next_batch(checkpoint: Checkpoint) -> int:
    """Return the batch that Spark runs next with a checkpoint."""
    if checkpoint.committed is not None:
        return checkpoint.committed + 1
    return checkpoint.planned or 0


def require_recorded(
    stream: str, location: str, committed: int | None, recorded: int | None
) -> None:
    """Compare the newest committed batch of a checkpoint with the ledger's newest of its query.

    For a query that used the sink from its first batch on: there, None means that the ledger has
    lost it. Raises `LedgerBehind`.
    """
    if committed is None or (recorded is not None and recorded >= committed):
        return
    newest = (
        "the ledger has no batch of this query"
        if recorded is None
        else f"the newest batch of this query in the ledger is {recorded}"
    )
    raise LedgerBehind(
        f"stream {stream!r}: the checkpoint {location} has finished batch {committed},"
        f" but {newest}: the database was put back to an older moment (or the sink was not called"
        " for each batch, which it has to be), and Spark does not run the batches between again."
        f" Nothing was written. Restore the newest copy of the database; or {_NEW_CHECKPOINT}, and"
        " what is missing is decided again under the same keys."
    )


def forgotten(stream: str, batch_id: int, next_id: int) -> LedgerBehind:
    """Return the error of a run whose batch the ledger no longer has."""
    return LedgerBehind(
        f"stream {stream!r}: this run has written batch {batch_id}, and the ledger does not have it"
        " any more: the database was put back to an older moment, as by a failover to a standby"
        f" that was behind. Batch {next_id} was not written, because what was decided before it"
        f" would be missing. Restore the newest copy of the database; or {_NEW_CHECKPOINT}, and"
        " what is missing is decided again under the same keys."
    )


def require_batch_before(stream: str, batch_id: int, recorded: int | None) -> None:
    """Compare the first batch that a run writes with the ledger's newest of its query.

    The run's checkpoint was compared when it started. What it committed since, for another driver,
    the database may have lost before this run took the stream. Raises `LedgerBehind`. For None,
    see `require_beginning`.
    """
    if recorded is None or recorded >= batch_id - 1:
        return
    raise LedgerBehind(
        f"stream {stream!r}: batch {batch_id} would be the next one of this query, but the newest"
        f" one in the ledger is {recorded}: the database was put back to an older moment (or the"
        " sink was not called for each batch, which it has to be), and Spark does not run the"
        " batches between again. Nothing was written. Restore the newest copy of the database; or"
        f" {_NEW_CHECKPOINT}, and what is missing is decided again under the same keys."
    )


def unrepeatable(stream: str, batch_id: int, query_id: UUID, other_id: int) -> LedgerBehind:
    """Return the error of a batch that repeats one which the ledger does not have as it was."""
    return LedgerBehind(
        f"stream {stream!r}: batch {batch_id} repeats batch {other_id} of query {query_id}, and the"
        " ledger does not have that one with its original content: the database was put back to an"
        " older moment, or is another one. Nothing was written. Restore the newest copy of the"
        f" database; or {_NEW_CHECKPOINT}."
    )


def _query_id(files: Files) -> UUID | None:
    try:
        return UUID(json.loads(files.read("metadata") or "")["id"])
    except (ValueError, KeyError, TypeError, AttributeError):
        # Spark itself refuses such a checkpoint.
        return None


def _newest(names: list[str]) -> int | None:
    return max((int(name) for name in names if is_whole(name)), default=None)

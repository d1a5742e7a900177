"""What a batch read: the files of each directory, the ticks, the offsets of each topic.

Spark's logs of the files that were read (`sources/I`) keep every name, also of batches whose plan
was removed; the ledger keeps their plans, and the names of entries that are lost.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.source_offsets import Files, range_lines, ranges
from holdfast.spark_app.checkpoint import origin, shape
from holdfast.spark_app.checkpoint_manager import spark_files
from holdfast.spark_app.checkpoint_manager.folder import Folder
from holdfast.spark_app.checkpoint_manager.ledger import ledger
from holdfast.spark_app.checkpoint_manager.listing import Document, stream
from holdfast.spark_app.checkpoint_manager.spark_files import INITIAL_HEAD, NOTHING


def read_by(folder: Folder, batch: int, dsn: str | None) -> Document:
    """Return each source of a batch as `ranges` does, as it is `recorded`, and with its `files`.

    `files` are the paths of a log's files, None where their entries are not known. A plan or an
    entry that the checkpoint does not have comes from the ledger. Raises CommandError (nothing
    matched) where neither has the plan of the batch.
    """
    plans = {number: _plan(folder, number) for number in (batch - 1, batch)}
    stored = cache(lambda: _stored(folder, batch, dsn))
    if any(text is None for number, text in plans.items() if number >= 0):
        plans = {n: stored().plan(n) if text is None else text for n, text in plans.items()}
    before = _begun(folder, plans[batch - 1], batch, (plans[batch] or "").count("\n") - 1)
    offsets = ranges(before, plans[batch], batch)
    if not offsets:
        where = " and in the ledger" if dsn else "; pass --dsn or set HOLDFAST_DSN for the ledger's"
        raise CommandError(
            f"there is no plan of batch {batch} in the checkpoint {folder.location}{where}. Nothing"
            " was changed.",
            ExitCode.NOTHING_MATCHED,
            code="unknown_batch",
        )
    recorded = (folder.own(shape.FILE) or {}).get(shape.SOURCES, [])
    took_over = batch == 0 and origin.FILE in folder.files
    return {
        "checkpoint": folder.location,
        "batch_id": batch,
        "from_savepoint": took_over,
        "sources": [
            each
            | {"recorded": recorded[number] if number < len(recorded) else None}
            | (_files(folder, each, stored) if each["kind"] == "log" else {})
            for number, each in enumerate(offsets)
        ],
    }


def lines(answer: Document) -> Iterator[str]:
    """Yield the answer as text."""
    yield f"{answer['checkpoint']} · batch {answer['batch_id']}"
    if answer["from_savepoint"]:
        yield "It took over a savepoint: what is listed was read by the batches before that."
    for each in answer["sources"]:
        yield from range_lines(each, _title(each["recorded"]))
        for file in each.get("files") or ():
            yield f"  {file}"
        if lost := each.get("lost_entries"):
            yield from (f"  not known: the files of log entry {n}, which is lost" for n in lost)


def _title(recorded: Any) -> str | None:
    match recorded:
        case {"kind": "files", "path": str(path)}:
            return f"files of {path}"
        case {"kind": "ticks"}:
            return "ticks of the idle clock"
    return None


def _plan(folder: Folder, batch: int) -> str | None:
    if folder.plan(batch) is None:
        return None
    try:
        return folder.read(f"offsets/{batch}").decode()
    except OSError:
        # A running job has removed it since it was listed.
        return None


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the ledger has of a batch and of the one before it."""

    batch: int
    rows: Mapping[int, tuple[str | None, Files]]

    def plan(self, batch: int) -> str | None:
        return self.rows[batch][0] if batch in self.rows else None

    def files(self, source: int) -> list[Document]:
        return self.rows[self.batch][1].get(source, []) if self.batch in self.rows else []


def _stored(folder: Folder, batch: int, dsn: str | None) -> _Stored:
    name, query_id = stream(folder), folder.query_id()
    if dsn is None or name is None or query_id is None:
        return _Stored(batch, {})
    with ledger(dsn, name) as books:
        return _Stored(batch, books.plans(query_id, batch))


def _begun(folder: Folder, before: str | None, batch: int, count: int) -> str | None:
    """Return the plan before a batch, with the position at which a new topic began."""
    if before is None and batch > 0:
        return None
    head, metadata, *sources = (before or "v1\n{}").splitlines()
    sources += [NOTHING] * (count - len(sources))
    for number, line in enumerate(sources):
        if line == NOTHING and (start := _start(folder, number)) is not None:
            sources[number] = start
    return "\n".join([head, metadata, *sources])


def _start(folder: Folder, source: int) -> str | None:
    name = f"sources/{source}/0"
    if folder.problem(name) is not None:
        return None
    text = folder.read(name).decode()
    return text.removeprefix(INITIAL_HEAD) if text.startswith(INITIAL_HEAD) else None


def _files(folder: Folder, each: Document, stored: Callable[[], _Stored]) -> Document:
    first, last = each["first_entry"], each["last_entry"]
    if last is None:
        return {"files": []}
    if first is None:
        return {"files": None}
    log = folder.source_log(each["source"])
    entries = {entry for text in log.values() for entry in spark_files.entries(text)}
    paths = {(entry.number, json.loads(entry.line)["path"]) for entry in entries}
    newest_compact = max((name.number for name in log if name.compact), default=-1)
    known = {name.number for name in log}
    lost = {
        number
        for number in range(first, last + 1)
        if number > newest_compact and number not in known
    }
    rows = [row for row in stored().files(each["source"]) if row["batchId"] in lost] if lost else []
    paths.update((row["batchId"], row["path"]) for row in rows)
    return {
        "files": [path for number, path in sorted(paths) if first <= number <= last],
        "lost_entries": sorted(lost.difference(row["batchId"] for row in rows)),
    }

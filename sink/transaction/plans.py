"""The plan of a batch in its checkpoint: what the ledger keeps of it, and whether it is our own.

Spark's plan of a batch (`offsets/N`) has the number of an entry in the log of a file source, and
the log (`sources/I/K`) has the names of the files. Without that entry nobody knows what the batch
has read, and it cannot be repeated, so the ledger keeps both. Every tenth entry is a compact one,
which repeats all before it.

Where a file system lets one driver replace a file of the other, the plan that lies there may be the
other one's: what it says counts as read, and this driver has read something else. So before each
batch both are compared with what this driver has in memory (`Chain`).
"""

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

from holdfast.sink.contract.checkpoint import Safety, file_system
from holdfast.sink.contract.source_offsets import NOTHING, readable_offsets, with_files
from holdfast.sink.errors import CheckpointReplaced
from holdfast.sink.transaction.lineage import Files, LocalFiles

_log = logging.getLogger(__name__)

BYTES_MAX = 1 << 20
"""Of the rows of one batch. A batch of more files (some thousands) is kept without them."""

_BLOCK = 1 << 16

_PLANNED_ALIKE = ("batchWatermarkMs", "batchTimestampMs")
"""In a plan's metadata: what a batch depends on, beside the offsets. The rest are settings."""

Rows = dict[int, list[dict[str, Any]]]
"""The rows of the log of each file source, of one batch."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a batch, as it lies in the checkpoint."""

    batch_id: int
    text: str
    rows: Rows = field(default_factory=dict)
    """Of the entries of its file sources that could be read."""
    complete: bool = False
    """Whether `rows` has all of them."""

    @property
    def source_offsets(self) -> str:
        """Its text, with the names of the files that it reads."""
        return with_files(self.text, self.rows)

    @property
    def paths(self) -> frozenset[str]:
        """The files that it reads: the paths of their URIs, which Spark writes in two ways."""
        return frozenset(urlsplit(row["path"]).path for rows in self.rows.values() for row in rows)


def read_plan(files: Files | None, batch_id: int) -> Plan | None:
    """Return the plan that Spark wrote before it ran the batch.

    With the names of the files that it reads, where its log can be read. None where the plan cannot
    be read or stored: that never stops a batch.
    """
    if files is None:
        return None
    try:
        text = files.read(f"offsets/{batch_id}")
    except (OSError, UnicodeDecodeError) as error:
        why = str(error)
    else:
        if text is None:
            return None
        if "\x00" not in text:
            return _with_rows(files, batch_id, text) if files.is_cheap else Plan(batch_id, text)
        why = "they hold a NUL character"
    _log.warning("the source's offsets of batch %d are not stored: %s", batch_id, why)
    return None


def _with_rows(files: Files, batch_id: int, text: str) -> Plan:
    try:
        return Plan(batch_id, text, dict(_rows(files, batch_id, text)), complete=True)
    except FileNotFoundError:
        pass  # another kind of source numbers its positions in the same way
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.warning("the names of the files of batch %d are not stored: %s", batch_id, error)
    return Plan(batch_id, text)


def _rows(files: Files, batch_id: int, text: str) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    now = _entries(text)
    if not any(entry >= 0 for entry in now):
        return
    plan_before = files.read(f"offsets/{batch_id - 1}") if batch_id else ""
    if plan_before is None:
        raise FileNotFoundError
    before = _entries(plan_before) if batch_id else []
    size = 0
    for source, entry in enumerate(now):
        if entry <= (before[source] if source < len(before) else -1):
            continue
        lines = _lines(files, f"sources/{source}", entry)
        size += sum(map(len, lines))
        if size > BYTES_MAX:
            raise ValueError(f"they are more than {BYTES_MAX:,} bytes")
        yield source, [json.loads(line) for line in lines]


def _entries(text: str) -> list[int]:
    """Return the newest log entry of each source, -1 where it is not a file source or has none."""
    sources = (readable_offsets(text) or {}).get("sources") or []
    return [
        source["logOffset"] if isinstance(source, dict) and source.keys() == {"logOffset"} else -1
        for source in sources
    ]


def _lines(files: Files, log: str, entry: int) -> list[str]:
    """Return the rows of an entry as Spark wrote them; raises OSError where it is not there."""
    plain = files.read(f"{log}/{entry}")
    if plain is not None:
        return plain.splitlines()[1:]
    # Those of this entry are the last ones, and the others may be millions.
    size = _BLOCK
    while True:
        end, is_whole = files.tail(f"{log}/{entry}.compact", size)
        # The first line may be cut, or be that of the version.
        lines = end.splitlines()[1:]
        own = [line for line in lines if json.loads(line)["batchId"] == entry]
        if is_whole or len(own) < len(lines):
            return own
        size *= 4


class Memory(NamedTuple):
    """What the driver itself has planned for a batch and reads, by Spark's memory."""

    text: str
    """As `offsets/N`."""
    paths: frozenset[str] | None
    """The files: the paths of their URIs; None where they are not known."""


class Chain:
    """The plans of one run, each compared with the driver's memory before its batch is written.

    A plan that was replaced afterwards is noticed before the next batch. Where the file system
    refuses a taken name in one step, that cannot happen, and the plan is not read once more.
    """

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._before: tuple[UUID, Plan] | None = None

    def replaced(
        self, files: Files | None, run_id: UUID, plan: Plan | None, memory: Memory | None
    ) -> CheckpointReplaced | None:
        """Return the error of a plan that this driver has not made, or has not read; else None."""
        if files is None or plan is None:
            return None
        if memory is not None:
            if _planned(plan.text) != _planned(memory.text):
                return self._error(files, plan.batch_id, f"offsets/{plan.batch_id}")
            if plan.complete and memory.paths not in (None, plan.paths):
                return self._error(files, plan.batch_id, "the log of a source (sources/)")
        before, self._before = self._before, (run_id, plan)
        if before is None or before[0] != run_id or _is_refused_in_one_step(files):
            return None
        earlier = before[1]
        now = read_plan(files, earlier.batch_id) if earlier.batch_id < plan.batch_id else None
        if now is None or (now.text == earlier.text and _same_rows(now, earlier)):
            return None
        name = f"offsets/{earlier.batch_id}, or the log of a source,"
        return self._error(files, earlier.batch_id, name)

    def _error(self, files: Files, batch_id: int, name: str) -> CheckpointReplaced:
        return CheckpointReplaced(
            f"stream {self._stream!r}: in the checkpoint {files.location}, {name} is not what this"
            f" driver has planned for batch {batch_id}: another driver on this checkpoint has"
            " replaced it, because the file system lets a file of that name be replaced. The batch"
            " that was to be written now was not written, and what the ledger has stands. Stop all"
            f" drivers of the stream. {_way_out(batch_id)}. This names the run that has the stream:"
            f" `holdfast stream show {self._stream}`."
        )


def _way_out(batch_id: int) -> str:
    new = "begin with a new checkpointLocation, which the stream adopts"
    if not batch_id:
        return new[0].upper() + new[1:]
    return (
        f"Then let `job checkpoints restore` go back to batch {batch_id - 1}: the later ones are"
        f" repeated as the ledger has them. A job of your own has to {new}"
    )


def _is_refused_in_one_step(files: Files) -> bool:
    return not isinstance(files, LocalFiles) and file_system(files.location).safety is Safety.TRIED


def _same_rows(one: Plan, other: Plan) -> bool:
    return not (one.complete and other.complete) or one.rows == other.rows


def _planned(text: str) -> list[Any]:
    """Return what two texts of one plan have in common, whoever has written them."""
    lines = text.splitlines()
    described, sources = "".join(lines[1:2]), lines[2:]
    while sources and sources[-1] == NOTHING:
        sources.pop()  # a job that gets a source gives its plans a line for it
    try:
        metadata = json.loads(described)
        alike = [metadata.get(name) for name in _PLANNED_ALIKE]
    except (ValueError, AttributeError):
        alike = [described]
    return [*alike, *map(_value, sources)]


def _value(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return line

"""What becomes of a batch, and the words for a replay that differs; no I/O, no clock."""

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import pyarrow as pa

from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.numbers import counted
from holdfast.sink.errors import Divergence, KeyDifference, ReplayDiverged
from holdfast.sink.rows.future_dated import Split
from holdfast.sink.rows.numbering import Mask, Numbered, number

FIRST_KEYS = 20
"""Keys of each side that an error names."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a stream. `epoch` grows with each run and fences the older ones."""

    stream: str
    query_id: UUID
    run_id: UUID
    epoch: int
    checkpoint: str | None = None
    """The query's checkpointLocation, for messages; None where the sink was not given it."""


@dataclass(frozen=True, slots=True)
class Counts:
    """`rows = entries + duplicates + suppressed + quarantined`; `differing` are duplicates too.

    A suppressed entry repeats its subject's type, or was overtaken by a newer entry.

    >>> sink = OutboxSink(dsn, stream="payouts")
    >>> twice = pa.concat_tables([decisions, decisions])
    >>> sink.apply(twice, Identity(query_id, first_run, 0)).counts
    Counts(rows=4, entries=2, duplicates=2, differing=0, suppressed=0, quarantined=0)
    """

    rows: int
    entries: int
    duplicates: int
    differing: int
    suppressed: int
    quarantined: int


@dataclass(frozen=True, slots=True)
class _Outcome:
    stream: str
    batch_id: int
    batch_no: int
    written_at: datetime
    counts: Counts


@dataclass(frozen=True, slots=True)
class Written(_Outcome):
    """The batch is in the outbox, written by this call; of `outcome`, whoever wrote it.

    >>> sink = OutboxSink(dsn, stream="payouts")
    >>> isinstance(sink.apply(decisions, Identity(query_id, first_run, 0)), Written)
    True
    """


@dataclass(frozen=True, slots=True)
class Replayed(_Outcome):
    """The batch was already in the outbox, with the same content; nothing was written.

    >>> sink = OutboxSink(dsn, stream="payouts")
    >>> first = sink.apply(decisions, Identity(query_id, first_run, 0))
    >>> again = sink.apply(decisions, Identity(query_id, second_run, 0))
    >>> type(again).__name__, again.counts == first.counts
    ('Replayed', True)
    """


@dataclass(frozen=True, slots=True)
class Recorded:
    """The ledger's row of a batch."""

    run_id: UUID
    epoch: int
    digest: bytes
    batch_no: int
    written_at: datetime
    counts: Counts


@dataclass(frozen=True, slots=True)
class Accepted:
    """A replay with other content that a person accepted, and that is not written yet."""

    run: Run
    """Of its row in the ledger: with the query id of `accepted_query_id`."""

    limit: datetime
    """The latest `occurred_at` that the batch accepted; what the person saw was compared by it."""


class Keys(NamedTuple):
    """The keys of a batch, after they are recorded."""

    fresh: Mask
    """For each entry, whether its key is new."""

    differing: int
    """Number of known keys with different content."""


class Judged(NamedTuple):
    """What becomes of the rows of a batch."""

    numbered: Numbered
    """With positions among all that arrived."""

    counts: Counts


def judge(
    arrived: Split,
    subjects: pa.Table,
    keys: Keys,
    *,
    row_count: int,
    duplicates: int,
    quarantined: int,
    suppress: bool,
) -> Judged:
    """Number the entries of a batch, and count its rows.

    `subjects` is `numbering.SUBJECTS`, `keys` is of the entries. Of the `row_count` rows,
    `duplicates` repeat another row of the batch and `quarantined` are refused.
    """
    numbered = number(arrived.entries, subjects, keys.fresh, suppress=suppress).at(arrived.places)
    known = len(keys.fresh) - int(keys.fresh.sum())
    counts = Counts(
        rows=row_count,
        entries=len(numbered.rows),
        duplicates=duplicates + known,
        differing=keys.differing,
        suppressed=len(numbered.suppressed.rows),
        quarantined=quarantined,
    )
    return Judged(numbered, counts)


def diverged(run: Run, batch_id: int, recorded: Recorded, difference: Divergence) -> ReplayDiverged:
    """Return the error of a replay with other content than its batch."""
    return ReplayDiverged(
        f"stream {run.stream!r}: batch {batch_id} of query {run.query_id} came back with other"
        f" content than was written on {rfc3339(recorded.written_at)}: {in_words(difference)}."
        " Nothing was written now, and what was written then stands. Restore what made it (the"
        " code, the policy, the source's files) and restart.",
        difference,
    )


def in_words(difference: Divergence) -> str:
    """Describe a divergence on one line, with the first keys of each side."""
    words = [
        f"rows {difference.rows_then} then, {difference.rows_now} now",
        f"quarantined {difference.quarantined_then} then, {difference.quarantined_now} now",
    ]
    sides = (
        ("only in the ledger", difference.only_in_ledger),
        ("only in this replay", difference.only_in_replay),
        ("with other content", difference.changed),
    )
    words += [
        f"{counted(side.count, 'key')} {name} ({_listed(side)})"
        for name, side in sides
        if side.count
    ]
    if len(words) == 2:
        words.append("the keys are the same, so another column or table of the batch differs")
    return "; ".join(words)


def _listed(side: KeyDifference) -> str:
    more = ", ..." if side.count > len(side.first) else ""
    return ", ".join(Key(digest).text for digest in side.first) + more

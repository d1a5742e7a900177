"""Batches: the ledger of a stream, and replays that diverged from it."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal
from uuid import UUID

from typing_extensions import TypedDict

from holdfast.dispatcher.operators.common import verbs
from holdfast.dispatcher.operators.common.person import ALONE_MAX
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.text import display, shortened
from holdfast.dispatcher.operators.quarantine.rules import with_rules
from holdfast.dispatcher.operators.streams.acceptance import Acceptances
from holdfast.dispatcher.operators.streams.store import Streams
from holdfast.dispatcher.operators.streams.verbs import ListedBatch
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.numbers import counted
from holdfast.sink.contract.source_offsets import range_lines
from holdfast.sink.contract.states import (
    AccessRole,
    DivergenceSide,
    EndpointState,
    QuarantineReason,
)

GROUP = verbs.Group(
    "batch",
    help="Batches: list, show, compare or accept a diverged replay.",
    store=Streams,
    path="/batches",
    tag="batches",
)

_LIST = (
    *("batch_id", "written_at", "row_count", "entry_count", "duplicate_count"),
    *("suppressed_count", "quarantined_count", "routed_at", "divergences"),
)
_DELIVERY = ("endpoint", "state", "entries", "delivered", "waiting", "dead_letters")
_SIDES = {
    "only_in_ledger": "only then",
    "only_in_replay": "only now",
    "changed": "changed",
}

Stream = Annotated[
    str, verbs.Param(kind=verbs.Kind.NAME, command_help="The stream.", argument="STREAM")
]
BatchId = Annotated[int, verbs.Param("Spark's batch id.", verbs.Kind.BATCH, argument="BATCH_ID")]
Number = Annotated[
    int | None, verbs.Param("The divergence's id. Default: the newest.", verbs.Kind.ID)
]


PartitionRange = TypedDict(
    "PartitionRange",
    {
        "topic": str,
        "partition": int,
        "from": Annotated[int | None, verbs.Doc("The first offset; null if not known.")],
        "until": Annotated[
            int | None, verbs.Doc("The offset behind the last one; null if not known.")
        ],
        "count": Annotated[
            verbs.Count | None,
            verbs.Doc("until - from; records are fewer in a compacted topic or with transactions."),
        ],
        "note": Annotated[str | None, verbs.Doc("Why something is not known.")],
    },
)
PartitionRange.__doc__ = "What a batch read from a partition of Kafka."


@dataclass(kw_only=True)
class SourceRange:
    """What a batch read from a source: the difference from the batch before it."""

    source: Annotated[verbs.Count, verbs.Doc("Its position in `sources`, from 0.")]
    kind: Annotated[
        Literal["kafka", "log", "nothing", "other"],
        verbs.Doc("`log`: files, or the ticks of the idle clock; `nothing`: no data yet."),
    ]
    partitions: Annotated[
        list[PartitionRange] | None,
        verbs.Doc("Of Kafka: those that were read, or have a note."),
    ] = None
    count: Annotated[
        verbs.Count | None,
        verbs.Doc("Of Kafka: over all partitions; null if one is not known."),
    ] = None
    unread: Annotated[
        verbs.Count | None, verbs.Doc("Of Kafka: number of the other partitions.")
    ] = None
    first_entry: Annotated[
        verbs.Count | None,
        verbs.Doc("Of `log`: the first entry of the source's log; null if not known."),
    ] = None
    last_entry: Annotated[
        verbs.Count | None,
        verbs.Doc("Of `log`: the last entry; null if nothing was read."),
    ] = None
    offset: Annotated[Any, verbs.Doc("Of `other`: how far it is read.")] = None
    note: Annotated[str | None, verbs.Doc("Why something is not known.")]


@dataclass(kw_only=True)
class Offsets:
    """Source offsets of a batch, as Spark recorded them, and what the batch read."""

    batch_time: verbs.Time | None = None
    watermark: verbs.Time | None = None
    sources: Annotated[
        list[Any] | None,
        verbs.Doc("How far each source is read; null: it had no data yet."),
    ] = None
    ranges: Annotated[list[SourceRange], verbs.Doc("What the batch read, one for each source.")]
    text: Annotated[
        str | None,
        verbs.Doc("Instead of the other members, if it is not in Spark's format."),
    ] = None


class LedgerRow(TypedDict):
    """A batch's ledger row."""

    stream: str
    query_id: UUID
    batch_id: int
    batch_no: int
    run_id: UUID
    epoch: int
    row_count: verbs.Count
    entry_count: verbs.Count
    duplicate_count: verbs.Count
    differing_count: verbs.Count
    suppressed_count: verbs.Count
    quarantined_count: verbs.Count
    digest: Annotated[str, verbs.Doc("SHA-256 over the hashes of its rows, in hex.")]
    source_offsets: Offsets | None
    written_at: verbs.Time
    routed_at: verbs.Time | None


class OfType(TypedDict):
    """Stored entries of a batch by type."""

    type: str
    entries: verbs.Count
    subjects: verbs.Count


class BatchDelivery(TypedDict):
    """Delivery state of a batch's entries at an endpoint."""

    endpoint: str
    state: EndpointState
    entries: verbs.Count
    delivered: verbs.Count
    waiting: verbs.Count
    dead_letters: verbs.Count


class Refused(TypedDict):
    """Quarantined rows of a batch."""

    reason: QuarantineReason
    rule: str | None
    rows: verbs.Count
    open: verbs.Count


class Divergence(TypedDict):
    """A replay of a batch with different content."""

    id: int
    digest: str
    run_id: UUID
    row_count: verbs.Count
    quarantined_count: verbs.Count
    differing_count: verbs.Count
    found_at: verbs.Time
    kept_count: Annotated[verbs.Count, verbs.Doc("Number of differing rows that are stored.")]
    new_count: Annotated[
        verbs.Count,
        verbs.Doc("Keys that only the replay has; with rows that are not stored, at most."),
    ]
    accepted_at: verbs.Time | None
    accepted_by: str | None
    added: Annotated[
        LedgerRow | None,
        verbs.Doc("The ledger's row of an accepted replay; null until the job brings it again."),
    ]


class Batch(LedgerRow):
    """A batch, and what became of its rows."""

    types: list[OfType]
    delivery: list[BatchDelivery]
    refused: list[Refused]
    divergences: list[Divergence]


class DifferingRow(TypedDict):
    """A key in which a replay differs from what was written."""

    key: verbs.KeyText
    side: DivergenceSide
    subject: str | None
    subject_then: str | None
    type: str | None
    type_then: str | None
    sequence: int | None
    occurred_at: verbs.Time | None
    body_then: Annotated[str | None, verbs.Doc("null unless bodies are requested.")]
    body_now: Annotated[str | None, verbs.Doc("null unless bodies are requested.")]


class Difference(TypedDict):
    """A diverged replay, row by row, next to what was written."""

    batch: LedgerRow
    divergence: Divergence
    others: Annotated[list[int], verbs.Doc("Ids of the batch's other diverged replays.")]
    rows: list[DifferingRow]


def _show(batch: Row, _: Row) -> verbs.Text:
    yield _title(batch)
    facts = ("batch_no", "run_id", "epoch", "written_at", "routed_at", "digest")
    yield verbs.Facts({name: batch[name] for name in facts}, 11)
    yield (
        f"{counted(batch['row_count'], 'row')} = {counted(batch['entry_count'], 'entry')}"
        f" + {counted(batch['duplicate_count'], 'duplicate')}"
        f" + {batch['suppressed_count']} suppressed + {batch['quarantined_count']} quarantined;"
        f" {counted(batch['differing_count'], 'duplicate')} with other content"
    )
    yield from _offsets(batch["source_offsets"], batch["batch_id"])
    yield verbs.Table(batch["types"], ("type", "entries", "subjects"), "Entries by type")
    yield verbs.Table(batch["delivery"], _DELIVERY, "Delivery")
    if batch["refused"]:
        rows = with_rules(batch["refused"])
        yield verbs.Table(rows, ("reason", "rows", "open"), "Quarantined")
    if batch["divergences"]:
        columns = ("id", "run_id", "differing_count", "row_count", "found_at", "accepted_by")
        yield verbs.Table(batch["divergences"], columns, "Diverged replays")
    for each in batch["divergences"]:
        if each["accepted_at"] is not None:
            yield _standing(batch, each)


def _title(batch: Row) -> str:
    return f"batch {batch['batch_id']} of stream {batch['stream']}, query {batch['query_id']}"


def _offsets(offsets: Row | None, batch_id: int) -> list[str]:
    if offsets is None:
        return ["source offsets: not stored (the sink was not given the checkpoint)"]
    if "text" in offsets:
        return ["source offsets:", f"  {shortened(offsets['text'])}"]
    times = (
        f"batch time {display(offsets['batch_time'])}, watermark {display(offsets['watermark'])}"
    )
    lines = [line for each in offsets["ranges"] for line in range_lines(each)]
    if any(each.get("last_entry") is not None for each in offsets["ranges"]):
        command = f"holdfast job checkpoints input --checkpoint PATH --batch {batch_id}"
        lines.append(f"names of the files: {command}")
    return [f"read, {times}:", *(f"  {shortened(line)}" for line in lines)]


def _standing(batch: Row, divergence: Row) -> str:
    """Return what became of an accepted replay, or how to accept one."""
    named = f"{batch['stream']} {batch['batch_id']}"
    number, added = divergence["id"], divergence["added"]
    if divergence["accepted_at"] is None:
        return (
            "to write what only this replay has, and let the job continue: holdfast batch accept"
            f" --divergence {number} --query-id {batch['query_id']} --reason TEXT {named}"
        )
    by = f"{display(divergence['accepted_by'])} at {display(divergence['accepted_at'])}"
    if added is None:
        return f"replay {number} is accepted by {by}; it is written when the job brings it again"
    return (
        f"replay {number} is accepted by {by}, and wrote {counted(added['entry_count'], 'entry')}"
        f" at {display(added['written_at'])}: holdfast batch show {named}"
        f" --query-id {added['query_id']}"
    )


def _show_difference(difference: Row, _: Row) -> verbs.Text:
    yield from _differing(difference)
    yield "\n" + _standing(difference["batch"], difference["divergence"])


def _differing(difference: Row) -> verbs.Text:
    batch, divergence, rows = difference["batch"], difference["divergence"], difference["rows"]
    yield (
        f"{_title(batch)}, written {display(batch['written_at'])}: run {divergence['run_id']}"
        f" brought other content on {display(divergence['found_at'])}"
    )
    yield (
        f"rows {batch['row_count']} then, {divergence['row_count']} now; quarantined"
        f" {batch['quarantined_count']} then, {divergence['quarantined_count']} now;"
        f" {counted(divergence['differing_count'], 'key')} of the two differ"
    )
    if not divergence["differing_count"]:
        yield "the keys are equal, so another column or table of the batch differs"
    for row in rows:
        yield (
            f"\n{_SIDES[row['side']]}: {row['key']} {display(row['subject'])}"
            f" {display(row['type'])}"
        )
        yield f"  then {_body(row['body_then'], row['side'] == 'only_in_replay')}"
        yield f"  now  {_body(row['body_now'], row['side'] == 'only_in_ledger')}"
    if len(rows) < divergence["kept_count"]:
        kept = counted(divergence["kept_count"], "row")
        yield f"\n{len(rows)} of {kept} shown; more with `holdfast batch diff --limit N`"
    if divergence["kept_count"] < divergence["differing_count"]:
        keys = counted(divergence["differing_count"], "key")
        yield f"\nof {keys} {divergence['kept_count']} are stored"
    if difference["others"]:
        others = ", ".join(map(str, difference["others"]))
        yield f"\nother diverged replays of this batch: --divergence {others}"


def _body(body: str | None, absent: bool) -> str:
    if body is not None:
        return shortened(body)
    # Only its key is stored: it was suppressed, or its partition was dropped.
    return "(nothing)" if absent else "(only its key is stored)"


@GROUP.verb(
    "list",
    of=verbs.List,
    help="List the batches of one checkpoint, the newest first. Exit code 3: there are none.",
    text=lambda page, _: [
        verbs.Table(page.rows, _LIST, f"Batches of query {display(page.about['query_id'])}")
    ],
    route=verbs.Route("List batches of a stream."),
    rows="batches",
    about={"query_id": UUID | None},
    result=ListedBatch,
    page=verbs.Model("BatchPage", "Batches of one checkpoint, the newest first."),
    empty="the stream has no batch of this query id in this range. Nothing was changed.",
)
def list_batches(
    store: Streams,
    stream: Stream,
    query_id: verbs.QueryId = None,
    limit: Annotated[
        int, verbs.Param("Maximum number of rows.", verbs.Kind.LIMIT, command_default=20)
    ] = 50,
    before: Annotated[
        int | None,
        verbs.Param("Only batches with an id below this one.", verbs.Kind.BATCH),
    ] = None,
) -> verbs.Page:
    """Return the batches of one checkpoint, the newest first."""
    meant, rows = store.page(stream, query_id, limit=limit + 1, before=before)
    return verbs.page_of(rows, limit, "batch_id", about={"query_id": meant})


@GROUP.verb(
    "show",
    help="Show a batch: its ledger row, its source offsets, and the delivery state of its entries.",
    text=_show,
    route=verbs.Route("Show a batch.", "/{stream}/{batch_id}"),
    result=Batch,
)
def show_batch(
    store: Streams, stream: Stream, batch_id: BatchId, query_id: verbs.QueryId = None
) -> Row:
    """Return a batch's ledger row, its source offsets, and the delivery state of its entries."""
    return store.batch(stream, batch_id, query_id)


def _read(difference: Row) -> tuple[str, Row]:
    batch = difference["batch"]
    return f"{batch['stream']} batch {batch['batch_id']}", {
        "divergence": difference["divergence"]["id"]
    }


def _without_bodies(difference: Row) -> Row:
    return difference | {
        "rows": [row | {"body_then": None, "body_now": None} for row in difference["rows"]]
    }


@GROUP.verb(
    "diff",
    help="Compare a diverged replay with what was written, row by row. Exit code 3: none"
    " diverged.\n\n`now` is what the replay would have written. It has no sequence of its own; it"
    " is shown with the sequence that its key got then, or with `null`.",
    text=_show_difference,
    route=verbs.Route("Compare a diverged replay.", "/{stream}/{batch_id}/diff"),
    result=Difference,
    bodies=verbs.Bodies(_without_bodies, "entry.read", _read),
)
def show_batch_diff(
    store: Streams,
    stream: Stream,
    batch_id: BatchId,
    query_id: verbs.QueryId = None,
    divergence: Number = None,
    limit: Annotated[
        int,
        verbs.Param("", verbs.Kind.LIMIT, "Maximum number of rows.", limits=(1, 10_000)),
    ] = 100,
) -> Row:
    """Return what a replay would have written, next to what was written; 404 if none diverged."""
    return store.divergence(stream, batch_id, query_id, number=divergence, limit=limit)


@dataclass(kw_only=True)
class BatchAcceptance:
    """A diverged replay: accepted, or proposed."""

    batch: LedgerRow
    divergence: Divergence
    accepted: bool
    overtaking: Annotated[
        verbs.Count,
        verbs.Doc("New keys that are older than the newest decision of their subject."),
    ]
    proposal: UUID | None = None
    planned_by: str | None = None
    approved_by: str | None = None


def _before_accept(
    store: Streams,
    *,
    stream: str,
    batch_id: int,
    query_id: UUID | None,
    divergence: int | None,
    proposal: UUID | None,
    reissue_limit: int,
    reason: str,  # noqa: ARG001 - of the change
) -> verbs.Preview:
    acceptances = store.beside(Acceptances)
    if proposal is not None:
        row = acceptances.proposed(stream, batch_id, proposal)
    else:
        limit = min(reissue_limit, ALONE_MAX)
        row = acceptances.preview(stream, batch_id, query_id, divergence, limit)
    new = counted(row["divergence"]["new_count"], "new decision")
    question = f"Accept it? The job then writes {new}, and receivers act on them."
    shown = {"query_id": row["batch"]["query_id"], "divergence": row["divergence"]["id"]}
    return verbs.Preview(
        row, _meaning(row), None if row["needs_approval"] else question, {} if proposal else shown
    )


def _meaning(row: Row) -> verbs.Text:
    yield from _differing(row)
    divergence = row["divergence"]
    yield (
        f"\naccepted, the job writes {counted(divergence['new_count'], 'new decision')} when it"
        " brings this replay again; whatever was written then stays as it was sent"
    )
    if row["overtaking"]:
        yield (
            "WARNING older than the newest decision of the same subject:"
            f" {counted(row['overtaking'], 'new decision')}. A sink with suppress_repeats records"
            " them as overtaken, another one writes them after it"
        )
    if row["needs_approval"]:
        yield "a second person decides: without --dry-run this becomes a proposal"


def _accepted(result: Row, _: Row) -> verbs.Text:
    batch, short = result["batch"], result.get("proposal") and result["proposal"].hex[:8]
    named = f"batch {batch['batch_id']} of stream {batch['stream']}"
    if result["accepted"]:
        yield (
            f"replay {result['divergence']['id']} of {named} is accepted; start the job again"
            " with the code that brought it"
        )
        return
    apply = (
        f"holdfast batch accept --proposal {short} --reason TEXT {batch['stream']}"
        f" {batch['batch_id']}"
    )
    if result["approved_by"]:
        after = f"{result['approved_by']} approved it. Apply it with\n  {apply}"
    else:
        after = (
            f"A second person approves it with\n  holdfast proposal approve {short} --reason"
            f" TEXT\nThen apply it with\n  {apply}"
        )
    yield f"This is a proposal; {named} is not changed. {after}"


@GROUP.verb(
    "accept",
    changes=True,
    help="Accept a diverged replay: when the job brings exactly it again, its new keys are written,"
    " and what was sent before stays.\n\nShows the difference first, and asks. With more new keys"
    " than one person may accept in 24 hours, or one that is older than the newest decision of its"
    " subject, it is proposed (exit code 4); after a second person has approved it, --proposal"
    " accepts it. Exit code 3: no replay of the batch diverged.",
    text=_accepted,
    asks=_before_accept,
    least=AccessRole.ADMIN,
    route=verbs.Route("Accept a diverged replay.", "/{stream}/{batch_id}/accept"),
    body=verbs.Model("ToAccept", "A diverged replay to accept, or what was approved."),
    result=BatchAcceptance,
    ends=lambda result: ExitCode.OK if result["accepted"] else ExitCode.DEGRADED,
)
def accept_replay(
    store: Streams,
    *,
    stream: Stream,
    batch_id: BatchId,
    query_id: verbs.QueryId = None,
    divergence: Annotated[
        int | None,
        verbs.Param("The divergence's id. Default: the one that is not accepted.", verbs.Kind.ID),
    ] = None,
    proposal: Annotated[
        UUID | None,
        verbs.Param(
            "Accept what this approved proposal holds; null: accept or propose.",
            verbs.Kind.PROPOSAL,
            "Accept what a second person approved.",
            excludes="divergence",
        ),
    ] = None,
    reissue_limit: Annotated[
        int,
        verbs.Param(
            kind=verbs.Kind.SETTING,
            command_help="Number of new keys, with those of the last 24 hours, that need no"
            f" approval by a second person; at most {ALONE_MAX}.",
            option="--limit",
            env="HOLDFAST_REISSUE_LIMIT",
            limits=(0, 1000),
            command_default=ALONE_MAX,
        ),
    ],
    reason: verbs.Reason,
) -> Row:
    """Accept it; beyond what one person may accept, propose it."""
    acceptances = store.beside(Acceptances)
    if proposal is not None:
        return acceptances.apply(stream, batch_id, proposal, reason)
    limit = min(reissue_limit, ALONE_MAX)
    return acceptances.accept(stream, batch_id, query_id, divergence, reason, limit)

"""Replays: entries sent again by a plan that is reviewed before it is applied.

The surfaces plan, apply and wait for a replay by hand; what they show is here.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from typing_extensions import TypedDict

from holdfast.dispatcher.operators.common import verbs
from holdfast.dispatcher.operators.common.person import lacks_approval
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.text import display, visible
from holdfast.dispatcher.operators.common.times import FORMS
from holdfast.dispatcher.operators.dead_letters.rules import without_answer
from holdfast.dispatcher.operators.replays.rules import MEANS
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.dispatcher.operators.replays.views import (
    ENDED,
    drain_text,
    hold_reason,
    item_row,
    plan_warnings,
)
from holdfast.sink.contract.numbers import counted
from holdfast.sink.contract.states import (
    AccessRole,
    BreakerState,
    EndpointState,
    Outcome,
    ReplayKind,
    ReplayState,
    ReplayVerb,
)

GROUP = verbs.Group(
    "replay",
    help="Replays, under the original keys: plan, show, apply, follow, cancel.",
    store=Replays,
    path="/replays",
    tag="replays",
    screen="/replays",
)

_LIST = ("id", "verb", "state", "items", "about", "reason", "actor", "created_at", "finished_at")
_ITEMS = ("place", "endpoint", "subject", "sequence", "key", "kind", "outcome", "settled_at")
_ENDPOINT = ("endpoint", "items", "released", "hastened", "sent", "delivered", "failed")
_ENDPOINTS = (*_ENDPOINT, "needless", "waiting", "retrying", "in_flight", "held_up")

_ID = "As `plan` and `list` show it; the first 8 hex digits are enough."
ReplayId = Annotated[UUID, verbs.Param("The replay's id.", verbs.Kind.SHORT_ID, _ID, argument="ID")]
PlannedId = Annotated[
    UUID,
    verbs.Param("A random UUID chosen by the caller.", verbs.Kind.SHORT_ID, _ID, argument="ID"),
]

Filter = Annotated[dict[str, Any], verbs.Doc("The filter of its entries.")]


class Replay(TypedDict):
    """A replay: its plan and its state."""

    id: UUID
    verb: ReplayVerb
    state: ReplayState
    filter: Filter
    item_count: verbs.Count
    item_limit: int | None
    reason: str
    actor: str
    created_at: verbs.Time
    applied_at: verbs.Time | None
    rate_per_second: int | None
    counts: Annotated[
        dict[str, Any],
        verbs.Doc(
            "What the plan found: entries, kinds, endpoints, no_op_there (delivered with a"
            " signed receipt), outside_window, taken, overlaps, beyond_limit, drain_seconds;"
            " repeats (business actions that it may repeat), overtakes (of a reissue, by key: the"
            " subject's newest decision, if it occurred later) and needs_approval (by a second"
            " person)."
        ),
    ]
    plan_sha256: str | None
    outside_window: Annotated[
        bool, verbs.Doc("Keys that the receiver may have forgotten are sent, too.")
    ]
    person: Annotated[
        str, verbs.Doc("The person who planned it, independent of the token or login used.")
    ]
    approved_by: str | None
    approved_at: verbs.Time | None
    cancelled_by: str | None
    cancelled_at: verbs.Time | None
    finished_at: verbs.Time | None
    obstacles: Annotated[
        list[str], verbs.Doc("What would currently keep it from being sent, as sentences.")
    ]


class ListedReplay(TypedDict):
    """A replay."""

    id: UUID
    verb: ReplayVerb
    state: ReplayState
    filter: Filter
    item_count: verbs.Count
    reason: str
    actor: Annotated[str, verbs.Doc("The actor who planned it.")]
    created_at: verbs.Time
    applied_at: verbs.Time | None
    rate_per_second: int | None
    cancelled_at: verbs.Time | None
    finished_at: verbs.Time | None


class ReplayPage(TypedDict):
    """Replays, the newest first."""

    replays: list[ListedReplay]
    next_before: Annotated[
        verbs.Time | None, verbs.Doc("`before` of the next page; null if this is the last.")
    ]


class Item(TypedDict):
    """An entry of a replay at an endpoint."""

    place: int
    endpoint: str
    subject: str
    sequence: int
    written_at: verbs.Time
    key: verbs.KeyText
    new_key: Annotated[verbs.KeyText | None, verbs.Doc("The new key, for a reissue.")]
    kind: ReplayKind
    attempt: int
    due_at: verbs.Time | None
    lease_until: verbs.Time | None
    outcome: Outcome | None
    settled_at: verbs.Time | None
    detail: str | None


class ItemPage(TypedDict):
    """Items, in sending order."""

    items: list[Item]
    next_after: Annotated[
        int | None, verbs.Doc("`after` of the next page; null if this is the last.")
    ]


class Progress(TypedDict):
    """Progress of the items of an endpoint."""

    endpoint: str
    endpoint_state: EndpointState
    rate_per_second: int | None
    breaker: BreakerState
    held_until: verbs.Time | None
    items: verbs.Count
    settled: verbs.Count
    released: verbs.Count
    hastened: verbs.Count
    sent: verbs.Count
    delivered: verbs.Count
    failed: verbs.Count
    needless: verbs.Count
    in_flight: verbs.Count
    waiting: verbs.Count
    retrying: verbs.Count


class ReplayStatus(Replay):
    """A replay and its progress."""

    progress: Annotated[
        dict[str, int],
        verbs.Doc("Number of items by result over all endpoints; empty without items."),
    ]
    endpoints: list[Progress]
    drain_seconds: Annotated[
        float | None,
        verbs.Doc("Minimum remaining time, in seconds; null without a rate limit."),
    ]


class ReplayProgress(Replay):
    """A replay and its progress."""

    progress: Annotated[dict[str, int], verbs.Doc("Number of items by result.")]
    endpoints: Annotated[
        list[dict[str, Any]], verbs.Doc("Progress at each endpoint, and what holds it up.")
    ]
    drain_seconds: Annotated[verbs.Seconds | None, verbs.Doc("Minimum remaining time, in seconds.")]


def short(row: Row) -> str:
    """Return the short form of a replay's id."""
    return str(row["id"]).replace("-", "")[:8]


def approval_command(row: Row) -> str | None:
    """Return the command by which a second person approves a plan; None if that is not needed."""
    return f"holdfast replay approve {short(row)} --reason TEXT" if lacks_approval(row) else None


def about(stored: Row) -> str:
    """Return a stored filter as text.

    >>> about({"endpoint": "payouts", "states": ["dead"], "first_batch": 3, "last_batch": 3})
    'endpoint payouts, states dead, first batch 3, last batch 3'
    """
    return ", ".join(
        f"{name.replace('_', ' ')} {visible(_listed(value))}" for name, value in stored.items()
    )


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _list(page: verbs.Page, _: Row) -> verbs.Text:
    rows = [
        {
            **row,
            "id": short(row),
            "items": row["item_count"],
            "about": about(row["filter"]),
            "reason": visible(row["reason"]),
        }
        for row in page.rows
    ]
    yield verbs.Table(rows, _LIST, "Replays", ("finished_at", "actor", "created_at"))


@GROUP.verb(
    "list",
    of=verbs.List,
    help="List replays, the newest first. Exit code 3: there are none.",
    text=_list,
    route=verbs.Route("List replays."),
    rows="replays",
    result=ListedReplay,
    page=ReplayPage,
    screen=verbs.Screen("/replays", "delivery/replays.html"),
    empty="there is no replay. Nothing was changed; `holdfast replay plan` makes one.",
)
def list_replays(
    store: Replays,
    limit: verbs.Limit = 50,
    before: Annotated[
        datetime | None,
        verbs.Param(
            "Only replays created before this time.",
            verbs.Kind.TIME,
            f"Only rows created before this time: {FORMS}.",
        ),
    ] = None,
) -> verbs.Page:
    """Return replays and reissues, the newest first."""
    return verbs.page_of(store.list(limit=limit + 1, before=before), limit, "created_at")


def plan_text(row: Row, values: Row) -> verbs.Text:
    """Yield what a plan would do, where, how long it takes, and its warnings."""
    counts, actor = row["counts"], visible(row["actor"])
    yield f"replay {short(row)}: {row['state']} by {actor}: {visible(row['reason'])}"
    yield f"  about     {about(row['filter'])}"
    if row["verb"] == ReplayVerb.REDELIVER:
        kinds = [kind for kind in ReplayKind if kind in counts["kinds"]]
        yield from (f"  {line}" for line in _findings(row, kinds))
        endpoints = [
            {"endpoint": name, **{kind: by_kind.get(kind, 0) for kind in kinds}}
            for name, by_kind in counts["endpoints"].items()
        ]
        yield verbs.Table(endpoints, ("endpoint", *kinds), "At each endpoint")
    for line in plan_warnings(row, counts.get("overlaps", ())):
        yield f"note: {visible(line)}"
    yield _next(row)
    if values.get("items"):
        items = [each | {"subject": visible(each["subject"])} for each in row["items"]]
        yield verbs.Table(items, (*_ITEMS, "detail"), "Items")
        if row["next_after"] is not None:
            yield f"more rows: --after {row['next_after']}"


def _findings(row: Row, kinds: list[ReplayKind]) -> Iterator[str]:
    counts = row["counts"]
    for kind in kinds:
        yield f"{counts['kinds'][kind]:<9} {kind}: {MEANS[kind]}"
    if row["item_count"]:
        first, last = (datetime.fromisoformat(counts[each]) for each in ("oldest", "newest"))
        yield f"written   from {display(first)} to {display(last)}"
        yield "order     oldest first; within a subject by sequence"
        yield f"time      {drain_text(counts['drain_seconds'], row['rate_per_second'])}"
    if counts["no_op_there"]:
        yield (
            f"no-ops    {counts['no_op_there']} of them are already applied according to signed"
            " receipts; the receiver ignores them by their key"
        )


def _next(row: Row) -> str:
    id_ = short(row)
    match ReplayState(row["state"]):
        case ReplayState.PLANNED if not row["item_count"]:
            return (
                "nothing to do: all matching entries are already pending, or belong to"
                " another replay"
            )
        case ReplayState.PLANNED if (approve := approval_command(row)) is not None:
            return f"a second person has to approve it:\n  {approve}"
        case ReplayState.PLANNED:
            return f"nothing was sent yet. To apply it:\n  holdfast replay apply {id_}"
        case ReplayState.APPLYING:
            return f"it is running: holdfast replay status {id_}"
        case ReplayState.APPLIED | ReplayState.CANCELLED as state:
            return f"it is {state}: holdfast replay status {id_}"


@GROUP.verb(
    "show",
    help="Show a replay as it was planned; with --items, also its items.",
    text=plan_text,
    route=verbs.Route("Show a replay.", "/{id}"),
    result=Replay,
)
def show_replay(
    store: Replays,
    id: ReplayId,  # noqa: A002 - the parameter's name
    items: Annotated[bool, verbs.Param("Include its items, in order.", verbs.Kind.LOCAL)] = False,
    limit: Annotated[
        int, verbs.Param("Maximum number of rows.", verbs.Kind.LOCAL, limits=(1, 1000))
    ] = 50,
    after: Annotated[
        int,
        verbs.Param("Only items after this place.", verbs.Kind.LOCAL, limits=(0, verbs.NUMBER_MAX)),
    ] = 0,
) -> Row:
    """Return a replay as it was planned."""
    row = store.show(id)
    if not items:
        return row
    page = list_replay_items(store, id, limit, after)
    return {**row, "items": page.rows, "next_after": page.further}


def progress_text(row: Row, _: Row) -> verbs.Text:
    """Yield the progress of a replay and what holds it up."""
    done, id_ = row["progress"], short(row)
    yield f"replay {id_}: {row['state']}{_when(row)}: {visible(row['reason'])}"
    if not done:
        return
    yield (
        f"  {done['settled']} of {counted(done['items'], 'item')} done:"
        f" {done['delivered']} delivered, {done['released']} released into their lanes,"
        f" {done['hastened']} made due, {done['failed']} failed, {done['needless']} needless"
    )
    if row["state"] not in ENDED:
        yield (
            f"  {done['waiting']} wait ({done['retrying']} for a retry), {done['in_flight']} in"
            f" flight; remaining: {drain_text(row['drain_seconds'], row['rate_per_second'])}"
        )
    endpoints = [{**each, "held_up": hold_reason(each, display)} for each in row["endpoints"]]
    yield verbs.Table(endpoints, _ENDPOINTS, "At each endpoint")
    if done["failed"]:
        yield f"to see what failed and why: holdfast replay show {id_} --items --json"


def _when(row: Row) -> str:
    match ReplayState(row["state"]):
        case ReplayState.APPLYING:
            return f" since {display(row['applied_at'])}"
        case ReplayState.APPLIED:
            return f" at {display(row['finished_at'])}"
        case ReplayState.CANCELLED:
            return f" at {display(row['cancelled_at'])} by {visible(row['cancelled_by'])}"
        case ReplayState.PLANNED:
            return f" by {visible(row['actor'])}"


@GROUP.verb(
    "status",
    route=verbs.Route("Show the progress of a replay.", "/{id}/status"),
    result=ReplayStatus,
)
def show_replay_status(store: Replays, id: ReplayId) -> Row:  # noqa: A002 - the parameter's name
    """Return a replay with its progress, and what holds it up at each endpoint."""
    return store.status(id)


def _without_answer(item: Row) -> Row:
    return item | {"detail": item["detail"] and without_answer(item["detail"])}


@GROUP.verb(
    "items",
    of=verbs.List,
    route=verbs.Route("List the items of a replay.", "/{id}/items"),
    rows="items",
    result=Item,
    page=ItemPage,
    option="after",
    bodies=verbs.Bodies(_without_answer),
    empty="",
)
def list_replay_items(
    store: Replays,
    id: ReplayId,  # noqa: A002 - the parameter's name
    limit: verbs.Limit = 50,
    after: Annotated[
        int,
        verbs.Param("`next_after` of the page before this one.", limits=(0, verbs.NUMBER_MAX)),
    ] = 0,
) -> verbs.Page:
    """Return the items of a replay, in sending order."""
    store.show(id)
    rows = [item_row(each) for each in store.items(id, after=after, limit=limit + 1)]
    return verbs.page_of(rows, limit, "place")


@GROUP.verb(
    "approve",
    changes=True,
    help="Approve, as a second person, a plan that may repeat actions.\n\nNeeded for a reissue"
    " above the limit, or a replay planned with --outside-window. Review it first with `show`.",
    text=lambda row, _: [f"approved. To repeat the actions:\n  {row['apply']}"],
    least=AccessRole.ADMIN,
    route=verbs.Route("Approve a replay that another person planned.", "/{replay_id}/approve"),
    result=Replay,
)
def approve_replay(store: Replays, replay_id: PlannedId, reason: verbs.Reason) -> Row:
    """Approve, as a second person, a plan that sends keys which receivers may have forgotten."""
    store.show(replay_id)
    store.approve(replay_id, reason)
    row = store.show(replay_id)
    return {**row, "apply": f"holdfast replay apply {short(row)}"}


def _ask_cancel(store: Replays, replay_id: str) -> verbs.Question:
    row = store.show(store.find(replay_id))
    count = row["item_count"]
    entries = f"{count:,} {'entry' if count == 1 else 'entries'}"
    return verbs.Question(
        title=f"Cancel replay {short(row)}",
        button="Cancel the replay",
        back=f"/replays/{row['id']}",
        says=(
            f"Of {entries}, nothing more is sent by this replay.",
            "Requests in flight finish and are recorded; what was sent stays sent."
            if row["state"] == ReplayState.APPLYING
            else "Nothing of it was sent.",
        ),
        danger=True,
    )


def _cancelled(row: Row, _: Row) -> verbs.Done:
    return verbs.Done("Cancelled: nothing more of it is sent.", f"/replays/{row['id']}")


@GROUP.verb(
    "cancel",
    changes=True,
    help="Cancel a replay: nothing more is sent. Requests in flight finish and are recorded.",
    text=progress_text,
    least=AccessRole.OPERATOR,
    route=verbs.Route("Cancel a replay: nothing more of it is sent.", "/{replay_id}/cancel"),
    result=ReplayProgress,
    asked=verbs.Asked("/replays/{replay_id}/cancel", _ask_cancel, _cancelled),
)
def cancel_replay(store: Replays, replay_id: PlannedId, reason: verbs.Reason) -> Row:
    """Requests in flight finish and are recorded."""
    return store.cancel(replay_id, reason)

"""Entries: the decisions in the outbox and their delivery state. `cancellations` has the rest."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from typing_extensions import TypedDict

from holdfast.dispatcher.operators.common import verbs
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.text import display, visible
from holdfast.dispatcher.operators.dead_letters.rules import without_answer
from holdfast.dispatcher.operators.entries.rules import Stage
from holdfast.dispatcher.operators.entries.store import SCAN_MAX, Entries, Filter, Place
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.numbers import counted
from holdfast.sink.contract.states import DeadReason, Outcome

GROUP = verbs.Group(
    "entry",
    help="Entries: list the newest, show one, follow new ones, cancel one that has not left.",
    store=Entries,
    path="/entries",
    tag="entries",
)

_LIST = ("key", "subject", "sequence", "type", "occurred_at", "written_at", "stream", "batch_id")
_OF_DATA = ("key", "subject", "sequence", "type", "occurred_at")

_FACTS = ("subject", "sequence", "type", "occurred_at", "written_at", "priority", "traceparent")

_BATCH = ("stream", "batch_id", "query_id", "routed_at")

_DELIVERY = ("endpoint", "state", "detail", "attempts", "last_outcome")


class ListedEntry(TypedDict):
    """An entry, without its body."""

    key: verbs.KeyText
    subject: str
    sequence: Annotated[int, verbs.Doc("Counted from 1 for each subject, without gaps.")]
    type: str
    occurred_at: verbs.Time
    written_at: Annotated[verbs.Time, verbs.Doc("When its batch was written.")]
    priority: int
    batch_no: int
    subject_id: int
    stream: str
    query_id: UUID
    batch_id: int


class EntryBatch(TypedDict):
    """The batch that wrote an entry."""

    stream: str
    query_id: UUID
    batch_id: int
    batch_no: int
    written_at: verbs.Time
    routed_at: verbs.Time | None


@dataclass(kw_only=True)
class Standing:
    """Delivery state of an entry at an endpoint."""

    endpoint: str
    state: Stage
    at: Annotated[
        verbs.Time | None,
        verbs.Doc("When it was delivered, cancelled or became dead, is due, or its lease ends."),
    ]
    behind_sequence: int | None
    held_up: str | None
    attempts: verbs.Count
    last_outcome: Outcome | None
    last_tried_at: verbs.Time | None
    dead_reason: DeadReason | None = None
    dead_detail: str | None = None
    cancelled_by: str | None = None
    cancel_reason: str | None = None


class Entry(TypedDict):
    """An entry with its batch and delivery state."""

    key: verbs.KeyText
    subject_id: int
    subject: str
    sequence: int
    type: str
    occurred_at: verbs.Time
    written_at: verbs.Time
    priority: int
    traceparent: str | None
    body: Annotated[str | None, verbs.Doc("Byte for byte; null unless bodies are requested.")]
    batch: EntryBatch
    delivery: list[Standing]


def _list(page: verbs.Page, values: Row) -> verbs.Text:
    if values["data"] is not None:
        yield from _with_data(page.rows, values["show"] or [])
        return
    rows = [row | {"subject": visible(row["subject"])} for row in page.rows]
    yield verbs.Table(rows, _LIST, "Entries", ("batch_id", "stream", "written_at"))


def _note(page: verbs.Page, values: Row) -> str | None:
    if page.further is None or len(page.rows) == values["limit"]:
        return None
    return f"{SCAN_MAX} entries were scanned for this page"


def _with_data(rows: Sequence[Row], members: Sequence[str]) -> verbs.Text:
    shown = [
        {
            **{name: row[name] for name in _OF_DATA},
            # An entry's own field may have the same name.
            **{f"data.{name}": _of_data(row["data"].get(name)) for name in members},
            "subject": visible(row["subject"]),
            "delivered": ", ".join(
                f"{each['endpoint']} {each['outcome']}" for each in row["delivered"]
            ),
        }
        for row in rows
    ]
    columns = [f"data.{name}" for name in members]
    yield verbs.Table(shown, (*_OF_DATA, *columns, "delivered"), "Entries")
    outcomes = Counter(each["outcome"] for row in rows for each in row["delivered"])
    told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    waiting = sum(not row["delivered"] for row in rows)
    yield (f"{counted(len(rows), 'entry')}: {told or '0 applied'}, {waiting} waiting")


def _of_data(value: Any) -> str:
    """Return a member as `--data` compares it."""
    if value is None:
        return "-"
    return visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _member(data: str) -> tuple[str, str]:
    member, _, value = data.partition("=")
    if not member or "=" not in data:
        raise CommandError(
            "--data is NAME=VALUE. Nothing was changed.", ExitCode.USAGE, code="invalid_value"
        )
    return member, value


def _show(found: Row, _: Row) -> verbs.Text:
    yield f"entry {found['key']}"
    yield verbs.Facts({name: found[name] for name in _FACTS}, 11)
    yield verbs.Facts({name: found["batch"][name] for name in _BATCH}, 11)
    yield f"body, {counted(len(found['body'].encode()), 'byte')}:\n{visible(found['body'])}"
    if found["delivery"]:
        rows = [{**each, "detail": _detail(each)} for each in found["delivery"]]
        yield verbs.Table(rows, _DELIVERY, "Delivery")
    else:
        yield "delivery: no endpoint takes it"


def _detail(each: Row) -> str:
    at = display(each["at"])
    match Stage(each["state"]):
        case Stage.DELIVERED | Stage.DUE:
            said = at
        case Stage.DEAD:
            said = f"{at}, {each['dead_reason']}: {visible(each['dead_detail'])}"
        case Stage.CANCELLED:
            said = f"{at}, by {visible(each['cancelled_by'])}: {visible(each['cancel_reason'])}"
        case Stage.PASSED:
            said = "the lane has passed it; no delivery is recorded"
        case Stage.UNROUTED:
            said = "its batch is not routed yet"
        case Stage.SENDING:
            said = f"leased until {at}"
        case Stage.BEHIND if each["behind_sequence"] is None:
            said = "will not be sent: the endpoint no longer takes its type"
        case Stage.BEHIND:
            said = f"waits behind sequence {each['behind_sequence']}"
        case Stage.STOPPED:
            said = "its lane waits for a person"
    return said if each["held_up"] is None else f"{said}; {each['held_up']}"


DATA = (
    "Only entries whose data has this member with this value: policy_version=v2. Shows which"
    " endpoints got each, and what the receipt says."
)
SHOW = "With --data: also this member of data. May be repeated."


@GROUP.verb(
    "list",
    of=verbs.List,
    help="List entries, the newest first, without their bodies. Exit code 3: none match.",
    text=_list,
    note=_note,
    route=verbs.Route("List entries."),
    rows="entries",
    result=ListedEntry,
    page=verbs.Model("EntryPage", "Entries, the newest first."),
    screen=verbs.Screen("/entries", "decisions/entries.html"),
    empty="no entry matches. Nothing was changed; types and subjects are compared exactly, and"
    " rows that were set aside are in `holdfast quarantine list`.",
)
def list_entries(
    store: Entries,
    wanted: Filter,
    data: Annotated[str | None, verbs.Param(DATA, verbs.Kind.LOCAL)] = None,
    show: Annotated[  # noqa: ARG001 - the text shows it
        list[str] | None, verbs.Param(SHOW, verbs.Kind.LOCAL, needs="data")
    ] = None,
    limit: verbs.Limit = 50,
    before: verbs.Before = None,
) -> verbs.Page:
    """Return entries without their bodies, the newest first.

    A page scans about 100,000 entries: for a rare type it may be short or empty although
    `next_before` shows that older ones follow.
    """
    place = None if before is None else Place.of(before)
    member = None if data is None else _member(data)
    rows, older = store.newest(wanted, limit=limit, before=place, data=member)
    return verbs.Page(rows, None if older is None else str(older))


def _without_bodies(found: Row) -> Row:
    delivery = [
        each | {"dead_detail": each.get("dead_detail") and without_answer(each["dead_detail"])}
        for each in found["delivery"]
    ]
    return found | {"body": None, "delivery": delivery}


@GROUP.verb(
    "show",
    help="Show an entry: its body, its batch, and its delivery state at each endpoint.",
    text=_show,
    route=verbs.Route("Show an entry.", "/{key}"),
    result=Entry,
    bodies=verbs.Bodies(_without_bodies, "entry.read", lambda row: (row["key"], {})),
)
def show_entry(store: Entries, key: verbs.Key) -> Row:
    """Return an entry, its batch, and its delivery state at each endpoint."""
    return store.entry(key)

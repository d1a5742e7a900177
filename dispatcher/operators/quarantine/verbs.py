"""Quarantined rows: what a person can do about them.

The command and the API put rows back in ways of their own: from files, and from a list of rows. The
command also takes a filter, whose rows are compared with the sink one by one before it asks.
"""

from typing import Annotated
from uuid import UUID

from typing_extensions import TypedDict

from holdfast.dispatcher.operators.common import verbs
from holdfast.dispatcher.operators.common.overtaking import overtaken_text
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.text import shortened, visible
from holdfast.dispatcher.operators.quarantine.actions import (
    WHY,
    PutBack,
    Way,
    can_go_back,
    dismiss,
    entry_texts,
    only_entries,
    open_among,
    put_back,
    target,
)
from holdfast.dispatcher.operators.quarantine.rules import reason_text, what_helps, with_rules
from holdfast.dispatcher.operators.quarantine.store import Filter, Quarantine
from holdfast.sink.contract.states import AccessRole, QuarantineReason, QuarantineResolution

GROUP = verbs.Group(
    "quarantine",
    noun="row",
    help="Quarantined rows: list, show, export, requeue, dismiss.",
    store=Quarantine,
    path="/quarantine",
    tag="quarantine",
    screen="/quarantine",
)

_LIST = ("id", "stream", "batch_id", "reason", "detail", "quarantined_at", "resolution")
_LIST_RESOLVED = (*_LIST[:-1], *WHY)
_FACTS = (
    *("stream", "query_id", "batch_id", "batch_no", "reason", "rule", "detail", "quarantined_at"),
    *WHY,
)
_COLUMNS = ("Row", "Stream", "Reason", "Detail", "State")


class ListedRow(TypedDict):
    """A quarantined row without its text."""

    id: int
    stream: str | None
    query_id: UUID | None
    batch_id: int | None
    batch_no: int | None
    reason: QuarantineReason
    rule: Annotated[
        str | None, verbs.Doc("The rule of the job that rejected it; null for other reasons.")
    ]
    detail: str
    quarantined_at: verbs.Time
    resolution: QuarantineResolution | None
    resolved_at: verbs.Time | None
    resolved_by: str | None
    resolution_reason: str | None


class QuarantinedRow(ListedRow):
    """A quarantined row."""

    row: Annotated[str | None, verbs.Doc("Its text; null unless bodies are requested.")]


class ResolvedRow(TypedDict):
    """A row that was already resolved."""

    id: int
    resolution: QuarantineResolution
    resolved_at: verbs.Time
    resolved_by: str
    resolution_reason: str | None


class RowsDismissed(TypedDict):
    """What was dismissed, and what was already resolved."""

    dismissed: list[int]
    resolved_before: list[ResolvedRow]


def _list(page: verbs.Page, values: Row) -> verbs.Text:
    columns = _LIST if values["open"] and not values["resolved"] else _LIST_RESOLVED
    left_out = ("batch_id", "resolved_by", "resolved_at")
    texts = ("detail", "resolution_reason")
    rows = [
        row | {name: row[name] and visible(row[name]) for name in texts}
        for row in with_rules(page.rows)
    ]
    yield verbs.Table(rows, columns, "Quarantine", left_out)


@GROUP.verb(
    "list",
    of=verbs.List,
    help="List quarantined rows, the newest first, without their text. Exit code 3: none match.",
    text=_list,
    route=verbs.Route("List quarantined rows."),
    rows="rows",
    result=ListedRow,
    page=verbs.Model("RowPage", "Rows, the newest first."),
    screen=verbs.Screen("/quarantine", "decisions/quarantine.html"),
    empty="no quarantined row matches. Nothing was changed; --all includes resolved ones.",
)
def list_quarantine(
    store: Quarantine,
    filter_: Filter,
    limit: verbs.Limit = 50,
    before: verbs.BeforeId = None,
) -> verbs.Page:
    """Return rows without their text, the newest first."""
    return verbs.page_of(store.newest(filter_, limit=limit + 1, before=before), limit)


def _show(row: Row, _: Row) -> verbs.Text:
    yield f"row {row['id']}"
    yield verbs.Facts({name: row[name] for name in _FACTS}, 17)
    yield f"\n{shortened(row['row'])}"
    if row["resolution"] is None:
        yield from (f"{each.command}\n    {each.effect}" for each in what_helps(row))


@GROUP.verb(
    "show",
    help="Show a row with its text, and what can be done about it.",
    text=_show,
    route=verbs.Route("Show a quarantined row.", "/{number}"),
    result=QuarantinedRow,
    bodies=verbs.Bodies(
        lambda row: row | {"row": None}, "quarantine.read", lambda row: (target(row["id"]), {})
    ),
)
def show_quarantined(store: Quarantine, number: verbs.Number) -> Row:
    """Return one row, with its text if requested."""
    [row] = store.take([number])
    return row


GROUP.verb(
    "export",
    of=verbs.Export,
    help="Write rows with their text as JSON lines, the oldest first. Exit code 3: none match.",
    empty="no row of the quarantine matches; nothing was written.",
)(Quarantine.export)


def _rows_are(count: int) -> str:
    return f"{count:,} {'row is' if count == 1 else 'rows are'}"


def _resolved_before(rows: list[Row]) -> str:
    return f"; {_rows_are(len(rows))} already resolved" if rows else ""


def _about(rows: list[Row], before: list[Row]) -> Row:
    """Return what a question about these rows has in common with others."""
    return {
        "back": "/quarantine",
        "kept": [("id", str(row["id"])) for row in rows],
        "count": len(rows),
        "warns": [f"{_rows_are(len(before))} already resolved and not changed."] if before else [],
        "columns": _COLUMNS,
        "rows": [
            [str(row["id"]), row["stream"] or "", reason_text(row), row["detail"], "open"]
            for row in rows
        ],
    }


def _ask_dismiss(store: Quarantine, ids: list[int]) -> verbs.Question:
    rows, before = open_among(store, ids)
    what = GROUP.what(rows)
    return verbs.Question(
        title=f"Dismiss {what}",
        button=f"Dismiss {what}",
        says=(
            f"{what.capitalize()} will be dismissed without becoming an entry.",
            "Nothing is deleted: it stays in the quarantine with your reason.",
        ),
        danger=True,
        **_about(rows, before),
    )


def _after_dismissal(result: Row, values: Row) -> verbs.Done:
    before = _resolved_before(result["resolved_before"])
    text = f"{_rows_are(len(result['dismissed']))} dismissed{before}."
    return verbs.Done(text, GROUP.page(values["ids"]))


@GROUP.verb(
    "dismiss",
    changes=True,
    least=AccessRole.OPERATOR,
    route=verbs.Route("Dismiss rows that need no action.", "/dismiss"),
    body=verbs.Model("RowsToDismiss", "Rows to dismiss."),
    result=RowsDismissed,
    asked=verbs.Asked("/quarantine/dismiss", _ask_dismiss, _after_dismissal, do="dismiss"),
)
def dismiss_rows(store: Quarantine, ids: verbs.Ids, reason: verbs.Reason) -> Row:
    """They stay in the quarantine, marked as dismissed."""
    done, before = dismiss(store, list(dict.fromkeys(ids)), reason)
    return {"dismissed": done, "resolved_before": before}


def _ask_requeue(store: Quarantine, ids: list[int]) -> verbs.Question:
    rows, before = open_among(store, ids)
    only_entries(rows)
    can_go_back(rows, {row["id"]: row["row"] for row in rows})
    overtaken = [store.overtakes(row, row["row"], suppress_repeats=False) for row in rows]
    about, what = _about(rows, before), GROUP.what(rows)
    if older := len([each for each in overtaken if each]):
        about["warns"].append(
            f"{_rows_are(older)} older than the newest decision of its subject. It is refused; with"
            " the box ticked, or if that decision is of another stream, it is proposed, and a"
            " second person approves it."
        )
        about["columns"] = (*_COLUMNS, "Newer decision of the subject")
        newer = [overtaken_text(each) if each else "-" for each in overtaken]
        about["rows"] = [[*cells, n] for cells, n in zip(about["rows"], newer, strict=True)]
    return verbs.Question(
        title=f"Put {what} back",
        button=f"Put {what} back",
        says=(
            f"{what.capitalize()} will be written to the outbox by the sink, and delivered.",
            "A key that exists is not written a second time.",
            "A row that is refused again stays open.",
        ),
        option=(
            "keep_repeats",
            "Also write entries that are older than their subject's newest, or repeat its type",
        ),
        **about,
    )


def _after_requeue(result: PutBack, values: Row) -> verbs.Done:
    done, refused, waiting, before = result
    text = f"{_rows_are(len(done))} put back{_resolved_before(before)}."
    if len(done) == 1:
        text += f" Row {done[0]['id']}: {done[0]['detail']}."
    if refused:
        first = f"row {refused[0]['id']}, {refused[0]['detail']}"
        text += f" {_rows_are(len(refused))} refused again and stay open: {first}."
    if waiting:
        newer = overtaken_text(waiting[0]["overtakes"])
        text += (
            f" {_rows_are(len(waiting))} proposed, and a second person approves: row"
            f" {waiting[0]['id']}, which would overtake {newer}."
        )
    tone = "bad" if refused or waiting else "good"
    return verbs.Done(text, GROUP.page(values["ids"]), tone)


@GROUP.verb(
    "requeue",
    changes=True,
    least=AccessRole.OPERATOR,
    asked=verbs.Asked("/quarantine/requeue", _ask_requeue, _after_requeue, do="requeue"),
)
def put_back_as_stored(
    store: Quarantine,
    *,
    ids: verbs.Ids,
    keep_repeats: Annotated[bool, verbs.Param("Also write what repeats or is older.")] = False,
    dsn: verbs.Dsn,
    reason: verbs.Reason,
) -> PutBack:
    """Put rows back into the outbox as entries, as they are stored."""
    way = Way(suppress_repeats=not keep_repeats)
    return put_back(store, dsn or "", ids, reason, lambda rows: entry_texts(rows, {}), way)

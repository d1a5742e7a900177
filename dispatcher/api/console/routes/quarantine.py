"""Quarantine: rows that were set aside; put back, dismiss."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import Response

from holdfast.dispatcher.api import bodies
from holdfast.dispatcher.api.console.forms.confirm import (
    ask,
    numbers_of,
    one_of,
    reason_of,
    values,
)
from holdfast.dispatcher.api.console.forms.fields import Field, filled, whole_number
from holdfast.dispatcher.api.console.frame.guard import Acting, Form, Login, Person
from holdfast.dispatcher.api.console.frame.pages import page, redirect
from holdfast.dispatcher.api.console.frame.screens import (
    ROWS,
    acts,
    older_than,
    rows_or_reason,
    tabs,
    wants_bodies,
    which_of,
)
from holdfast.dispatcher.api.console.rendering.filters import link
from holdfast.dispatcher.api.requests import DIGITS, no_others
from holdfast.dispatcher.operators.common.overtaking import overtaken_text
from holdfast.dispatcher.operators.common.verbs import Question
from holdfast.dispatcher.operators.quarantine import actions
from holdfast.dispatcher.operators.quarantine.actions import (
    Way,
    can_go_back,
    entry_texts,
    only_entries,
    open_among,
    put_back,
    target,
)
from holdfast.dispatcher.operators.quarantine.rules import is_entry, why_not_as_kept
from holdfast.dispatcher.operators.quarantine.store import Filter, Quarantine
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import AccessRole, QuarantineReason

router = APIRouter()
strict = [Depends(no_others)]

Number = Annotated[int, Path(ge=1, le=2**63 - 1), DIGITS]
Chosen = Annotated[list[str], Query()]
Operator = Annotated[Login, Depends(Acting(AccessRole.OPERATOR))]

DISMISS, REQUEUE = "dismiss", "requeue"

COLUMNS = ("Row", "Stream", "Reason", "Detail", "State")
WITH_OVERTAKEN = (*COLUMNS, "Newer decision of the subject")


@router.get("/quarantine", dependencies=strict)
def list_rows(
    request: Request,
    person: Person,
    stream: str = "",
    reason: str = "",
    which: str = "",
    before: str = "",
) -> Response:
    """Show quarantined rows, the newest first, without their text."""
    why, below, shown = (
        one_of("reason", reason, QuarantineReason),
        whole_number("before", before),
        which_of(which),
    )
    wanted = Filter(filled(stream), why, shown == "open", shown == "resolved")
    with person.session.open(Quarantine) as store:
        rows, none_because = rows_or_reason(
            lambda: store.newest(wanted, limit=ROWS + 1, before=below)
        )
    older = older_than(rows, "id")
    asked = {"stream": stream, "reason": reason}
    kept = {**asked, "which": which}
    return page(
        request,
        person,
        "decisions/quarantine.html",
        rows=rows,
        none_because=none_because,
        which=shown,
        kept={"which": which},
        tabs=tabs("/quarantine", shown, asked),
        filtered=any(asked.values()),
        fields=(
            Field("stream", "Stream", stream),
            Field("reason", "Reason", reason, choices=values(QuarantineReason)),
        ),
        newest=link("/quarantine", **kept) if before else None,
        older=link("/quarantine", **kept, before=older) if older else None,
        acts=acts(person),
    )


@router.get("/quarantine/selected")
def ask_selected(request: Request, person: Person, do: str = "", id: Chosen = []) -> Response:  # noqa: A002, B006 - the parameter's name; it is never changed
    """Ask for confirmation to dismiss the selected rows, or to put them back."""
    ids = numbers_of(id)
    newer: dict[int, str] = {}
    with person.session.open(Quarantine) as store:
        rows, before = open_among(store, ids)
        kept = [("id", str(row["id"])) for row in rows]
        if do == REQUEUE:
            only_entries(rows)
            can_go_back(rows, {row["id"]: row["row"] for row in rows})
            for row in rows:
                over = store.overtakes(row, row["row"], suppress_repeats=False)
                newer |= {row["id"]: overtaken_text(over)} if over else {}
        elif do != DISMISS:
            raise CommandError(
                f"do must be {DISMISS} or {REQUEUE}. Nothing was changed; go back to the list.",
                ExitCode.USAGE,
                code="invalid_value",
            )
    question = _question(do, len(rows), _row(rows), kept, len(before), len(newer))
    shown = [
        (str(row["id"]), row["stream"] or "", row["reason"], row["detail"], "open") for row in rows
    ]
    if not newer:
        return ask(request, person, question, shown, COLUMNS)
    with_newer = [
        (*cells, newer.get(row["id"], "-")) for cells, row in zip(shown, rows, strict=True)
    ]
    return ask(request, person, question, with_newer, WITH_OVERTAKEN)


@router.get("/quarantine/{number}", dependencies=strict)
def show_row(request: Request, person: Person, number: Number, text: str = "") -> Response:
    """Show one row, to operators with its text on demand, which is audited."""
    with person.session.open(Quarantine) as store:
        [row] = store.take([number])
        waiting = store.proposals(limit=ROWS, target=target(number))
    asked = wants_bodies(request, person, text)
    if asked:
        bodies.note(person.session, "quarantine.read", f"quarantine {number}")
    return page(
        request,
        person,
        "decisions/quarantined.html",
        row=row if asked else bodies.without(row, "row"),
        asked=asked,
        as_entry=is_entry(row),
        not_as_kept=why_not_as_kept(row),
        proposals=waiting,
        acts=acts(person),
    )


@router.post("/quarantine/dismiss")
def dismiss(request: Request, person: Operator, form: Form) -> Response:
    """Dismiss rows that need no action."""
    reason, ids = reason_of(form), numbers_of(form.getlist("id"))
    with person.session.open(Quarantine) as store:
        done, before = actions.dismiss(store, ids, reason)
    message = f"{_some(len(done))} dismissed{_resolved_before(len(before))}."
    return redirect(request, person, _after(ids), message)


@router.post("/quarantine/requeue")
def requeue(request: Request, person: Operator, form: Form) -> Response:
    """Put rows back into the outbox as entries."""
    reason, ids = reason_of(form), numbers_of(form.getlist("id"))
    with person.session.open(Quarantine) as store:
        done, refused, waiting, before = put_back(
            store,
            request.app.state.settings.dsn,
            ids,
            reason,
            lambda rows: entry_texts(rows, {}),
            Way(suppress_repeats=not form.get("keep_repeats")),
        )
    said = f"{_some(len(done))} put back{_resolved_before(len(before))}."
    if len(done) == 1:
        said += f" Row {done[0]['id']}: {done[0]['detail']}."
    if refused:
        first = refused[0]
        said += (
            f" {_some(len(refused))} refused again and stay open: row {first['id']},"
            f" {first['detail']}."
        )
    if waiting:
        first = waiting[0]
        said += (
            f" {_some(len(waiting))} proposed, and a second person approves: row {first['id']},"
            f" which would overtake {overtaken_text(first['overtakes'])}."
        )
    tone = "bad" if refused or waiting else "good"
    return redirect(request, person, _after(ids), said, tone=tone)


def _question(
    do: str, count: int, row: str, kept: list[tuple[str, str]], resolved: int, older: int
) -> Question:
    notes = [f"{_some(resolved)} already resolved and not changed."] if resolved else []
    if older:
        notes.append(
            f"{_some(older)} older than the newest decision of its subject. It is refused; with the"
            " box ticked, or if that decision is of another stream, it is proposed, and a second"
            " person approves it."
        )
    if do == DISMISS:
        return Question(
            title=f"Dismiss {row}",
            action="/quarantine/dismiss",
            button=f"Dismiss {row}",
            back="/quarantine",
            says=(
                f"{row[0].upper()}{row[1:]} will be dismissed without becoming an entry.",
                "Nothing is deleted: it stays in the quarantine with your reason.",
            ),
            warns=notes,
            kept=kept,
            danger=True,
            count=count,
        )
    return Question(
        title=f"Put {row} back",
        action="/quarantine/requeue",
        button=f"Put {row} back",
        back="/quarantine",
        says=(
            f"{row[0].upper()}{row[1:]} will be written to the outbox by the sink, and delivered.",
            "A key that exists is not written a second time.",
            "A row that is refused again stays open.",
        ),
        warns=notes,
        kept=kept,
        option=(
            "keep_repeats",
            "Also write entries that are older than their subject's newest, or repeat its type",
        ),
        count=count,
    )


def _row(rows: list[dict[str, Any]]) -> str:
    return f"row {rows[0]['id']}" if len(rows) == 1 else f"{len(rows)} rows"


def _some(count: int) -> str:
    return f"{count:,} {'row is' if count == 1 else 'rows are'}"


def _resolved_before(count: int) -> str:
    return f"; {_some(count)} already resolved" if count else ""


def _after(ids: list[int]) -> str:
    return f"/quarantine/{ids[0]}" if len(ids) == 1 else "/quarantine"

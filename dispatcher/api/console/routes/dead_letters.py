"""Dead letters: listed, explained, planned to be sent again, or dismissed."""

from typing import Annotated, Any
from uuid import UUID, uuid4

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import Response

from holdfast.dispatcher.api import bodies
from holdfast.dispatcher.api.console.forms.confirm import (
    Question,
    ask,
    numbers_of,
    one_of,
    reason_of,
    values,
)
from holdfast.dispatcher.api.console.forms.fields import Field, given, whole
from holdfast.dispatcher.api.console.forms.replay_form import id_of, rate_of
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
from holdfast.dispatcher.api.console.frame.templating import link
from holdfast.dispatcher.api.requests import DIGITS, no_others
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.dead_letters.rules import what_helps, what_it_holds
from holdfast.dispatcher.operators.dead_letters.store import DeadLetters, Filter
from holdfast.dispatcher.operators.replays.actions import planned
from holdfast.dispatcher.operators.replays.rules import ReplayFilter, ReplayScope, few_keys_of
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import AccessRole, DeadReason

router = APIRouter()
strict = [Depends(no_others)]

Number = Annotated[int, Path(ge=1, le=2**63 - 1), DIGITS]
Chosen = Annotated[list[str], Query()]
Operator = Annotated[Login, Depends(Acting(AccessRole.OPERATOR))]

DISMISS, REDELIVER = "dismiss", "redeliver"

COLUMNS = ("No.", "Endpoint", "Subject", "Sequence", "Died of", "Holds")


@router.get("/dead", dependencies=strict)
def list_dead(
    request: Request,
    person: Person,
    endpoint: str = "",
    subject: str = "",
    reason: str = "",
    which: str = "",
    before: str = "",
) -> Response:
    """Show dead letters, the newest first."""
    why, below, shown = (
        one_of("reason", reason, DeadReason),
        whole("before", before),
        which_of(which),
    )
    wanted = Filter(given(endpoint), given(subject), why, shown == "open", shown == "resolved")
    with person.session.open(DeadLetters) as store:
        rows, none_because = rows_or_reason(
            lambda: store.newest(wanted, limit=ROWS + 1, before=below)
        )
    older = older_than(rows, "id")
    asked = {"endpoint": endpoint, "subject": subject, "reason": reason}
    kept = {**asked, "which": which}
    return page(
        request,
        person,
        "delivery/dead_letters.html",
        rows=[bodies.without_answers(row, "detail") for row in rows],
        none_because=none_because,
        which=shown,
        kept={"which": which},
        tabs=tabs("/dead", shown, asked),
        filtered=any(asked.values()),
        fields=(
            Field("endpoint", "Endpoint", endpoint),
            Field("subject", "Subject", subject, "m_482"),
            Field("reason", "Died of", reason, choices=values(DeadReason)),
        ),
        plan_all=link("/replays/new", endpoint=endpoint, subject=subject, state="dead"),
        newest=link("/dead", **kept) if before else None,
        older=link("/dead", **kept, before=older) if older else None,
        acts=acts(person),
    )


@router.get("/dead/selected")
def ask_selected(request: Request, person: Person, do: str = "", id: Chosen = []) -> Response:  # noqa: A002, B006 - the parameter's name; it is never changed
    """Ask for confirmation to plan a replay of the selected ones, or to dismiss them."""
    with person.session.open(DeadLetters) as store:
        rows = _open(store, numbers_of(id))
    kept = [("id", str(row["id"])) for row in rows]
    if do == REDELIVER:
        question = _again(rows, [*kept, ("plan", str(uuid4()))])
    elif do == DISMISS:
        question = _give_up(rows, kept)
    else:
        raise CommandError(
            f"do must be {REDELIVER} or {DISMISS}. Nothing was changed; go back to the list.",
            ExitCode.USAGE,
        )
    shown = [
        (
            str(row["id"]),
            row["endpoint"],
            row["subject"],
            str(row["sequence"]),
            row["reason"],
            what_it_holds(row),
        )
        for row in rows
    ]
    return ask(request, person, question, shown, COLUMNS)


@router.get("/dead/{number}", dependencies=strict)
def show_dead(request: Request, person: Person, number: Number, body: str = "") -> Response:
    """Show one: its reason, its attempts, what it holds up, what can be done."""
    with person.session.open(DeadLetters) as store:
        row = store.one(number)
    asked = wants_bodies(request, person, body)
    if asked:
        bodies.note(person.session, "entry.read", row["key"], dead_letter=number)
    tried = row["newest_attempts"]
    if not asked:
        tried = [bodies.without(each, "response") for each in tried]
    return page(
        request,
        person,
        "delivery/dead_letter.html",
        letter=row if asked else bodies.without_answers(row, "detail"),
        holds=what_it_holds(row),
        advice=what_helps(row),
        tried=tried,
        asked=asked,
        acts=acts(person),
    )


@router.post("/dead/plan")
def plan(request: Request, person: Operator, form: Form) -> Response:
    """Plan a replay of the selected ones. Nothing is sent before the plan is applied."""
    reason, rate, id_ = reason_of(form), rate_of(form), id_of(form.get("plan", ""))
    with person.session.open(DeadLetters) as store:
        wanted = _wanted(_open(store, numbers_of(form.getlist("id"))))
    with person.session.open(Replays) as replays:
        row = planned(replays, id_, wanted, reason=reason, rate=rate)
    return redirect(request, person, f"/replays/{_text(row)}", "Planned. Nothing is sent yet.")


@router.post("/dead/dismiss")
def dismiss(request: Request, person: Operator, form: Form) -> Response:
    """Dismiss the selected ones."""
    reason, ids = reason_of(form), numbers_of(form.getlist("id"))
    with person.session.open(DeadLetters) as store:
        done, before = store.dismiss(ids, reason, skip=bool(form.get("skip")))
    on = sum(row["lane_goes_on"] for row in done)
    said = f"{_some(len(done))} dismissed."
    said += f" {on:,} {'lane continues' if on == 1 else 'lanes continue'}." if on else ""
    said += f" {_some(len(before))} already resolved." if before else ""
    address = f"/dead/{ids[0]}" if len(ids) == 1 else "/dead"
    return redirect(request, person, address, said)


def _open(store: DeadLetters, ids: list[int]) -> list[Row]:
    """Return the given ones that are open; raises `CommandError` if none is."""
    rows = [row for row in map(store.one, ids) if row["resolution"] is None]
    if not rows:
        raise CommandError(
            "the selected dead letters are already resolved. Nothing was changed; reload the list.",
            ExitCode.NOTHING_MATCHED,
        )
    return rows


def _wanted(rows: list[Row]) -> ReplayFilter:
    names = {row["endpoint"] for row in rows}
    return ReplayFilter(
        endpoint=names.pop() if len(names) == 1 else None,
        states=(ReplayScope.DEAD,),
        keys=few_keys_of(sorted({row["key"] for row in rows})),
    )


def _again(rows: list[Row], kept: list[tuple[str, str]]) -> Question:
    names = sorted({row["endpoint"] for row in rows})
    rejected = sum(row["reason"] == DeadReason.REJECTED for row in rows)
    refused = sum(row["reason"] == DeadReason.REFUSED for row in rows)
    warns = []
    if rejected:
        warns.append(
            f"{_some(rejected)} rejected by the receiver, and will be rejected again unless the"
            " receiver was corrected."
        )
    if refused:
        warns.append(
            f"{_some(refused)} refused by Holdfast itself: correct the endpoint's address first."
        )
    if len(names) > 1:
        warns.append("The plan includes dead letters with the same key at other endpoints.")
    return Question(
        title=f"Send {_what(rows)} again",
        action="/dead/plan",
        button="Make the plan",
        back=_back(rows),
        says=(
            f"A plan for {_what(rows)} at {', '.join(names)} will be made for your review.",
            "Nothing is sent before you apply that plan.",
            (
                "Each is sent with its original key and bytes, so a receiver skips what it has"
                " already applied."
            ),
        ),
        warns=warns,
        kept=kept,
        rate=True,
        count=len(rows),
    )


def _give_up(rows: list[Row], kept: list[tuple[str, str]]) -> Question:
    holding = [row for row in rows if row["holds_lane"]]
    waiting = sum(row["waiting"] for row in holding)
    agreed = None
    if holding:
        lanes = "1 lane continues" if len(holding) == 1 else f"{len(holding)} lanes continue"
        later = "1 later entry" if waiting == 1 else f"{waiting:,} later entries"
        agreed = (
            "skip",
            f"{lanes} without them, with {later}: the receiver gets those and never these",
        )
    return Question(
        title=f"Dismiss {_what(rows)}",
        action="/dead/dismiss",
        button=f"Dismiss {_what(rows)}",
        back=_back(rows),
        says=(
            f"The receiver never gets {_what(rows)}.",
            "Nothing is deleted; a replay can still send it again.",
        ),
        kept=kept,
        agreed=agreed,
        danger=True,
        count=len(rows),
    )


def _what(rows: list[Row]) -> str:
    return f"dead letter {rows[0]['id']}" if len(rows) == 1 else f"{len(rows)} dead letters"


def _back(rows: list[Row]) -> str:
    return f"/dead/{rows[0]['id']}" if len(rows) == 1 else "/dead"


def _some(count: int) -> str:
    return f"{count:,} {'was' if count == 1 else 'were'}"


def _text(row: dict[str, Any]) -> str:
    id_: UUID = row["id"]
    return str(id_)

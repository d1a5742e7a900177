"""Redelivery of one entry: first what will happen, then the change."""

from typing import Annotated
from uuid import UUID, uuid4

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from holdfast.dispatcher.api.console.forms.confirm import ask, reason_of
from holdfast.dispatcher.api.console.frame.guard import Acting, Form, Login, Person
from holdfast.dispatcher.api.console.frame.pages import redirect
from holdfast.dispatcher.api.console.rendering.filters import clock, counted, words
from holdfast.dispatcher.api.console.routes.entries import KeyText
from holdfast.dispatcher.api.requests import no_others
from holdfast.dispatcher.operators.common.person import lacks_approval
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.verbs import Question
from holdfast.dispatcher.operators.entries.rules import key_of
from holdfast.dispatcher.operators.entries.store import Entries
from holdfast.dispatcher.operators.replays.actions import (
    applied,
    plan_of_keys,
    standing_of,
)
from holdfast.dispatcher.operators.replays.rules import MEANS
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.states import AccessRole, ReplayKind, ReplayState

router = APIRouter(dependencies=[Depends(no_others)])

Actor = Annotated[Login, Depends(Acting(AccessRole.OPERATOR))]

OUTSIDE_WINDOW = "outside_window"
COLUMNS = ("Endpoint", "What happens")


@router.get("/entries/{key}/redeliver")
def ask_why(request: Request, person: Person, key: KeyText) -> Response:
    """Ask for the reason; show the delivery state of the entry."""
    wanted = key_of(key)
    with person.session.open(Entries) as store:
        entry = store.entry(wanted)
    question = Question(
        title=f"Redeliver {entry['type']} of {entry['subject']}",
        action=f"/entries/{wanted.text}/redeliver",
        button="Show what will happen",
        back=f"/entries/{wanted.text}",
        says=(
            (
                "It is sent again with the same key and bytes. A receiver that has applied it"
                " does nothing."
            ),
            "Nothing is sent yet: a plan is made and shown to you first.",
        ),
        option=(
            OUTSIDE_WINDOW,
            "Also where the receiver may have forgotten the key, and may act on it again.",
        ),
    )
    rows = [(each["endpoint"], _stands(each)) for each in entry["delivery"]]
    return ask(request, person, question, rows, ("Endpoint", "Delivery state"))


@router.post("/entries/{key}/redeliver")
def plan(request: Request, person: Actor, key: KeyText, form: Form) -> Response:
    """Make the plan, and redirect to the page that shows it."""
    wanted, reason = key_of(key), reason_of(form)
    with person.session.open(Entries) as store:
        standing = standing_of(store, [wanted.digest])
    with person.session.open(Replays) as replays:
        made = plan_of_keys(
            replays,
            uuid4(),
            standing,
            endpoint=None,
            reason=reason,
            rate=None,
            outside_window=form.get(OUTSIDE_WINDOW) == "yes",
            alone_max=request.app.state.settings.reissue_limit,
        )
    if not made.items:
        why = "; ".join(
            f"{each['endpoint']}: {each['why']}" if each["endpoint"] else each["why"]
            for each in made.nothing
        )
        said = f"Nothing to do. {why}"
        return redirect(request, person, f"/entries/{wanted.text}", said, tone="warn")
    return redirect(
        request,
        person,
        f"/entries/{wanted.text}/redeliver/{made.row['id']}",
        "Planned. Nothing is sent yet.",
        tone="wait",
    )


@router.get("/entries/{key}/redeliver/{id_}")
def ask_whether(request: Request, person: Person, key: KeyText, id_: UUID) -> Response:
    """Show what the plan does at each endpoint, and ask for confirmation."""
    wanted = key_of(key)
    with person.session.open(Replays) as replays:
        row = _of(replays, id_, wanted)
        items = replays.items(id_, limit=row["item_count"])
    if lacks_approval(row):
        said = "Planned. A second person has to approve it before anything is sent."
        return redirect(request, person, f"/replays/{id_}", said, tone="wait")
    if row["state"] != ReplayState.PLANNED:
        return redirect(request, person, f"/replays/{id_}", f"It is already {row['state']}.")
    count = len(items)
    question = Question(
        title=f"Send {counted(count, 'delivery', 'deliveries')} again?",
        action=f"/entries/{wanted.text}/redeliver/{id_}",
        button=f"Send {counted(count, 'delivery', 'deliveries')} again",
        back=f"/entries/{wanted.text}",
        says=("With the same key and bytes. Leaving this page changes nothing.",),
        warns=_warnings(row),
        reason=False,
    )
    rows = [(each["endpoint"], MEANS[ReplayKind(each["kind"])]) for each in items]
    return ask(request, person, question, rows, COLUMNS)


@router.post("/entries/{key}/redeliver/{id_}")
def apply(request: Request, person: Actor, key: KeyText, id_: UUID) -> Response:
    """Apply the plan."""
    with person.session.open(Replays) as replays:
        _of(replays, id_, key_of(key))
        applied(replays, id_)
    return redirect(
        request, person, f"/replays/{id_}", "Started, at lower priority than live traffic."
    )


def _stands(each: Row) -> str:
    at = f", {clock(each['at'])}" if each["at"] else ""
    behind = f" sequence {each['behind_sequence']}" if each["behind_sequence"] else ""
    held = f"; {each['held_up']}" if each["held_up"] else ""
    return f"{words(each['state'])}{behind}{at}, {counted(each['attempts'], 'attempt')}{held}"


def _warnings(row: Row) -> tuple[str, ...]:
    outside = row["counts"]["outside_window"]
    kept = [f"{each[0].upper()}{each[1:]}." for each in row["obstacles"]]
    if not outside:
        return tuple(kept)
    said = (
        f"{counted(outside, 'delivery', 'deliveries')} first attempted longer ago than the"
        " receiver keeps keys: it may act on it again."
    )
    return (*kept, said if row["outside_window"] else f"{said} This plan will be refused.")


def _of(replays: Replays, id_: UUID, key: Key) -> Row:
    """Return a plan of this key alone; raises `CommandError` for any other."""
    row = replays.show(id_)
    if row["filter"].get("keys") != [key.text]:
        raise CommandError(
            "that plan is not for this entry alone. Nothing was changed; see Replays.",
            ExitCode.NOTHING_MATCHED,
            code="unknown_plan",
        )
    return row

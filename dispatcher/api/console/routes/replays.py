"""Replays: planned, looked at, applied, watched, cancelled."""

from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Annotated
from uuid import uuid4

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import Response

from dispatcher.api import bodies
from dispatcher.api.console.forms.choosing import Question, ask, reason_of, typed, values
from dispatcher.api.console.forms.forms import moment, whole
from dispatcher.api.console.forms.replay_form import Given, filter_of, id_of, limit_of, rate_of
from dispatcher.api.console.frame.guard import Acting, Form, Login, Person
from dispatcher.api.console.frame.pages import away, page
from dispatcher.api.console.frame.screens import ROWS, acts, older_than
from dispatcher.api.console.frame.templates_setup import link
from dispatcher.api.console.rendering import plans
from dispatcher.api.problems import STATUS
from dispatcher.api.routes.replays_changes import not_too_many
from dispatcher.api.strict import no_others
from dispatcher.operators.common.person import lacks_approval
from dispatcher.operators.common.session import Row
from dispatcher.operators.endpoints.store import Endpoints
from dispatcher.operators.replays.actions import applied, planned
from dispatcher.operators.replays.rules import ReplayScope
from dispatcher.operators.replays.store import Replays
from dispatcher.operators.replays.views import item_row
from dispatcher.operators.streams.store import Streams
from sink.contract.exits import CommandError, ExitCode
from sink.contract.states import AccessRole, ReplayState, ReplayVerb

OVERLAPS_AMONG_MAX = 20_000
"""Of a larger plan, what overlaps it is told as of when it was made."""

router = APIRouter(dependencies=[Depends(no_others)])

ReplayId = Annotated[str, Path(max_length=64)]
Operator = Annotated[Login, Depends(Acting(AccessRole.OPERATOR))]


@router.get("/replays")
def list_replays(request: Request, person: Person, before: str = "") -> Response:
    """Show replays and reissues, the newest first."""
    below = moment("before", before)
    with person.session.open(Replays) as store:
        rows = list(store.list(limit=ROWS + 1, before=below))
    older: datetime | None = older_than(rows, "created_at")
    return page(
        request,
        person,
        "replays.html",
        rows=[{**row, "about": plans.about(row["filter"])} for row in rows],
        newest="/replays" if before else None,
        older=link("/replays", before=older.isoformat()) if older else None,
        acts=acts(person),
    )


@router.get("/replays/new")
def ask_new(
    request: Request,
    person: Person,
    endpoint: str = "",
    subject: str = "",
    stream: str = "",
    batch: str = "",
    since: str = "",
    until: str = "",
    state: str = "",
    types: str = "",
    keys: str = "",
) -> Response:
    """Show the form of a new replay; the address may fill it in beforehand."""
    given = Given(
        endpoint=endpoint,
        subject=subject,
        stream=stream,
        batch=batch,
        since=since,
        until=until,
        state=(state,) if state else (),
        types=types,
        keys=keys,
    )
    return _form(request, person, given, None)


@router.post("/replays")
def plan(request: Request, person: Operator, form: Form) -> Response:
    """Write a plan; nothing is sent before it is applied."""
    given = Given.of(form)
    try:
        with person.session.open(Replays) as store:
            row = planned(
                store,
                id_of(given.plan),
                filter_of(given),
                reason=reason_of(form),
                rate=rate_of(given),
                outside_window=bool(given.outside_window),
                limit=limit_of(given),
                alone=request.app.state.settings.reissue_limit,
            )
    except CommandError as refused:
        return _form(request, person, given, refused)
    return away(request, person, f"/replays/{row['id']}", "Planned. Nothing is sent yet.")


@router.get("/replays/{id}")
def show_replay(request: Request, person: Person, id: ReplayId, after: str = "") -> Response:  # noqa: A002 - the parameter's name
    """Show a plan, or how far a replay has come, and a page of its items."""
    place = whole("after", after) or 0
    with person.session.open(Replays) as store:
        id_ = store.find(id)
        row = store.show(id_)
        began = row["verb"] == ReplayVerb.REDELIVER and row["state"] != ReplayState.PLANNED
        if began:
            row = store.status(id_)
        planned_only = row["state"] == ReplayState.PLANNED
        overlaps = _overlaps(store, row) if planned_only else ()
        items = [item_row(each) for each in store.items(id_, after=place, limit=ROWS + 1)]
    further = older_than(items, "place")
    rate, drain = row["rate_per_second"], row.get("drain_seconds")
    if not began:
        drain = row["counts"].get("drain_seconds")
    return page(
        request,
        person,
        "replay.html",
        replay=row,
        about=plans.about(row["filter"]),
        kinds=plans.kinds(row["counts"]),
        endpoints=[{**each, "kept_by": plans.held_up(each)} for each in row.get("endpoints", ())],
        progress=row.get("progress") or None,
        order=plans.order(row),
        lasting=plans.lasting(drain, rate, "what is left takes" if began else "it takes"),
        warnings=list(plans.warnings(row, overlaps)) if planned_only else [],
        no_ops=plans.no_ops(row["counts"]),
        items=[bodies.without_answers(each, "detail") for each in items],
        first=f"/replays/{id_}" if place else None,
        further=link(f"/replays/{id_}", after=further) if further else None,
        under_way=row["state"] == ReplayState.APPLYING,
        waits=lacks_approval(row),
        can_apply=acts(person) and plans.can_apply(row),
        can_cancel=acts(person) and plans.can_cancel(row),
    )


@router.get("/replays/{id}/apply")
def ask_apply(request: Request, person: Person, id: ReplayId) -> Response:  # noqa: A002 - the parameter's name
    """Ask whether a plan shall begin."""
    with person.session.open(Replays) as store:
        row = store.show(store.find(id))
        _still_planned(row)
        overlaps = _overlaps(store, row)
    count, counts = row["item_count"], row["counts"]
    rate = row["rate_per_second"]
    says = [f"{_items(count)} will be sent under their old keys."]
    says += [
        f"{each.entries:,} {each.name}: {each.means}."
        for each in plans.kinds(counts)
        if each.name != "nothing"
    ]
    says.append(f"It goes behind live traffic; {plans.lasting(_drain(row), rate, 'it takes')}.")
    if plans.no_ops(counts):
        says.append(f"{plans.no_ops(counts):,} of them do nothing there, by signed receipts.")
    return ask(
        request,
        person,
        Question(
            title=f"Apply replay {row['id'].hex[:8]}",
            action=f"/replays/{row['id']}/apply",
            button=f"Send {_items(count)}",
            back=f"/replays/{row['id']}",
            says=says,
            warns=list(plans.warnings(row, overlaps)),
            kept=[("count", str(count))],
            count=count,
        ),
    )


@router.post("/replays/{id}/apply")
def apply(request: Request, person: Operator, id: ReplayId, form: Form) -> Response:  # noqa: A002 - the parameter's name
    """Let dispatchers begin with a plan; a very large one is begun by an administrator."""
    reason = reason_of(form)
    with person.session.open(Replays) as store:
        id_ = store.find(id)
        count = store.show(id_)["item_count"]
        if form.get("count") != str(count):
            raise CommandError(
                "the number that was agreed to is not that of this plan. Nothing was sent; look at"
                " the plan again.",
                ExitCode.USAGE,
            )
        typed(form, count)
        not_too_many(person.session, count)
        row = applied(store, id_, reason)
    return away(
        request, person, f"/replays/{id_}", f"The replay is {row['state']}: {_items(count)}."
    )


@router.get("/replays/{id}/cancel")
def ask_cancel(request: Request, person: Person, id: ReplayId) -> Response:  # noqa: A002 - the parameter's name
    """Ask whether a replay shall end."""
    with person.session.open(Replays) as store:
        row = store.show(store.find(id))
    under_way = row["state"] == ReplayState.APPLYING
    return ask(
        request,
        person,
        Question(
            title=f"Cancel replay {row['id'].hex[:8]}",
            action=f"/replays/{row['id']}/cancel",
            button="Cancel the replay",
            back=f"/replays/{row['id']}",
            says=(
                f"Of {_items(row['item_count'])}, nothing more is sent by this replay.",
                "What is in flight comes to its end and is booked; what was sent stays sent."
                if under_way
                else "Nothing of it was sent.",
            ),
            danger=True,
        ),
    )


@router.post("/replays/{id}/cancel")
def cancel(request: Request, person: Operator, id: ReplayId, form: Form) -> Response:  # noqa: A002 - the parameter's name
    """End a replay."""
    reason = reason_of(form)
    with person.session.open(Replays) as store:
        id_ = store.find(id)
        store.cancel(id_, reason)
    return away(request, person, f"/replays/{id_}", "Cancelled: nothing more of it is sent.")


def _form(request: Request, person: Login, given: Given, refused: CommandError | None) -> Response:
    with person.session.open(Endpoints) as store:
        names = [each["name"] for each in store.endpoints()]
    with person.session.open(Streams) as store:
        streams = [each["name"] for each in store.streams()]
    status = HTTPStatus.OK
    if refused is not None:
        status = HTTPStatus(STATUS.get(refused.exit_code, HTTPStatus.CONFLICT))
    return page(
        request,
        person,
        "replay_new.html",
        status=status,
        given=given,
        fault=str(refused) if refused else None,
        plan=given.plan if refused is None and given.plan else str(uuid4()),
        endpoints=names,
        streams=streams,
        states=values(ReplayScope),
        acts=acts(person),
    )


def _overlaps(store: Replays, row: Row) -> Sequence[Row]:
    """Return which other replays have some of a plan: as of now, unless it is a very large one."""
    if row["item_count"] > OVERLAPS_AMONG_MAX:
        return list(row["counts"].get("overlaps", ()))
    return store.overlaps(row["id"])


def _still_planned(row: Row) -> None:
    if row["state"] != ReplayState.PLANNED or row["verb"] != ReplayVerb.REDELIVER:
        raise CommandError(
            f"{row['verb']} {row['id'].hex[:8]} is {row['state']}: it is not applied from here."
            " Nothing was changed; look at it again.",
        )


def _items(count: int) -> str:
    return f"{count:,} {'entry' if count == 1 else 'entries'}"


def _drain(row: Row) -> float | None:
    seconds: float | None = row["counts"].get("drain_seconds")
    return seconds

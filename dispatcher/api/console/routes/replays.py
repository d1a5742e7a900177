"""Replays: plan, show, apply, follow, cancel."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, NamedTuple
from uuid import uuid4

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import Response

from holdfast.dispatcher.api import bodies
from holdfast.dispatcher.api.console.forms.confirm import ask, reason_of, typed, values
from holdfast.dispatcher.api.console.forms.fields import whole_number
from holdfast.dispatcher.api.console.forms.replay_form import (
    ReplayFields,
    filter_of,
    id_of,
    limit_of,
    rate_of,
)
from holdfast.dispatcher.api.console.frame.guard import Acting, Form, Login, Person
from holdfast.dispatcher.api.console.frame.pages import page, redirect
from holdfast.dispatcher.api.console.frame.screens import ROWS, acts, older_than
from holdfast.dispatcher.api.console.rendering.filters import clock, link
from holdfast.dispatcher.api.problems import STATUS
from holdfast.dispatcher.api.requests import no_others
from holdfast.dispatcher.api.routes.replays import check_size
from holdfast.dispatcher.operators.common.person import lacks_approval
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.verbs import Question
from holdfast.dispatcher.operators.endpoints.store import Endpoints
from holdfast.dispatcher.operators.replays.actions import applied, planned
from holdfast.dispatcher.operators.replays.rules import MEANS, ReplayScope
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.dispatcher.operators.replays.views import (
    ENDED,
    drain_text,
    hold_reason,
    item_row,
    plan_warnings,
)
from holdfast.dispatcher.operators.streams.store import Streams
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import AccessRole, ReplayKind, ReplayState, ReplayVerb


class Kind(NamedTuple):
    """Entries of a plan that are handled in the same way."""

    name: str
    entries: int
    means: str
    at: dict[str, int]
    """Their number by endpoint."""


def kinds(counts: Row) -> list[Kind]:
    """Return the kinds of a plan, in the order of `ReplayKind`."""
    at = counts.get("endpoints", {})
    return [
        Kind(
            kind.value,
            counts["kinds"][kind],
            MEANS[kind],
            {name: counts_of[kind] for name, counts_of in at.items() if kind in counts_of},
        )
        for kind in ReplayKind
        if kind in counts["kinds"]
    ]


def order(row: Row) -> str | None:
    """Return the order of the items, and the time range in which they were written."""
    counts = row["counts"]
    if not row["item_count"] or not counts.get("oldest"):
        return None
    first, last = (clock(datetime.fromisoformat(counts[each])) for each in ("oldest", "newest"))
    return (
        "oldest first, within a subject by sequence, at lower priority than live traffic."
        f" Written from {first} to {last}."
    )


def warnings(row: dict[str, Any], overlaps: Iterable[dict[str, Any]]) -> list[str]:
    """Return what a person must know before a plan is applied, as sentences."""
    return [f"{each[0].upper()}{each[1:]}." for each in plan_warnings(row, overlaps)]


def no_ops(counts: Row) -> int:
    """Return how many entries the receiver has already applied, according to signed receipts."""
    return int(counts.get("no_op_there", 0))


def can_apply(row: Row) -> bool:
    """Return whether the plan can be applied from the console now."""
    return (
        row["verb"] == ReplayVerb.REDELIVER
        and row["state"] == ReplayState.PLANNED
        and row["item_count"] > 0
        and (row["outside_window"] or not row["counts"].get("outside_window"))
        and not lacks_approval(row)
    )


def can_cancel(row: Row) -> bool:
    """Return whether the replay can still be cancelled."""
    return row["state"] not in ENDED


OVERLAPS_AMONG_MAX = 20_000
"""For a larger plan, overlaps are those at the time when it was made."""

router = APIRouter(dependencies=[Depends(no_others)])

ReplayId = Annotated[str, Path(max_length=64)]
Operator = Annotated[Login, Depends(Acting(AccessRole.OPERATOR))]


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
    """Show the form of a new replay. Query parameters prefill it."""
    fields = ReplayFields(
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
    return _form(request, person, fields, None)


@router.post("/replays")
def plan(request: Request, person: Operator, form: Form) -> Response:
    """Store a plan. Nothing is sent before it is applied."""
    fields = ReplayFields.of(form)
    try:
        with person.session.open(Replays) as store:
            row = planned(
                store,
                id_of(fields.plan),
                filter_of(fields),
                reason=reason_of(form),
                rate=rate_of(fields),
                outside_window=bool(fields.outside_window),
                limit=limit_of(fields),
                alone_max=request.app.state.settings.reissue_limit,
            )
    except CommandError as refused:
        return _form(request, person, fields, refused)
    return redirect(request, person, f"/replays/{row['id']}", "Planned. Nothing is sent yet.")


@router.get("/replays/{id}")
def show_replay(request: Request, person: Person, id: ReplayId, after: str = "") -> Response:  # noqa: A002 - the parameter's name
    """Show a plan or the progress of a replay, and a page of its items."""
    place = whole_number("after", after) or 0
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
        "delivery/replay.html",
        replay=row,
        kinds=kinds(row["counts"]),
        endpoints=[
            {**each, "kept_by": hold_reason(each, clock)} for each in row.get("endpoints", ())
        ],
        progress=row.get("progress") or None,
        order=order(row),
        duration=drain_text(drain, rate),
        warnings=warnings(row, overlaps) if planned_only else [],
        no_ops=no_ops(row["counts"]),
        items=[bodies.without_answers(each, "detail") for each in items],
        first=f"/replays/{id_}" if place else None,
        further=link(f"/replays/{id_}", after=further) if further else None,
        under_way=row["state"] == ReplayState.APPLYING,
        waits=lacks_approval(row),
        can_apply=acts(person) and can_apply(row),
        can_cancel=acts(person) and can_cancel(row),
    )


@router.get("/replays/{id}/apply")
def ask_apply(request: Request, person: Person, id: ReplayId) -> Response:  # noqa: A002 - the parameter's name
    """Ask for confirmation to apply a plan."""
    with person.session.open(Replays) as store:
        row = store.show(store.find(id))
        _still_planned(row)
        overlaps = _overlaps(store, row)
    count, counts = row["item_count"], row["counts"]
    rate = row["rate_per_second"]
    says = [f"{_items(count)} will be sent under their original keys."]
    says += [
        f"{each.entries:,} {each.name}: {each.means}."
        for each in kinds(counts)
        if each.name != "nothing"
    ]
    says.append(
        f"It runs at lower priority than live traffic. Duration: {drain_text(_drain(row), rate)}."
    )
    if no_ops(counts):
        says.append(
            f"{no_ops(counts):,} of them were already applied, according to signed receipts."
        )
    return ask(
        request,
        person,
        Question(
            title=f"Apply replay {row['id'].hex[:8]}",
            action=f"/replays/{row['id']}/apply",
            button=f"Send {_items(count)}",
            back=f"/replays/{row['id']}",
            says=says,
            warns=warnings(row, overlaps),
            kept=[("count", str(count))],
            count=count,
        ),
    )


@router.post("/replays/{id}/apply")
def apply(request: Request, person: Operator, id: ReplayId, form: Form) -> Response:  # noqa: A002 - the parameter's name
    """Apply a plan. A very large one must be applied by an administrator."""
    reason = reason_of(form)
    with person.session.open(Replays) as store:
        id_ = store.find(id)
        count = store.show(id_)["item_count"]
        if form.get("count") != str(count):
            raise CommandError(
                "the confirmed number is not that of this plan. Nothing was sent; review the"
                " plan again.",
                ExitCode.USAGE,
                code="confirmation_required",
            )
        typed(form, count)
        check_size(person.session, count)
        row = applied(store, id_, reason)
    return redirect(
        request, person, f"/replays/{id_}", f"The replay is {row['state']}: {_items(count)}."
    )


def _form(
    request: Request, person: Login, fields: ReplayFields, refused: CommandError | None
) -> Response:
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
        "delivery/replay_new.html",
        status=status,
        fields=fields,
        fault=str(refused) if refused else None,
        plan=fields.plan if refused is None and fields.plan else str(uuid4()),
        endpoints=names,
        streams=streams,
        states=values(ReplayScope),
        acts=acts(person),
    )


def _overlaps(store: Replays, row: Row) -> Sequence[Row]:
    """Return other replays that overlap a plan: currently, unless the plan is very large."""
    if row["item_count"] > OVERLAPS_AMONG_MAX:
        return list(row["counts"].get("overlaps", ()))
    return store.overlaps(row["id"])


def _still_planned(row: Row) -> None:
    if row["state"] != ReplayState.PLANNED or row["verb"] != ReplayVerb.REDELIVER:
        raise CommandError(
            f"{row['verb']} {row['id'].hex[:8]} is {row['state']}: it cannot be applied here."
            " Nothing was changed; reload it.",
            code="replay_not_open",
        )


def _items(count: int) -> str:
    return f"{count:,} {'entry' if count == 1 else 'entries'}"


def _drain(row: Row) -> float | None:
    seconds: float | None = row["counts"].get("drain_seconds")
    return seconds

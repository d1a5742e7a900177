"""Replays: planned under an id that the caller made, then applied or cancelled.

A request that is repeated, because its answer was lost, changes nothing twice: the id names the
plan, and a plan that has begun has begun.
"""

from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Request
from pydantic import Field
from starlette.exceptions import HTTPException

from dispatcher.api.access import Admin, Operator, Session
from dispatcher.api.models import Because, Given, Keys, Reason
from dispatcher.api.paging import NUMBER_MAX, Moment, Text
from dispatcher.api.replay_shapes import Replay, ReplayProgress
from dispatcher.operators.replays.actions import applied, planned
from dispatcher.operators.replays.rules import ReplayFilter, ReplayScope, keys_of
from dispatcher.operators.replays.store import Replays
from sink.contract.states import AccessRole

router = APIRouter(prefix="/replays", tags=["replays"])

ITEMS_ALONE_MAX = 100_000
"""A plan of more items is applied by an administrator."""

PlanId = Annotated[UUID, Path(description="Made by the caller, a random UUID.")]
Batch = Annotated[int, Field(ge=0, le=NUMBER_MAX)]
Rate = Annotated[
    int,
    Field(ge=1, le=1_000_000, description="Entries a second at most, over all dispatchers."),
]
OutsideWindow = Annotated[
    bool,
    Field(description="Send also what the receiver may have forgotten: it may act on it again."),
]


class Wanted(Given):
    """Which entries; all of what is said holds for each. An empty one is refused."""

    endpoint: Text | None = None
    subject: Text | None = None
    stream: Text | None = None
    first_batch: Batch | None = None
    last_batch: Batch | None = None
    since: Annotated[Moment, Field(strict=False)] | None = None
    until: Annotated[Moment, Field(strict=False)] | None = None
    states: list[Annotated[ReplayScope, Field(strict=False)]] = Field([], max_length=3)
    types: list[Text] = Field([], max_length=100)
    keys: Keys | None = None

    def filter(self) -> ReplayFilter:
        """Return it as the store takes it."""
        return ReplayFilter(
            endpoint=self.endpoint,
            subject=self.subject,
            stream=self.stream,
            first_batch=self.first_batch,
            last_batch=self.last_batch,
            since=self.since,
            until=self.until,
            states=tuple(dict.fromkeys(self.states)),
            types=tuple(dict.fromkeys(self.types)),
            keys=keys_of(self.keys or ()),
        )


class NewReplay(Given):
    """A plan to be made; nothing is sent by it."""

    filter: Wanted
    rate: Rate | None = None
    limit: int | None = Field(
        None, ge=1, le=NUMBER_MAX, description="Only the first so many, the oldest."
    )
    outside_window: OutsideWindow = False
    reason: Reason


@router.put("/{replay_id}", summary="Plan to send entries again, under their old keys.")
def plan_replay(request: Request, session: Operator, replay_id: PlanId, given: NewReplay) -> Replay:
    """Find what would be sent, and write it down. The same request again returns the same plan."""
    with session.open(Replays) as store:
        row = planned(
            store,
            replay_id,
            given.filter.filter(),
            reason=given.reason,
            rate=given.rate,
            outside_window=given.outside_window,
            limit=given.limit,
            alone=request.app.state.settings.reissue_limit,
        )
    return Replay.model_validate(row)


@router.post("/{replay_id}/apply", summary="Let the dispatchers do what was planned.")
def apply_replay(session: Operator, replay_id: PlanId, given: Because) -> ReplayProgress:
    """Begin, unless it is no longer as it was planned (409). Once more changes nothing."""
    with session.open(Replays) as store:
        not_too_many(session, store.show(replay_id)["item_count"])
        return ReplayProgress.model_validate(applied(store, replay_id, given.reason))


@router.post("/{replay_id}/approve", summary="Approve a replay that another person planned.")
def approve_replay(session: Admin, replay_id: PlanId, given: Because) -> Replay:
    """Agree as a second person to one that sends keys which receivers may have forgotten."""
    with session.open(Replays) as store:
        store.show(replay_id)
        store.approve(replay_id, given.reason)
        return Replay.model_validate(store.show(replay_id))


@router.post("/{replay_id}/cancel", summary="End a replay: nothing more of it is sent.")
def cancel_replay(session: Operator, replay_id: PlanId, given: Because) -> ReplayProgress:
    """What is in flight ends and is booked."""
    with session.open(Replays) as store:
        return ReplayProgress.model_validate(store.cancel(replay_id, given.reason))


def not_too_many(session: Session, items: int) -> None:
    """Raise 403 where a plan is too large for one who is no administrator."""
    if items > ITEMS_ALONE_MAX and not session.may(AccessRole.ADMIN):
        raise HTTPException(
            HTTPStatus.FORBIDDEN,
            f"a plan of {items:,} items is applied by an administrator: more than"
            f" {ITEMS_ALONE_MAX:,}. Nothing was sent; ask one, or plan less.",
            {"WWW-Authenticate": 'Bearer error="insufficient_scope"'},
        )

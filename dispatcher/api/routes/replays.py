"""Replays and redeliveries: planned, applied, followed, cancelled.

The caller chooses the id of a plan, so a repeated request changes nothing twice: the plan is
again returned, and an applied plan stays applied.
"""

from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Request
from pydantic import Field
from starlette.exceptions import HTTPException

from holdfast.dispatcher.api import verbs
from holdfast.dispatcher.api.access import Operator, Session
from holdfast.dispatcher.api.requests import (
    NUMBER_MAX,
    Because,
    Keys,
    Moment,
    Rate,
    Reason,
    RequestBody,
    Text,
)
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.replays.actions import (
    applied,
    planned,
)
from holdfast.dispatcher.operators.replays.redelivery import OUTSIDE_WINDOW
from holdfast.dispatcher.operators.replays.rules import (
    ReplayFilter,
    ReplayScope,
    keys_of,
)
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.dispatcher.operators.replays.verbs import GROUP, Replay, ReplayProgress
from holdfast.sink.contract.states import AccessRole

router = APIRouter(prefix=GROUP.path, tags=[GROUP.tag])

for word in ("list", "show", "status", "items"):
    verbs.add(router, GROUP[word])

ITEMS_ALONE_MAX = 100_000
"""A plan with more items must be applied by an administrator."""

PlanId = Annotated[UUID, Path(description="A random UUID chosen by the caller.")]

Batch = Annotated[int, Field(ge=0, le=NUMBER_MAX)]


class Wanted(RequestBody):
    """A filter of entries; all given conditions apply. An empty filter is refused."""

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
        """Return the filter that the store takes."""
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


class NewReplay(RequestBody):
    """A plan to make. Nothing is sent by it."""

    filter: Wanted
    rate: Rate | None = None
    limit: int | None = Field(
        None, ge=1, le=NUMBER_MAX, description="Maximum number of entries, the oldest first."
    )
    outside_window: Annotated[bool, Field(description=OUTSIDE_WINDOW)] = False
    reason: Reason


@router.put(
    "/{replay_id}",
    summary="Plan to send entries again under their original keys.",
    response_model=Replay,
)
def plan_replay(request: Request, session: Operator, replay_id: PlanId, given: NewReplay) -> Row:
    """Find what would be sent, and store it as a plan. Idempotent: the same request returns the
    same plan.
    """
    with session.open(Replays) as store:
        return planned(
            store,
            replay_id,
            given.filter.filter(),
            reason=given.reason,
            rate=given.rate,
            outside_window=given.outside_window,
            limit=given.limit,
            alone_max=request.app.state.settings.reissue_limit,
        )


@router.post(
    "/{replay_id}/apply",
    summary="Apply a plan: the dispatchers send it.",
    response_model=ReplayProgress,
)
def apply_replay(session: Operator, replay_id: PlanId, given: Because) -> Row:
    """Start it; 409 if the plan is outdated. Idempotent."""
    with session.open(Replays) as store:
        check_size(session, store.show(replay_id)["item_count"])
        return applied(store, replay_id, given.reason)


for word in ("approve", "cancel"):
    verbs.add(router, GROUP[word])


def check_size(session: Session, items: int) -> None:
    """Raise 403 if a plan is too large to be applied by anybody but an administrator."""
    if items > ITEMS_ALONE_MAX and not session.may(AccessRole.ADMIN):
        raise HTTPException(
            HTTPStatus.FORBIDDEN,
            f"a plan of {items:,} items, more than {ITEMS_ALONE_MAX:,}, must be applied by an"
            " administrator. Nothing was sent; ask one, or make a smaller plan.",
            {"WWW-Authenticate": 'Bearer error="insufficient_scope"'},
        )

"""Single entries sent again: the same key, the same bytes."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Request
from pydantic import Field

from dispatcher.api.access import Operator
from dispatcher.api.models import Given, Keys, Reason
from dispatcher.api.paging import Text
from dispatcher.api.replay_shapes import ReplayProgress
from dispatcher.api.routes.replays_changes import OutsideWindow, Rate
from dispatcher.api.shapes import Shown
from dispatcher.operators.common.person import lacks_approval
from dispatcher.operators.entries.store import Entries
from dispatcher.operators.replays.actions import (
    NOT_APPLIED,
    NOTHING_TO_DO,
    applied,
    plan_of_keys,
    redelivered_before,
    standing_of,
)
from dispatcher.operators.replays.rules import few_keys_of
from dispatcher.operators.replays.store import Replays
from sink.contract.exits import CommandError
from sink.contract.states import ReplayKind

router = APIRouter(prefix="/redeliveries", tags=["replays"])


class NewRedelivery(Given):
    """Entries to be sent again now."""

    keys: Keys
    endpoint: Text | None = Field(None, description="Only there; where each stands, if none.")
    rate: Rate | None = None
    outside_window: OutsideWindow = False
    reason: Reason


class RedeliveredItem(Shown):
    """An entry at an endpoint, and what becomes of it."""

    key: str
    subject: str
    endpoint: str
    kind: ReplayKind
    what_happens: str


class LeftAlone(Shown):
    """An entry at an endpoint that nothing is done about."""

    key: str
    endpoint: str | None
    why: str


class RedeliveryAnswer(Shown):
    """The replay that was made of the keys; null where there is nothing to do."""

    replay: ReplayProgress | None
    items: list[RedeliveredItem]
    nothing: list[LeftAlone]
    needs_approval: bool = Field(
        description="Nothing is sent: an administrator, not its planner, has to approve the replay,"
        " and then somebody applies it."
    )


@router.put("/{replay_id}", summary="Send entries again, under their old keys.")
def redeliver(
    request: Request,
    session: Operator,
    replay_id: Annotated[UUID, Path(description="Of the replay; made by the caller, random.")],
    given: NewRedelivery,
) -> RedeliveryAnswer:
    """Plan and apply these keys. The same request again changes nothing."""
    wanted = few_keys_of(given.keys)
    with session.open(Entries) as entries:
        standing = standing_of(entries, wanted)
    with session.open(Replays) as store:
        plan = plan_of_keys(
            store,
            replay_id,
            standing,
            endpoint=given.endpoint,
            reason=given.reason,
            rate=given.rate,
            outside_window=given.outside_window,
            alone=request.app.state.settings.reissue_limit,
        )
        waits = lacks_approval(plan.row)
        if not plan.items:
            if not redelivered_before(plan):
                store.cancel(replay_id, NOTHING_TO_DO)
            shown = None
        elif waits:
            shown = store.status(replay_id)
        else:
            try:
                shown = applied(store, replay_id)
            except CommandError:
                if not redelivered_before(plan):
                    store.cancel(replay_id, NOT_APPLIED)
                raise
    return RedeliveryAnswer.model_validate(
        {
            "replay": shown,
            "items": plan.items,
            "nothing": plan.nothing,
            "needs_approval": waits and shown is not None,
        }
    )

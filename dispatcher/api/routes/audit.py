"""The audit trail: what people did, and notable actions of dispatchers."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from holdfast.dispatcher.api.access import Viewer
from holdfast.dispatcher.api.requests import Limit, NumberBefore, Text, Times
from holdfast.dispatcher.api.responses import Json, PagedByNumber, ResponseModel, Time
from holdfast.dispatcher.operators.audit.store import Audit, WantedActions

router = APIRouter(prefix="/audit", tags=["audit"])


class Action(ResponseModel):
    """An action."""

    id: int
    acted_at: Time
    actor: str = Field(description="A login name, or `token NAME`.")
    action: str = Field(description="Such as `endpoint.pause`.")
    target: str
    reason: str
    detail: Json


class ActionPage(PagedByNumber):
    """Actions, the newest first."""

    actions: list[Action]


@router.get("", summary="List actions.")
def list_actions(
    session: Viewer,
    times: Times,
    actor: Annotated[Text | None, Query(description="Only actions of this actor.")] = None,
    action: Annotated[
        Text | None,
        Query(description="`endpoint.add`, or `endpoint` for all actions that begin with it."),
    ] = None,
    target: Annotated[
        Text | None, Query(description="Only actions on this target, as the trail names it.")
    ] = None,
    limit: Limit = 50,
    before: NumberBefore | None = None,
) -> ActionPage:
    """Return actions, the newest first."""
    wanted = WantedActions(actor, action, target, times.since, times.until)
    with session.open(Audit) as store:
        rows, older = store.actions(wanted, limit=limit, before=before)
    return ActionPage.model_validate({"actions": rows, "next_before": older})

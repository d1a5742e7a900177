"""The audit trail: what people did, and what a dispatcher did that people should know of."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from dispatcher.api.access import Viewer
from dispatcher.api.requests import Limit, NumberBefore, Text, Times
from dispatcher.api.responses import Json, PagedByNumber, ResponseModel, Time
from dispatcher.operators.audit.store import Audit, WantedActions

router = APIRouter(prefix="/audit", tags=["audit"])


class Action(ResponseModel):
    """Something that was done."""

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


@router.get("", summary="List what was done.")
def list_actions(
    session: Viewer,
    times: Times,
    actor: Annotated[Text | None, Query(description="Only by this one.")] = None,
    action: Annotated[
        Text | None, Query(description="`endpoint.add`, or `endpoint` for all that begin so.")
    ] = None,
    target: Annotated[
        Text | None, Query(description="Only on this, as the trail names it.")
    ] = None,
    limit: Limit = 50,
    before: NumberBefore | None = None,
) -> ActionPage:
    """Return what was done, the newest first."""
    wanted = WantedActions(actor, action, target, times.since, times.until)
    with session.open(Audit) as store:
        rows, older = store.actions(wanted, limit=limit, before=before)
    return ActionPage.model_validate({"actions": rows, "next_before": older})

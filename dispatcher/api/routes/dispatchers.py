"""Dispatchers: those that run, and those that died at their work."""

from fastapi import APIRouter
from pydantic import Field

from dispatcher.api.access import Viewer
from dispatcher.api.responses import ResponseModel, Seconds
from dispatcher.api.routes.overview import LivingDispatcher
from dispatcher.operators.dispatchers.store import Dispatchers

router = APIRouter(prefix="/dispatchers", tags=["dispatchers"])


class Instance(LivingDispatcher):
    """A dispatcher that was never seen to end."""

    heartbeat_age_seconds: Seconds
    alive: bool = Field(description="Heard of within the last minute.")


class InstanceList(ResponseModel):
    """Every dispatcher, the one that was heard of last first; 1,000 at most."""

    dispatchers: list[Instance]


@router.get("", summary="List dispatchers.")
def list_dispatchers(session: Viewer) -> InstanceList:
    """Return every dispatcher, those that died at their work too."""
    with session.open(Dispatchers) as store:
        return InstanceList.model_validate({"dispatchers": store.instances()})

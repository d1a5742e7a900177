"""Dispatcher processes, running and crashed."""

from fastapi import APIRouter
from pydantic import Field

from holdfast.dispatcher.api.access import Viewer
from holdfast.dispatcher.api.responses import OnePage, Seconds
from holdfast.dispatcher.api.routes.overview import LivingDispatcher
from holdfast.dispatcher.operators.dispatchers.store import Dispatchers

router = APIRouter(prefix="/dispatchers", tags=["dispatchers"])


class Instance(LivingDispatcher):
    """A dispatcher that did not stop normally."""

    heartbeat_age_seconds: Seconds
    alive: bool = Field(
        description="Its last heartbeat is less than a minute old, or was when the server became"
        " read-only."
    )


class InstanceList(OnePage):
    """Every dispatcher, the most recent heartbeat first; at most 1,000."""

    dispatchers: list[Instance]


@router.get("", summary="List dispatchers.")
def list_dispatchers(session: Viewer) -> InstanceList:
    """Return every dispatcher, including those that crashed."""
    with session.open(Dispatchers) as store:
        return InstanceList.model_validate({"dispatchers": store.instances()})

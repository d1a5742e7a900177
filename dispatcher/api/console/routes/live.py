"""What live pages listen to: one server-sent event a request.

The browser asks again by itself after `retry`. No stream stays open, so none has to be bounded,
watched for the end of its login, or waited for when the server stops.
"""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from dispatcher.api.console.frame.guard import LoginNeededError, person
from dispatcher.api.console.frame.live import AWAY, TICK_SECONDS, live_of
from dispatcher.shared.errors import StoreUnavailableError

router = APIRouter()

CONTENT_TYPE = "text/event-stream"


@router.get("/live")
def live(request: Request) -> Response:
    """Say what is to be seen now, or that the login is over; another status would end it all."""
    try:
        person(request)
    except LoginNeededError:
        return _event("over", "the login ended")
    except StoreUnavailableError:
        return _event("now", AWAY)
    return _event("now", live_of(request.app).now())


def _event(name: str, data: str) -> Response:
    text = f"retry: {TICK_SECONDS * 1000:.0f}\nevent: {name}\ndata: {data}\n\n"
    return Response(text, media_type=CONTENT_TYPE)

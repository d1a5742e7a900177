"""Errors as pages for browsers."""

import inspect
import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from holdfast.dispatcher.api.console.frame.guard import Login, LoginNeededError, person
from holdfast.dispatcher.api.console.frame.pages import page
from holdfast.dispatcher.api.problems import MEDIA_TYPE, OURS
from holdfast.dispatcher.shared.errors import StoreUnavailableError
from holdfast.sink.contract.exits import CommandError

OTHERS = ("/api/", "/openapi.json", "/healthz", "/metrics")
"""Paths of programs, which get problems as JSON."""

HEADERS_OF_JSON = frozenset({"content-length", "content-type"})

NO_PAGE = (
    "there is no such page. Nothing was changed; choose a page from the menu, or search for a"
    " key or a subject."
)

Handler = Callable[[Request, Any], Any]


def install(app: FastAPI) -> None:
    """Render the problems of `app` as pages for browsers."""
    for error, handler in list(app.exception_handlers.items()):
        if isinstance(error, type) and handler.__module__ == "holdfast.dispatcher.api.problems":
            app.add_exception_handler(error, _drawn(handler))


def _drawn(handler: Handler) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(request: Request, error: Exception) -> Response:
        answered = handler(request, error)
        response: Response = await answered if inspect.isawaitable(answered) else answered
        if request.url.path.startswith(OTHERS) or response.media_type != MEDIA_TYPE:
            return response
        if response.status_code < HTTPStatus.BAD_REQUEST:
            return response
        problem = json.loads(bytes(response.body))
        if problem["detail"] == OURS[HTTPStatus.NOT_FOUND]:
            problem["detail"] = NO_PAGE
        who = await _who(request, response.status_code)
        headers = {k: v for k, v in response.headers.items() if k not in HEADERS_OF_JSON}
        return page(
            request,
            who,
            "frame/error.html",
            status=response.status_code,
            headers=headers,
            problem=problem,
        )

    return answer


async def _who(request: Request, status: int) -> Login | None:
    """Return the login, so that the page has its menu; None if it cannot be determined."""
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS:
        return None
    try:
        return await run_in_threadpool(person, request)
    except (LoginNeededError, HTTPException, StoreUnavailableError, CommandError):
        return None

"""Rendering of pages, and the message of the last action (flash)."""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.status import HTTP_303_SEE_OTHER

from holdfast.dispatcher.api.console.frame.templating import environment

if TYPE_CHECKING:
    from holdfast.dispatcher.api.console.frame.guard import Login

FLASH = "holdfast_flash"
FLASH_SECONDS = 60
FLASH_CHARACTERS_MAX = 600
THEME = "holdfast_theme"
ZONE = "holdfast_zone"
THEMES = ("dark", "light")


def page(
    request: Request,
    person: "Login | None",
    template: str,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **context: Any,
) -> HTMLResponse:
    """Render a template for `person`; None before the login.

    Every template gets `request`, `person`, `path`, `here` (the path with its query), `theme`,
    `zone` and `flash` in addition to `context`.
    """
    theme = request.cookies.get(THEME, "")
    query = request.url.query
    flash = _flash(request, person)
    text = (
        environment()
        .get_template(template)
        .render(
            request=request,
            person=person,
            path=request.url.path,
            here=f"{request.url.path}?{query}" if query else request.url.path,
            theme=theme if theme in THEMES else "auto",
            zone="local" if request.cookies.get(ZONE) == "local" else "utc",
            flash=flash,
            **context,
        )
    )
    answer = HTMLResponse(text, status, dict(headers or {}))
    if FLASH in request.cookies:
        answer.delete_cookie(FLASH, path="/", httponly=True, samesite="strict")
    return answer


def redirect(
    request: Request, person: "Login", address: str, message: str, *, tone: str = "good"
) -> Response:
    """Redirect (303) to `address` after a change; `message` is shown there once."""
    answer = RedirectResponse(address, HTTP_303_SEE_OTHER)
    text = json.dumps([tone, message[:FLASH_CHARACTERS_MAX]])
    content = base64.urlsafe_b64encode(text.encode()).decode()
    answer.set_cookie(
        FLASH,
        f"{_mark(person, content)}.{content}",
        max_age=FLASH_SECONDS,
        path="/",
        secure=request.app.state.settings.behind_proxy,
        httponly=True,
        samesite="strict",
    )
    return answer


def _flash(request: Request, person: "Login | None") -> tuple[str, str] | None:
    """Return the tone and the text of the flash message, if it is signed for this person."""
    mark, _, content = request.cookies.get(FLASH, "").partition(".")
    if person is None or not hmac.compare_digest(
        _mark(person, content).encode(), mark.encode(errors="replace")
    ):
        return None
    tone, message = json.loads(base64.urlsafe_b64decode(content))
    return tone, message


def _mark(person: "Login", content: str) -> str:
    return hmac.new(person.csrf.encode(), content.encode(), hashlib.sha256).hexdigest()

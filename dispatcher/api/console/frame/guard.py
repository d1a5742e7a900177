"""Who is at the console, and whether what a browser sends was meant by that person.

A login's cookie says who; it goes along with whatever makes the browser send a request. So a change
also needs a token that only the console's own pages hold, and must come from such a page.
"""

import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated
from urllib.parse import parse_qsl, quote, urlsplit

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from starlette.datastructures import ImmutableMultiDict
from starlette.exceptions import HTTPException

from dispatcher.api.access import Session, holder_of
from dispatcher.api.settings import ApiSettings
from dispatcher.operators.tokens.store import LOGIN_HOURS, LOGIN_PREFIX
from sink.contract.states import AccessRole

CSRF_FIELD = "csrf"
CSRF_HEADER = "X-CSRF-Token"

FIELDS_MAX = 2_000
"""So many fields has a form at most."""

SAFE_PATH = re.compile(r"/(?!/)[!-\[\]-~]*")
"""A path on this server: printable ASCII, no second slash that would make a host of it, no
backslash, which browsers read as a slash."""

FORM_TYPE = "application/x-www-form-urlencoded"

Posted = ImmutableMultiDict[str, str]


@dataclass(frozen=True, slots=True)
class Login:
    """Somebody who has logged in."""

    session: Session
    secret: str = field(repr=False)

    @property
    def csrf(self) -> str:
        """What a form carries in the hidden field `csrf`, or a script in `X-CSRF-Token`."""
        return hmac.digest(self.secret.encode(), b"csrf", hashlib.sha256).hex()

    def may(self, role: AccessRole) -> bool:
        """Return whether this person has the role, or a higher one."""
        return self.session.may(role)


class LoginNeededError(Exception):
    """Nobody is logged in; `next_path` is where to go afterwards."""

    def __init__(self, next_path: str) -> None:
        super().__init__("nobody is logged in")
        self.next_path = next_path


def install(app: FastAPI) -> None:
    """Send whoever has not logged in to the login page."""
    app.exception_handler(LoginNeededError)(_to_login)


def cookie_name(settings: ApiSettings) -> str:
    """Return the cookie's name; with `__Host-` no other host or path can set or shadow it."""
    return "__Host-holdfast" if settings.behind_proxy else "holdfast"


def set_login(response: Response, settings: ApiSettings, secret: str) -> None:
    """Give a browser a login's secret."""
    response.set_cookie(
        cookie_name(settings),
        secret,
        max_age=LOGIN_HOURS * 3600,
        path="/",
        secure=settings.behind_proxy,
        httponly=True,
        samesite="lax",  # a link from a chat leads in; nothing that is posted from elsewhere does
    )


def forget_login(response: Response, settings: ApiSettings) -> None:
    """Take a login's secret from a browser."""
    response.delete_cookie(
        cookie_name(settings),
        path="/",
        secure=settings.behind_proxy,
        httponly=True,
        samesite="lax",
    )


def safe_path(given: str | None) -> str:
    """Return a path of this server to go on to: the one that was given, or / for any other."""
    if given is None or not SAFE_PATH.fullmatch(given):
        return "/"
    return "/" if urlsplit(given).path in {"/login", "/logout"} else given


def person(request: Request) -> Login:
    """Return who is logged in; raises `LoginNeededError`."""
    secret = request.cookies.get(cookie_name(request.app.state.settings), "")
    if not secret.startswith(LOGIN_PREFIX):
        raise LoginNeededError(_here(request))
    try:
        holder = holder_of(request, secret)
    except HTTPException as refused:
        if refused.status_code != HTTPStatus.UNAUTHORIZED:
            raise
        raise LoginNeededError(_here(request)) from None
    return Login(Session(holder, request.app.state.pool), secret)


async def posted(request: Request) -> Posted:
    """Return a form's fields; raises 415 for another kind of body, and 422 for what is no form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != FORM_TYPE:
        raise HTTPException(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"a form is sent as {FORM_TYPE}. Nothing was changed.",
        )
    try:
        fields = parse_qsl(
            (await request.body()).decode("ascii"),
            keep_blank_values=True,
            max_num_fields=FIELDS_MAX,
            errors="strict",
        )
    except ValueError:
        raise _no_form() from None
    if any("\0" in each for pair in fields for each in pair):
        raise _no_form()
    return ImmutableMultiDict(fields)


def same_origin(request: Request) -> None:
    """Refuse (403) what a page of another site made the browser send."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        fine = site == "same-origin"
    else:
        origin = request.headers.get("origin")
        fine = origin is None or _own(request, origin)
    if not fine:
        raise HTTPException(
            HTTPStatus.FORBIDDEN,
            "this came from a page of another site. Nothing was changed; use the console's own"
            " pages.",
        )


Person = Annotated[Login, Depends(person)]
"""A parameter of pages: who looks."""

Form = Annotated[Posted, Depends(posted)]
"""A parameter of changes: the form's fields; `get` and `getlist` read them."""


def Acting(role: AccessRole) -> Callable[..., Login]:  # noqa: N802 - reads as a type of parameter
    """Return the dependency of a change: somebody of this role who meant it.

    Use it as `person: Annotated[Login, Depends(Acting(AccessRole.OPERATOR))]`.
    """

    def acting(request: Request, who: Person, form: Form) -> Login:
        same_origin(request)
        given = request.headers.get(CSRF_HEADER) or form.get(CSRF_FIELD, "")
        if not hmac.compare_digest(given.encode(errors="replace"), who.csrf.encode()):
            raise HTTPException(
                HTTPStatus.FORBIDDEN,
                "this form is not from this login. Nothing was changed; load the page again and"
                " repeat it.",
            )
        if not who.may(role):
            raise HTTPException(
                HTTPStatus.FORBIDDEN,
                f"this needs the role {role}, and {who.session.holder.name} is"
                f" {who.session.holder.role}. Nothing was changed.",
            )
        return who

    return acting


def _own(request: Request, origin: str) -> bool:
    try:
        parts = urlsplit(origin)
        named = parts.hostname in request.app.state.settings.names
    except ValueError:
        return False
    return parts.netloc == request.headers.get("host") or named


def _here(request: Request) -> str:
    """Return the page to come back to: of a fragment or a change, the page that asked for it."""
    if request.method != "GET" and "hx-current-url" not in request.headers:
        return "/"
    try:
        url = urlsplit(request.headers.get("hx-current-url") or str(request.url))
    except ValueError:
        return "/"
    return safe_path(f"{url.path}?{url.query}" if url.query else url.path)


def _to_login(request: Request, error: Exception) -> Response:
    path = error.next_path if isinstance(error, LoginNeededError) else "/"
    address = "/login" if path == "/" else f"/login?next={quote(path, safe='')}"
    response: Response
    if request.headers.get("hx-request"):
        # A redirect would put the login page inside of a fragment.
        response = JSONResponse(None, HTTPStatus.UNAUTHORIZED, {"HX-Redirect": address})
    else:
        response = RedirectResponse(address, HTTPStatus.SEE_OTHER)
    if cookie_name(request.app.state.settings) in request.cookies:
        forget_login(response, request.app.state.settings)
    return response


def _no_form() -> HTTPException:
    return HTTPException(
        HTTPStatus.UNPROCESSABLE_ENTITY, "what was sent is no form in UTF-8. Nothing was changed."
    )

"""Logins of the console, and protection against cross-site requests.

The login cookie identifies the person, but browsers also send it with requests that other sites
cause. A change therefore also needs a token that only the console's pages contain, and must come
from the same origin.
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

from holdfast.dispatcher.api.access import Session, holder_of
from holdfast.dispatcher.api.settings import ApiSettings
from holdfast.dispatcher.operators.tokens.store import LOGIN_HOURS, LOGIN_PREFIX
from holdfast.sink.contract.states import AccessRole

CSRF_FIELD = "csrf"
CSRF_HEADER = "X-CSRF-Token"

LOGIN_PATH = "/login"

FIELDS_MAX = 2_000
"""Maximum number of fields of a form."""

SAFE_PATH = re.compile(r"/(?!/)[!-\[\]-~]*")
"""A path on this server: printable ASCII, no second slash, which would begin a host, and no
backslash, which browsers treat as a slash.
"""

FORM_TYPE = "application/x-www-form-urlencoded"

Posted = ImmutableMultiDict[str, str]


@dataclass(frozen=True, slots=True)
class Login:
    """A logged-in person."""

    session: Session
    secret: str = field(repr=False)

    @property
    def csrf(self) -> str:
        """The token that a form sends in the hidden field `csrf`, or a script in `X-CSRF-Token`."""
        return hmac.digest(self.secret.encode(), b"csrf", hashlib.sha256).hex()

    def may(self, role: AccessRole) -> bool:
        """Return whether this person has the role or a higher one."""
        return self.session.may(role)


class LoginNeededError(Exception):
    """Nobody is logged in; `next_path` is the page to open after the login."""

    def __init__(self, next_path: str) -> None:
        super().__init__("nobody is logged in")
        self.next_path = next_path


def install(app: FastAPI) -> None:
    """Redirect people who are not logged in to the login page."""
    app.exception_handler(LoginNeededError)(_to_login)


def cookie_name(settings: ApiSettings) -> str:
    """Return the cookie's name. With `__Host-`, no other host or path can set or shadow it."""
    return "__Host-holdfast" if settings.behind_proxy else "holdfast"


def set_login(response: Response, settings: ApiSettings, secret: str) -> None:
    """Set the login cookie."""
    response.set_cookie(
        cookie_name(settings),
        secret,
        max_age=LOGIN_HOURS * 3600,
        path="/",
        secure=settings.behind_proxy,
        httponly=True,
        samesite="lax",  # links from other sites work; posts from other sites do not send it
    )


def forget_login(response: Response, settings: ApiSettings) -> None:
    """Delete the login cookie."""
    response.delete_cookie(
        cookie_name(settings),
        path="/",
        secure=settings.behind_proxy,
        httponly=True,
        samesite="lax",
    )


def safe_path(path: str | None) -> str:
    """Return the given path if it is on this server and not the login itself, else `/`."""
    if path is None or not SAFE_PATH.fullmatch(path):
        return "/"
    return "/" if urlsplit(path).path in {"/login", "/logout"} else path


def person(request: Request) -> Login:
    """Return the login; raises `LoginNeededError` without one."""
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
    """Return a form's fields; raises 415 for another content type, and 422 for an invalid form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != FORM_TYPE:
        raise HTTPException(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"a form must be sent as {FORM_TYPE}. Nothing was changed.",
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
    """Refuse (403) a request that a page of another site caused."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        fine = site == "same-origin"
    else:
        origin = request.headers.get("origin")
        fine = origin is None or _own(request, origin)
    if not fine:
        raise HTTPException(
            HTTPStatus.FORBIDDEN,
            "this request came from a page of another site. Nothing was changed; use the"
            " console's own pages.",
        )


Person = Annotated[Login, Depends(person)]
"""A parameter of pages: the login."""

Form = Annotated[Posted, Depends(posted)]
"""A parameter of changes: the form's fields; `get` and `getlist` read them."""


def Acting(role: AccessRole) -> Callable[..., Login]:  # noqa: N802 - reads as a type of parameter
    """Return the dependency of a change: a login with this role, whose form has a valid CSRF token.

    Use it as `person: Annotated[Login, Depends(Acting(AccessRole.OPERATOR))]`.
    """

    def acting(request: Request, who: Person, form: Form) -> Login:
        same_origin(request)
        token = request.headers.get(CSRF_HEADER) or form.get(CSRF_FIELD, "")
        if not hmac.compare_digest(token.encode(errors="replace"), who.csrf.encode()):
            raise HTTPException(
                HTTPStatus.FORBIDDEN,
                "this form belongs to another login. Nothing was changed; reload the page and"
                " repeat the change.",
            )
        if not who.may(role):
            raise HTTPException(
                HTTPStatus.FORBIDDEN,
                f"this requires the role {role}; {who.session.holder.name} has the role"
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
    """Return the page to return to; for a fragment or a change, the page that requested it."""
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
        # A redirect would put the login page into a fragment.
        response = JSONResponse(None, HTTPStatus.UNAUTHORIZED, {"HX-Redirect": address})
    else:
        response = RedirectResponse(address, HTTPStatus.SEE_OTHER)
    if cookie_name(request.app.state.settings) in request.cookies:
        forget_login(response, request.app.state.settings)
    return response


def _no_form() -> HTTPException:
    return HTTPException(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "the body is not a valid form in UTF-8. Nothing was changed.",
    )

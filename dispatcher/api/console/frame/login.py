"""Login with a token, and logout."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response
from starlette.exceptions import HTTPException

from holdfast.dispatcher.api.access import Session, holder_of
from holdfast.dispatcher.api.console.frame.guard import (
    Acting,
    Form,
    Login,
    forget_login,
    safe_path,
    same_origin,
    set_login,
)
from holdfast.dispatcher.api.console.frame.pages import page
from holdfast.dispatcher.operators.tokens.store import TOKEN_PREFIX, Holder, Tokens
from holdfast.sink.contract.states import AccessRole

router = APIRouter(include_in_schema=False)


@router.get("/login")
def login_page(request: Request, next: str = "/") -> Response:  # noqa: A002 - the parameter's name
    """Show the login form."""
    return page(request, None, "frame/login.html", next=safe_path(next), fault=None)


@router.post("/login")
def login(request: Request, form: Form) -> Response:
    """Log in, and redirect to the requested page."""
    same_origin(request)
    path, secret = safe_path(form.get("next")), form.get("token", "").strip()
    try:
        holder = _holder(request, secret)
    except HTTPException as refused:
        shown = page(
            request,
            None,
            "frame/login.html",
            status=refused.status_code,
            next=path,
            fault=refused.detail,
        )
        for name, value in (refused.headers or {}).items():
            if name == "Retry-After":
                shown.headers[name] = value
        return shown
    with Session(holder, request.app.state.pool).open(Tokens) as tokens:
        login_secret = tokens.login(holder)
    response = RedirectResponse(path, HTTPStatus.SEE_OTHER)
    set_login(response, request.app.state.settings, login_secret)
    return response


@router.post("/logout")
def logout(
    request: Request, person: Annotated[Login, Depends(Acting(AccessRole.VIEWER))]
) -> Response:
    """Log out: delete the cookie and the login in the database."""
    with person.session.open(Tokens) as tokens:
        tokens.logout(person.session.holder)
    response = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
    forget_login(response, request.app.state.settings)
    return response


def _holder(request: Request, secret: str) -> Holder:
    if not secret.startswith(TOKEN_PREFIX):
        raise HTTPException(
            HTTPStatus.UNAUTHORIZED,
            "this is not a token: tokens begin with hft_. Nothing was changed.",
        )
    return holder_of(request, secret)

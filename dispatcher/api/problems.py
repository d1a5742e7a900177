"""Errors as RFC 9457 problems: what happened, what was not lost, what to do; no stack trace."""

import logging
from collections.abc import Mapping
from http import HTTPStatus
from math import ceil
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from holdfast.dispatcher.shared.errors import StoreUnavailableError
from holdfast.sink.contract.exits import CommandError, ExitCode

MEDIA_TYPE = "application/problem+json"

STATUS = {
    ExitCode.USAGE: HTTPStatus.UNPROCESSABLE_ENTITY,
    ExitCode.NOTHING_MATCHED: HTTPStatus.NOT_FOUND,
    ExitCode.FAILED: HTTPStatus.CONFLICT,
    ExitCode.DEGRADED: HTTPStatus.CONFLICT,
}
"""HTTP status for the exit code that the command would have."""

FAULTS_SHOWN_MAX = 20

OURS = {
    HTTPStatus.BAD_REQUEST: "the body is not valid JSON. Nothing was changed.",
    HTTPStatus.NOT_FOUND: "no such resource. Nothing was changed; see /openapi.json.",
    HTTPStatus.METHOD_NOT_ALLOWED: "this method is not allowed here. Nothing was changed; see"
    " the header `Allow`.",
}
"""Our texts in place of the framework's."""

THEIRS = {"There was an error parsing the body", "Not Found", "Method Not Allowed"}


class Fault(BaseModel):
    """What is wrong with a request, and where."""

    where: list[str]
    what: str


class Problem(BaseModel):
    """What went wrong (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    """A sentence for a person: what happened, what was not lost, what to do."""

    code: str | None = Field(
        default=None,
        description="A stable name of what happened, for programs: the code that the command has"
        " for the same error. Null, or not there, where no command has such an error.",
    )
    faults: list[Fault] | None = None


TYPE = "urn:holdfast:problem:"

KINDS: Mapping[int, tuple[str, str]] = {
    400: ("malformed", "The body is not valid JSON."),
    401: ("unauthenticated", "No token, or one that is unknown, expired or revoked."),
    403: ("role", "The token's role is not sufficient."),
    404: ("nothing-matched", "Nothing matched."),
    405: ("method", "The method is not allowed here; see Allow."),
    408: ("slow-body", "The body did not arrive in time."),
    409: ("refused", "The resource is not in the required state; nothing was changed."),
    413: ("large-body", "The body is too large."),
    421: ("host", "The server is not known under the requested host name."),
    422: ("invalid", "The request does not match this description."),
    429: (
        "too-many",
        "Too many wrong tokens, or another check or comparison is running; see Retry-After.",
    ),
    500: ("internal", "An error of the server, whose cause is in its log."),
    503: ("unavailable", "The database is unavailable or busy; see Retry-After."),
}
"""The end of `type`, and what it means, by status. docs/operators/api.md has the same table."""

UNDESCRIBED = (405, 500)
"""Statuses that no route of the description has."""


def _documented(description: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": description, "content": {MEDIA_TYPE: {"schema": schema}}}


RESPONSES: dict[int | str, dict[str, Any]] = {
    status: _documented(f"{meaning} `type`: `{TYPE}{name}`.")
    for status, (name, meaning) in KINDS.items()
    if status not in UNDESCRIBED
}
"""Every error response of the API."""


def problem(
    status: int, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any
) -> JSONResponse:
    """Return a problem; `detail` is a sentence for a person."""
    kind = KINDS.get(status)
    type_ = "about:blank" if kind is None else TYPE + kind[0]
    content = {"type": type_, "title": HTTPStatus(status).phrase, "status": status}
    return JSONResponse(
        {**content, "detail": detail, **more}, status, dict(headers or {}), media_type=MEDIA_TYPE
    )


def limited(policy: str, quota: str, seconds: float) -> dict[str, str]:
    """Return the headers of a 429 that ends in so many seconds: Retry-After and RateLimit.

    `quota` has the parameters of the policy (draft-ietf-httpapi-ratelimit-headers-10): `q=10;w=60`
    for ten in a minute.
    """
    wait = ceil(seconds)
    return {
        "Retry-After": str(wait),
        "RateLimit-Policy": f'"{policy}";{quota}',
        "RateLimit": f'"{policy}";r=0;t={wait}',
    }


def install(app: FastAPI) -> None:
    """Convert every error of `app` to a problem."""
    app.exception_handler(CommandError)(_refused)
    app.exception_handler(StoreUnavailableError)(_away)
    app.exception_handler(RequestValidationError)(_invalid)
    app.exception_handler(HTTPException)(_http)
    app.exception_handler(ClientDisconnect)(_left)
    app.exception_handler(Exception)(_unforeseen)


def describe(app: FastAPI) -> None:
    """Add the schema of problems to the OpenAPI description of `app`."""
    described = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schemas = described().setdefault("components", {}).setdefault("schemas", {})
            for model in (Problem, Fault):
                content = model.model_json_schema(ref_template="#/components/schemas/{model}")
                schemas[model.__name__] = {k: v for k, v in content.items() if k != "$defs"}
            for name in ("HTTPValidationError", "ValidationError"):
                schemas.pop(name, None)  # the framework's error schema, which is not used
            _share(described())
        return described()

    app.openapi = openapi  # type: ignore[method-assign]


def _share(description: dict[str, Any]) -> None:
    """Define the common responses once, and reference them."""
    kept = description["components"].setdefault("responses", {})
    for item in description["paths"].values():
        for operation in item.values():
            for status, response in RESPONSES.items():
                if operation["responses"].get(str(status)) == response:
                    kept[f"Problem{status}"] = response
                    reference = {"$ref": f"#/components/responses/Problem{status}"}
                    operation["responses"][str(status)] = reference


def _refused(_: Request, error: CommandError) -> JSONResponse:
    status = STATUS.get(error.exit_code, HTTPStatus.CONFLICT)
    return problem(status, str(error), code=error.code)


def _away(_: Request, error: StoreUnavailableError) -> JSONResponse:
    return problem(HTTPStatus.SERVICE_UNAVAILABLE, str(error), headers={"Retry-After": "5"})


def _invalid(_: Request, error: RequestValidationError) -> JSONResponse:
    # The input is not echoed: it may be a secret, and of any size.
    faults = [
        {"where": [str(each)[:100] for each in fault["loc"]], "what": str(fault["msg"])[:300]}
        for fault in error.errors()[:FAULTS_SHOWN_MAX]
    ]
    return problem(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "the request does not match the API's description. Nothing was changed; see `faults`.",
        faults=faults,
    )


def _http(_: Request, error: HTTPException) -> JSONResponse:
    detail = str(error.detail)
    if detail in THEIRS:
        detail = OURS.get(HTTPStatus(error.status_code), detail)
    return problem(error.status_code, detail, headers=error.headers)


async def _left(_request: Request, _error: Exception) -> JSONResponse:
    # Nobody reads it; a stack trace in the log for each would let anybody fill the disk.
    return problem(HTTPStatus.BAD_REQUEST, "the client left. Nothing was changed.")


def _unforeseen(_: Request, error: Exception) -> JSONResponse:
    logging.getLogger(__name__).error("a request failed", exc_info=error)
    return problem(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "internal error; its cause is in the server's log. A change is made completely or not at"
        " all: check before you try again.",
    )

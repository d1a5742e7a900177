"""The payouts service as an ASGI application: receives webhooks, shows holds."""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from holdfast.deploy.payouts import database, holds, tracing
from holdfast.deploy.payouts.database import open_pool, statement
from holdfast.deploy.payouts.metrics import Answered, Measures
from holdfast.deploy.payouts.pages import render
from holdfast.deploy.payouts.pruning import pruning
from holdfast.deploy.payouts.service import inquire, receive
from holdfast.receiver import (
    Answer,
    Inbox,
    Problem,
    Secret,
    VerifyDeliveries,
    delivery_of,
    inquiry_of,
)
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.wire import INQUIRY_PATH, TRACEPARENT

WEBHOOKS = "/webhooks"
PAGE_ROWS = 100
JSON_ROWS = 1000
CURSOR_CHARACTERS_MAX = 1024

# No scripts, frames, forms or external content: the page shows text from other parties.
_SECURITY = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
_log = logging.getLogger(__name__)


def build(
    dsn: str,
    inbox: Inbox,
    secrets: Sequence[Secret],
    failed: Callable[[CommandError], None] | None = None,
) -> Starlette:
    """Build the application; its database pool is open while it runs.

    If the database does not answer at startup, `failed` is called and its owner must stop the
    application. Without `failed`, the startup raises `psycopg.OperationalError`.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with open_pool(dsn) as pool:
            app.state.pool = pool
            try:
                await pool.wait(database.POOL_START_SECONDS_MAX)
            except psycopg.OperationalError as error:
                if failed is None:
                    raise
                # Not raised, because the server would print the traceback.
                failed(_not_answering(error))
                yield
                return
            app.state.inbox = inbox
            async with pruning(pool, inbox):
                yield

    measures = Measures()
    app = Starlette(
        lifespan=lifespan,
        middleware=[
            Middleware(Answered, measures=measures, path=WEBHOOKS),
            Middleware(VerifyDeliveries, secrets=secrets, paths=[WEBHOOKS], inquiries=INQUIRY_PATH),
        ],
        exception_handlers={
            psycopg.OperationalError: _unavailable,
            psycopg.Error: _refused,
            Exception: _failed,
        },
        routes=[
            Route("/", _page),
            Route("/holds.json", _holds),
            Route("/healthz", _health),
            Route("/style.css", _style),
            Route(WEBHOOKS, _webhooks, methods=["POST"]),
            Route(INQUIRY_PATH + "{key}", _inquiry),
            Route("/metrics", _metrics),
        ],
    )
    app.state.measures = measures
    return app


async def _webhooks(request: Request) -> Response:
    state = request.app.state
    found = delivery_of(request.scope)
    with tracing.delivery(found, request.headers.get(TRACEPARENT)):
        return _response(await receive(state.pool, state.inbox, found, state.measures))


async def _inquiry(request: Request) -> Response:
    state = request.app.state
    return _response(await inquire(state.pool, state.inbox, inquiry_of(request.scope)))


async def _page(request: Request) -> Response:
    async with request.app.state.pool.connection() as connection:
        held, next_after = await _held(connection, request, PAGE_ROWS)
        transitions = await holds.list_transitions(connection, limit=PAGE_ROWS)
        counts = await holds.count(connection)
    text = render.page(held, transitions, counts, next_after=next_after)
    return HTMLResponse(text, headers=_SECURITY)


async def _holds(request: Request) -> Response:
    async with request.app.state.pool.connection() as connection:
        held, next_after = await _held(connection, request, JSON_ROWS)
    content = {"held": [jsonable(row) for row in held], "next": next_after}
    return JSONResponse(content, headers=_SECURITY)


async def _health(request: Request) -> Response:
    async with request.app.state.pool.connection() as connection:
        await connection.execute(statement("ping"))
    return JSONResponse({"status": "ok"}, headers=_SECURITY)


async def _metrics(request: Request) -> Response:
    state, held = request.app.state, None
    try:
        async with state.pool.connection() as connection:
            held = await holds.count_held(connection)
    except psycopg.Error as error:
        # The counters say what happened meanwhile; only the gauge is the database's.
        _log.warning("held merchants cannot be counted: %s", type(error).__name__)
    text = state.measures.text(held)
    return Response(text, media_type=CONTENT_TYPE_LATEST, headers=_SECURITY)


async def _style(_request: Request) -> Response:
    return Response(render.style(), media_type="text/css", headers=_SECURITY)


async def _held(
    connection: holds.Connection, request: Request, limit: int
) -> tuple[list[dict[str, Any]], str | None]:
    """Return one page of held merchants and the cursor of the next page (`?after=`)."""
    after = request.query_params.get("after", "")[:CURSOR_CHARACTERS_MAX].replace("\x00", "")
    rows = await holds.list_held(connection, after=after, limit=limit + 1)
    if len(rows) <= limit:
        return rows, None
    return rows[:limit], rows[limit - 1]["merchant_id"]


def jsonable(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its times in RFC 3339."""
    return {
        name: rfc3339(value) if hasattr(value, "tzinfo") else value for name, value in row.items()
    }


async def _unavailable(_request: Request, error: Exception) -> Response:
    _log.warning("the database is not available: %s", type(error).__name__)
    return _response(
        Problem(503, "unavailable", "the database did not answer; it is safe to retry").answer()
    )


async def _refused(request: Request, error: Exception) -> Response:
    said = database.said_by(error) if isinstance(error, psycopg.Error) else ""
    _log.error("the database refused a statement: %s: %s", type(error).__name__, said)
    return await _failed(request, error)


def _not_answering(error: psycopg.Error) -> CommandError:
    return CommandError(
        f"the payouts database stopped answering: {database.said_by(error)}. Nothing was applied;"
        " the sender retries, which is safe. Start the service when the database answers; check"
        " --dsn or PAYOUTS_DSN.",
        code="database_unavailable",
    )


async def _failed(_request: Request, _error: Exception) -> Response:
    return _response(Problem(500, "internal_error", "it is safe to retry").answer())


def _response(answer: Answer) -> Response:
    return Response(answer.body, answer.status, answer.headers)

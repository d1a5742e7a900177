"""The payouts service as an ASGI application: receives webhooks, shows holds."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from typing import Any

import psycopg
from opentelemetry.trace import SpanKind
from prometheus_client import CONTENT_TYPE_LATEST
from psycopg_pool import PoolTimeout
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from holdfast.deploy.payouts import database, holds
from holdfast.deploy.payouts.database import Pool, open_pool, statement
from holdfast.deploy.payouts.metrics import REFUSED, Answered, Measures
from holdfast.deploy.payouts.order import HoldOrder
from holdfast.deploy.payouts.pages import render
from holdfast.receiver import (
    PRUNE_MAX,
    Answer,
    Delivery,
    Inbox,
    Inquiry,
    Problem,
    Refused,
    Secret,
    VerifyDeliveries,
    answer,
    answer_inquiry,
    delivery_of,
    inquiry_of,
    unknown_key,
)
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.failpoints import failpoint
from holdfast.sink.contract.spans import context_of, span
from holdfast.sink.contract.wire import INQUIRY_PATH, TRACEPARENT, ReceiptOutcome


def _delivery_span(request: Delivery, traceparent: str | None) -> AbstractContextManager[Any]:
    """Run the block in the span of a delivery, which holds no subject and no key."""
    return span(
        "holdfast.payouts",
        "holdfast.receive",
        context=context_of(traceparent),
        kind=SpanKind.CONSUMER,
        attributes={
            "messaging.system": "holdfast",
            "messaging.operation.name": "receive",
            "messaging.operation.type": "process",
            "messaging.message.body.size": len(request.raw),
        },
    )


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
    arrived = delivery_of(request.scope)
    with _delivery_span(arrived, request.headers.get(TRACEPARENT)):
        return _response(await receive(state.pool, state.inbox, arrived, state.measures))


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
    reason = database.text_of(error) if isinstance(error, psycopg.Error) else ""
    _log.error("the database refused a statement: %s: %s", type(error).__name__, reason)
    return await _failed(request, error)


def _not_answering(error: psycopg.Error) -> CommandError:
    return CommandError(
        f"the payouts database stopped answering: {database.text_of(error)}. Nothing was applied;"
        " the sender retries, which is safe. Start the service when the database answers; check"
        " --dsn or PAYOUTS_DSN.",
        code="database_unavailable",
    )


async def _failed(_request: Request, _error: Exception) -> Response:
    return _response(Problem(500, "internal_error", "it is safe to retry").answer())


def _response(answer: Answer) -> Response:
    return Response(answer.body, answer.status, answer.headers)


PRUNE_SECONDS = 3600.0


@asynccontextmanager
async def pruning(pool: Pool, inbox: Inbox) -> AsyncIterator[None]:
    """Prune at the start and then every hour, until the block ends, in limited transactions.

    Safety does not depend on it: a key kept longer still works, and a repeat of a deleted key is
    refused by its subject's sequence.
    """
    if inbox.window is None:
        yield
        return
    task = asyncio.create_task(_prune_for_ever(pool, inbox))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _prune_for_ever(pool: Pool, inbox: Inbox) -> None:
    while True:
        try:
            await prune_all(pool, inbox)
        except (psycopg.Error, PoolTimeout) as error:
            _log.warning("pruning keys failed; retry in an hour: %s", type(error).__name__)
        await asyncio.sleep(PRUNE_SECONDS)


async def prune_all(pool: Pool, inbox: Inbox, *, limit: int = PRUNE_MAX) -> int:
    """Delete all keys older than the window, `limit` per transaction; return their number."""
    forgotten = 0
    while True:
        async with pool.connection() as connection:
            pruned = await inbox.prune(connection, limit=limit)
        forgotten += pruned
        if pruned < limit:
            return forgotten


async def receive(pool: Pool, inbox: Inbox, delivery: Delivery, measures: Measures) -> Answer:
    """Apply a verified delivery once, count it, and return the answer, after the commit.

    Key, hold, history and log commit together. Raises `psycopg.Error` if the database fails;
    nothing is applied then, and the sender retries.
    """
    try:
        order = HoldOrder.of(delivery.body)
    except Refused as refused:
        async with pool.connection() as connection, connection.transaction():
            arrival = await holds.arrive(connection)
            await holds.log(connection, delivery, arrival=arrival, subject=None, outcome=REFUSED)
        measures.deliveries.labels(REFUSED).inc()
        return refused.problem.answer()
    effect = None
    async with pool.connection() as connection, inbox.transaction(connection):
        arrival = await holds.arrive(connection)
        subject = order.merchant_id
        receipt = await inbox.receive(connection, delivery, subject=subject)
        if receipt.outcome is ReceiptOutcome.APPLIED:
            effect = await holds.apply(connection, delivery, order, arrival)
            await inbox.store_result(connection, receipt, {"effect": effect.value})
            failpoint("R3")
        await holds.log(
            connection, delivery, arrival=arrival, subject=subject, outcome=receipt.outcome.value
        )
    measures.deliveries.labels(receipt.outcome.value).inc()
    if effect is not None:
        measures.actions.labels(order.action.value, effect.value).inc()
    failpoint("R4")
    return answer(receipt, delivery.secret)


async def inquire(pool: Pool, inbox: Inbox, inquiry: Inquiry) -> Answer:
    """Answer an inquiry with the outcome of a key; raises `psycopg.Error`."""
    async with pool.connection() as connection:
        record = await inbox.inquire(connection, inquiry.key)
    return unknown_key() if record is None else answer_inquiry(record, inquiry.secret)

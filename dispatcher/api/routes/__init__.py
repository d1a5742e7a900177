"""The resources of the API, one module each."""

from fastapi import APIRouter

from holdfast.dispatcher.api.routes import (
    attempts,
    audit,
    batches,
    check,
    database,
    dead_letters,
    dispatchers,
    endpoints,
    entries,
    overview,
    proposals,
    quarantine,
    receipts,
    reissue,
    replays,
    streams,
    subjects,
    suppressed,
    tokens,
    trace,
)

ROUTERS: tuple[APIRouter, ...] = (
    overview.status_router,
    overview.router,
    endpoints.router,
    entries.router,
    trace.router,
    attempts.router,
    subjects.router,
    streams.router,
    batches.router,
    quarantine.router,
    suppressed.router,
    dead_letters.router,
    replays.router,
    replays.redelivery_router,
    reissue.router,
    proposals.router,
    check.router,
    receipts.router,
    dispatchers.router,
    database.router,
    audit.router,
    tokens.router,
)
"""In the order in which OpenAPI lists them."""

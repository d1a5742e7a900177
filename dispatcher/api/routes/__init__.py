"""The resources of the API, one module each."""

from fastapi import APIRouter

from holdfast.dispatcher.api import verbs
from holdfast.dispatcher.api.routes import (
    attempts,
    check,
    endpoints,
    entries,
    overview,
    proposals,
    quarantine,
    receipts,
    reissue,
    replays,
    subjects,
    trace,
)
from holdfast.dispatcher.operators.audit import verbs as audit
from holdfast.dispatcher.operators.database import verbs as database
from holdfast.dispatcher.operators.dead_letters import verbs as dead_letters
from holdfast.dispatcher.operators.dispatchers import verbs as dispatchers
from holdfast.dispatcher.operators.entries import verbs as entry_verbs
from holdfast.dispatcher.operators.streams import batches
from holdfast.dispatcher.operators.streams import verbs as streams
from holdfast.dispatcher.operators.suppressed import verbs as suppressed
from holdfast.dispatcher.operators.tokens import verbs as tokens

ROUTERS: tuple[APIRouter, ...] = (
    overview.status_router,
    overview.router,
    endpoints.router,
    verbs.router(entry_verbs.GROUP),
    entries.router,
    trace.router,
    attempts.router,
    subjects.router,
    verbs.router(streams.GROUP),
    verbs.router(batches.GROUP),
    quarantine.router,
    verbs.router(suppressed.GROUP),
    verbs.router(dead_letters.GROUP),
    replays.router,
    replays.redelivery_router,
    reissue.router,
    proposals.router,
    check.router,
    receipts.router,
    verbs.router(dispatchers.GROUP),
    verbs.router(database.GROUP),
    verbs.router(audit.GROUP),
    verbs.router(tokens.GROUP),
)
"""In the order in which OpenAPI lists them."""

"""The console's pages, one module for each screen."""

from fastapi import APIRouter

from holdfast.dispatcher.api.console import verbs
from holdfast.dispatcher.api.console.routes import (
    batches,
    endpoints,
    entries,
    live,
    overview,
    quarantine,
    redeliver,
    replays,
    search,
    subjects,
)
from holdfast.dispatcher.operators.audit import verbs as audit
from holdfast.dispatcher.operators.database import verbs as database
from holdfast.dispatcher.operators.dead_letters import verbs as dead_letters
from holdfast.dispatcher.operators.dispatchers import verbs as dispatchers
from holdfast.dispatcher.operators.entries import verbs as entry_verbs
from holdfast.dispatcher.operators.suppressed import verbs as suppressed

ROUTERS: tuple[APIRouter, ...] = (
    overview.router,
    entries.router,
    verbs.router(entry_verbs.GROUP),
    redeliver.router,
    subjects.router,
    search.router,
    live.router,
    batches.router,
    quarantine.router,
    verbs.router(suppressed.GROUP),
    verbs.router(dead_letters.GROUP),
    replays.router,
    endpoints.router,
    verbs.router(dispatchers.GROUP),
    verbs.router(database.GROUP),
    verbs.router(audit.GROUP),
)

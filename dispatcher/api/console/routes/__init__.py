"""The console's pages, one module for each screen."""

from fastapi import APIRouter

from holdfast.dispatcher.api.console import verbs
from holdfast.dispatcher.api.console.routes import (
    audit,
    batches,
    database,
    dispatchers,
    endpoints,
    entries,
    live,
    overview,
    quarantine,
    redeliver,
    replays,
    search,
    subjects,
    suppressed,
)
from holdfast.dispatcher.operators.dead_letters import verbs as dead_letters

ROUTERS: tuple[APIRouter, ...] = (
    overview.router,
    entries.router,
    redeliver.router,
    subjects.router,
    search.router,
    live.router,
    batches.router,
    quarantine.router,
    suppressed.router,
    verbs.router(dead_letters.GROUP),
    replays.router,
    endpoints.router,
    dispatchers.router,
    database.router,
    audit.router,
)

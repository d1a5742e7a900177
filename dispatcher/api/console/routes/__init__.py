"""The console's pages, one module for each screen."""

from fastapi import APIRouter

from holdfast.dispatcher.api.console.routes import (
    audit,
    batches,
    database,
    dead_letters,
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
    dead_letters.router,
    replays.router,
    endpoints.router,
    dispatchers.router,
    database.router,
    audit.router,
)

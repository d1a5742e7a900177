"""The console's pages, one module for each screen."""

from fastapi import APIRouter

from holdfast.dispatcher.api.console import verbs
from holdfast.dispatcher.api.console.routes import (
    batches,
    cancel,
    decide,
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
from holdfast.dispatcher.operators import registry

ROUTERS: tuple[APIRouter, ...] = (
    *map(verbs.router, registry.groups()),
    overview.router,
    entries.router,
    redeliver.router,
    cancel.router,
    decide.router,
    subjects.router,
    search.router,
    live.router,
    batches.router,
    quarantine.router,
    replays.router,
    endpoints.router,
)

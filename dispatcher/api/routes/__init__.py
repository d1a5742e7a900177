"""The resources of the API, one module each."""

from fastapi import APIRouter

from holdfast.dispatcher.api import verbs
from holdfast.dispatcher.api.routes import (
    attempts,
    check,
    endpoints,
    entries,
    overview,
    quarantine,
    receipts,
    replays,
    subjects,
    trace,
)
from holdfast.dispatcher.operators import registry


def _declared(word: str) -> APIRouter:
    return verbs.router(registry.group(word))


ROUTERS: tuple[APIRouter, ...] = (
    _declared("triage"),
    overview.status_router,
    overview.router,
    endpoints.router,
    _declared("entry"),
    entries.router,
    trace.router,
    attempts.router,
    subjects.router,
    _declared("stream"),
    _declared("batch"),
    quarantine.router,
    _declared("suppressed"),
    _declared("dead-letter"),
    replays.router,
    _declared("redeliver"),
    _declared("reissue"),
    _declared("decide"),
    _declared("proposal"),
    check.router,
    receipts.router,
    _declared("dispatcher"),
    _declared("database"),
    _declared("audit"),
    _declared("token"),
)
"""In the order in which OpenAPI lists them."""

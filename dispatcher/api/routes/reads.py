"""What can be asked."""

from fastapi import APIRouter

from dispatcher.api.routes import (
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
    quarantine,
    receipts,
    replays,
    status,
    streams,
    subjects,
    suppressed,
    traces,
)

READS: tuple[APIRouter, ...] = (
    status.router,
    overview.router,
    endpoints.router,
    entries.router,
    traces.router,
    attempts.router,
    subjects.router,
    streams.router,
    batches.router,
    quarantine.router,
    suppressed.router,
    dead_letters.router,
    replays.router,
    check.router,
    receipts.router,
    dispatchers.router,
    database.router,
    audit.router,
)
"""One router for each resource."""

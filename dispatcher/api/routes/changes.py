"""Every resource that changes something, in one list."""

from fastapi import APIRouter

from dispatcher.api.routes import (
    dead_letters_changes,
    endpoints_changes,
    proposals,
    quarantine_changes,
    redeliveries,
    reissues,
    replays_changes,
    streams_changes,
    subjects_changes,
    tokens,
)

CHANGES: tuple[APIRouter, ...] = (
    endpoints_changes.router,
    redeliveries.router,
    replays_changes.router,
    proposals.router,
    dead_letters_changes.router,
    quarantine_changes.router,
    reissues.router,
    streams_changes.router,
    subjects_changes.router,
    tokens.router,
)
"""In the order in which OpenAPI lists them, behind what only reads."""

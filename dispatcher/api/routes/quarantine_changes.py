"""Rows that were set aside: put back as entries, or dismissed."""

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import AfterValidator, Field, StringConstraints

from dispatcher.api.access import Operator
from dispatcher.api.models import Given, Ids, Reason
from dispatcher.api.shapes import Shown, Time
from dispatcher.operations.quarantine import can_go_back, only_entries, open_among, put_entries
from dispatcher.store.quarantine import Quarantine
from sink.contract.exits import CommandError, ExitCode
from sink.contract.states import QuarantineResolution

router = APIRouter(prefix="/quarantine", tags=["quarantine"])

ROW_CHARACTERS_MAX = 262_144


def _stored(text: str) -> str:
    text.encode()
    if "\0" in text:
        raise ValueError("a text has no NUL character")
    return text


class RowsToDismiss(Given):
    """Rows that need nothing more."""

    ids: Ids
    reason: Reason


class PutBack(Given):
    """A row to be put back, as it was kept or corrected."""

    id: int = Field(ge=1, le=2**63 - 1)
    row: (
        Annotated[
            str,
            StringConstraints(min_length=1, max_length=ROW_CHARACTERS_MAX),
            AfterValidator(_stored),
        ]
        | None
    ) = Field(None, description="The corrected entry, as JSON text; null: as it was kept.")


class RowsToPutBack(Given):
    """Rows to be written as entries."""

    rows: list[PutBack] = Field(min_length=1, max_length=100)
    suppress_repeats: bool = Field(
        True, description="Refuse one that is older than its subject's newest, or repeats its type."
    )
    reason: Reason


class ResolvedRow(Shown):
    """A row that somebody had resolved before."""

    id: int
    resolution: QuarantineResolution
    resolved_at: Time
    resolved_by: str
    resolution_reason: str | None


class RowsDismissed(Shown):
    """What was dismissed, and what was resolved before."""

    dismissed: list[int]
    resolved_before: list[ResolvedRow]


class RowOutcome(Shown):
    """What became of a row."""

    id: int
    detail: str


class RowsPutBack(Shown):
    """What was put back, what was refused again and is still open, what was resolved before."""

    requeued: list[RowOutcome]
    refused: list[RowOutcome]
    resolved_before: list[ResolvedRow]


@router.post("/dismiss", summary="Close rows that need nothing more.")
def dismiss_rows(session: Operator, given: RowsToDismiss) -> RowsDismissed:
    """They stay in the quarantine, as dismissed."""
    with session.open(Quarantine) as store:
        rows, before = open_among(store, list(dict.fromkeys(given.ids)))
        ids = [row["id"] for row in rows]
        done = store.resolve(ids, QuarantineResolution.DISMISSED, given.reason)
    return RowsDismissed.model_validate({"dismissed": done, "resolved_before": before})


@router.post("/requeue", summary="Put rows back, as entries of the outbox.")
def requeue_rows(request: Request, session: Operator, given: RowsToPutBack) -> RowsPutBack:
    """Each is put back once, however often it is asked for. Rows of a source go by the command."""
    corrected = {each.id: each.row for each in given.rows}
    if len(corrected) < len(given.rows):
        raise CommandError("a row is there twice. Nothing was changed.", ExitCode.USAGE)
    with session.open(Quarantine) as store:
        rows, before = open_among(store, list(corrected))
        only_entries(rows)
        texts = {row["id"]: corrected[row["id"]] or row["row"] for row in rows}
        can_go_back(rows, texts)
        done, refused = put_entries(
            request.app.state.settings.dsn,
            store,
            rows,
            texts,
            given.reason,
            suppress_repeats=given.suppress_repeats,
            before=before,
        )
    return RowsPutBack.model_validate(
        {"requeued": done, "refused": refused, "resolved_before": before}
    )

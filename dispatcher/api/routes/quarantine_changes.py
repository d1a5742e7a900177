"""Rows that were set aside: put back as entries, or dismissed."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Request
from pydantic import AfterValidator, Field, StringConstraints

from dispatcher.api.access import Operator
from dispatcher.api.models import Given, Ids, Reason
from dispatcher.api.shapes import Shown, Time
from dispatcher.operators.common.session import Row
from dispatcher.operators.quarantine.actions import (
    Way,
    can_go_back,
    only_entries,
    open_among,
    planned,
    proposed,
    put_entries,
)
from dispatcher.operators.quarantine.store import Quarantine
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
    proposal: Annotated[UUID, Field(strict=False)] | None = Field(
        None, description="Write what was approved; then `row` is null and this row the only one."
    )


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


class Differing(Shown):
    """A member that a corrected row has otherwise than the kept one."""

    member: str
    kept: str | list[str] | None = Field(description="Null where it cannot be read.")
    given: str | list[str] | None


class ProposedRow(Shown):
    """A row of which nothing was written: an administrator, not its planner, has to approve it."""

    id: int
    proposal: UUID
    planned_by: str
    approved_by: str | None
    differs: list[Differing]


class RowsPutBack(Shown):
    """What was put back, what was refused again and is still open, what was resolved before."""

    requeued: list[RowOutcome]
    refused: list[RowOutcome]
    proposed: list[ProposedRow] = Field(description="Corrected to another decision.")
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
    """Each is put back once, however often it is asked for. Rows of a source go by the command.

    One with another subject, key, type, time or data, or whose kept row cannot be read,
    is only proposed.
    """
    corrected = {each.id: each.row for each in given.rows}
    if len(corrected) < len(given.rows):
        raise CommandError("a row is there twice. Nothing was changed.", ExitCode.USAGE)
    proposal = _proposal(given)
    way = Way(suppress_repeats=given.suppress_repeats)
    waiting: list[Row] = []
    done: list[Row] = []
    refused: list[Row] = []
    with session.open(Quarantine) as store:
        rows, before = open_among(store, list(corrected))
        only_entries(rows)
        if proposal is not None:
            [number] = corrected
            text, way = planned(store, proposal, number)
            texts = {number: text}
        else:
            texts = {row["id"]: corrected[row["id"]] or row["row"] for row in rows}
            can_go_back(rows, texts)
            waiting = proposed(store, rows, texts, given.reason, way)
        names = {each["id"] for each in waiting}
        if left := [row for row in rows if row["id"] not in names]:
            done, refused = put_entries(
                request.app.state.settings.dsn,
                store,
                left,
                texts,
                given.reason,
                suppress_repeats=way.suppress_repeats,
                before=before,
                proposal=proposal,
            )
    return RowsPutBack.model_validate(
        {"requeued": done, "refused": refused, "proposed": waiting, "resolved_before": before}
    )


def _proposal(given: RowsToPutBack) -> UUID | None:
    """Return the proposal that is to be applied; raises `CommandError` (usage)."""
    found = [each.proposal for each in given.rows if each.proposal is not None]
    if found and (len(given.rows) > 1 or given.rows[0].row is not None):
        raise CommandError(
            "a proposal is applied alone, and without a row of its own. Nothing was changed.",
            ExitCode.USAGE,
        )
    return found[0] if found else None

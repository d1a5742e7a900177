"""The quarantine: rows that the sink or the job set aside, shown, put back or dismissed."""

from typing import Annotated
from uuid import UUID

from fastapi import Request
from pydantic import AfterValidator, Field, StringConstraints

from holdfast.dispatcher.api import verbs
from holdfast.dispatcher.api.access import Operator
from holdfast.dispatcher.api.requests import (
    Reason,
    RequestBody,
    storable,
)
from holdfast.dispatcher.api.responses import ResponseModel
from holdfast.dispatcher.operators.common.overtaking import NewerDecision
from holdfast.dispatcher.operators.quarantine.actions import (
    Way,
    entry_texts,
    put_back,
)
from holdfast.dispatcher.operators.quarantine.store import Quarantine
from holdfast.dispatcher.operators.quarantine.verbs import GROUP, ResolvedRow
from holdfast.sink.contract.exits import CommandError, ExitCode

router = verbs.router(GROUP)


ROW_CHARACTERS_MAX = 262_144


class PutBack(RequestBody):
    """A row to put back, as stored or corrected."""

    id: int = Field(ge=1, le=2**63 - 1)
    row: (
        Annotated[
            str,
            StringConstraints(min_length=1, max_length=ROW_CHARACTERS_MAX),
            AfterValidator(storable),
        ]
        | None
    ) = Field(None, description="The corrected entry as JSON text; null: as stored.")
    proposal: Annotated[UUID, Field(strict=False)] | None = Field(
        None,
        description="Write what was approved; then `row` must be null and this row the only one.",
    )


class RowsToPutBack(RequestBody):
    """Rows to write as entries."""

    rows: list[PutBack] = Field(min_length=1, max_length=100)
    suppress_repeats: bool = Field(
        True,
        description="Refuse an entry that is older than its subject's newest, or repeats its type.",
    )
    reason: Reason


class RowOutcome(ResponseModel):
    """The result for one row."""

    id: int
    detail: str


class Differing(ResponseModel):
    """A member in which a corrected row differs from the stored one."""

    member: str
    kept: str | list[str] | None = Field(description="null if it cannot be parsed.")
    given: str | list[str] | None


class ProposedRow(ResponseModel):
    """A row of which nothing was written: another person, an administrator, has to approve it."""

    id: int
    proposal: UUID
    planned_by: str
    approved_by: str | None
    differs: list[Differing]
    overtakes: NewerDecision | None = Field(
        description="Set if the row occurred before the newest decision of its subject, or its time"
        " was given by hand."
    )


class RowsPutBack(ResponseModel):
    """What was put back, what was refused again and stays open, and what was already resolved."""

    requeued: list[RowOutcome]
    refused: list[RowOutcome]
    proposed: list[ProposedRow] = Field(
        description="Rows corrected to a different decision, or older than"
        " their subject's newest one."
    )
    resolved_before: list[ResolvedRow]


@router.post("/requeue", summary="Put rows back, as entries of the outbox.")
def requeue_rows(request: Request, session: Operator, given: RowsToPutBack) -> RowsPutBack:
    """Idempotent: each row is put back once. Rows of a job's source are put back by the command
    only.

    A row whose subject, key, type, time or data differs from the stored row, or whose stored row
    cannot be parsed, is only proposed. So is one that would follow a newer decision of its subject.
    """
    corrected = {each.id: each.row for each in given.rows}
    if len(corrected) < len(given.rows):
        raise CommandError(
            "a row is given twice. Nothing was changed.", ExitCode.USAGE, code="repeated_row"
        )
    proposal = _proposal(given)
    with session.open(Quarantine) as store:
        result = put_back(
            store,
            request.app.state.settings.dsn,
            list(corrected),
            given.reason,
            lambda rows: entry_texts(rows, corrected),
            Way(suppress_repeats=given.suppress_repeats),
            proposal=proposal,
        )
    return RowsPutBack.model_validate(
        {
            "requeued": result.done,
            "refused": result.refused,
            "proposed": result.proposed,
            "resolved_before": result.before,
        }
    )


def _proposal(given: RowsToPutBack) -> UUID | None:
    """Return the proposal to apply, if any; raises `CommandError` (usage)."""
    found = [each.proposal for each in given.rows if each.proposal is not None]
    if found and (len(given.rows) > 1 or given.rows[0].row is not None):
        raise CommandError(
            "a proposal must be the only row and have no `row` of its own. Nothing was changed.",
            ExitCode.USAGE,
            code="conflicting_parameters",
        )
    return found[0] if found else None

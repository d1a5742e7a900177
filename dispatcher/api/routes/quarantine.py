"""The quarantine: rows that the sink or the job set aside, shown, put back or dismissed."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request
from pydantic import AfterValidator, Field, StringConstraints

from holdfast.dispatcher.api import bodies
from holdfast.dispatcher.api.access import Operator, Viewer
from holdfast.dispatcher.api.requests import (
    AskBody,
    Ids,
    Limit,
    Name,
    Number,
    NumberBefore,
    Reason,
    RequestBody,
    storable,
)
from holdfast.dispatcher.api.responses import PagedByNumber, ResponseModel, Time
from holdfast.dispatcher.operators.common.overtaking import NewerDecision
from holdfast.dispatcher.operators.quarantine.actions import (
    Way,
    dismiss,
    entry_texts,
    put_back,
)
from holdfast.dispatcher.operators.quarantine.store import Filter, Quarantine
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import QuarantineReason, QuarantineResolution

router = APIRouter(prefix="/quarantine", tags=["quarantine"])


class ListedRow(ResponseModel):
    """A quarantined row without its text."""

    id: int
    stream: str | None
    query_id: UUID | None
    batch_id: int | None
    batch_no: int | None
    reason: QuarantineReason
    detail: str
    quarantined_at: Time
    resolution: QuarantineResolution | None
    resolved_at: Time | None
    resolved_by: str | None
    resolution_reason: str | None


class RowPage(PagedByNumber):
    """Rows, the newest first."""

    rows: list[ListedRow]


class QuarantinedRow(ListedRow):
    """A quarantined row."""

    row: str | None = Field(description="Its text; null unless bodies are requested.")


@router.get("", summary="List quarantined rows.")
def list_quarantine(
    session: Viewer,
    stream: Annotated[Name | None, Query(description="Only this stream.")] = None,
    reason: Annotated[
        QuarantineReason | None, Query(description="Only this reason or cause.")
    ] = None,
    open: Annotated[bool, Query(description="Only unresolved ones; false: all.")] = True,  # noqa: A002 - the parameter's name
    resolved: Annotated[bool, Query(description="Only resolved ones.")] = False,
    limit: Limit = 50,
    before: NumberBefore | None = None,
) -> RowPage:
    """Return rows without their text, the newest first."""
    wanted = Filter(stream, reason, open and not resolved, resolved)
    with session.open(Quarantine) as store:
        rows = store.newest(wanted, limit=limit, before=before)
    older = rows[-1]["id"] if len(rows) == limit else None
    return RowPage.model_validate({"rows": rows, "next_before": older})


@router.get("/{number}", summary="Show a quarantined row.")
def show_quarantined(session: Viewer, number: Number, body: AskBody = False) -> QuarantinedRow:
    """Return one row, with its text if requested."""
    bodies.allow(session, body=body)
    with session.open(Quarantine) as store:
        [row] = store.take([number])
    if body:
        bodies.note(session, "quarantine.read", f"quarantine {number}")
    else:
        row = bodies.without(row, "row")
    return QuarantinedRow.model_validate(row)


ROW_CHARACTERS_MAX = 262_144


class RowsToDismiss(RequestBody):
    """Rows to dismiss."""

    ids: Ids
    reason: Reason


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


class ResolvedRow(ResponseModel):
    """A row that was already resolved."""

    id: int
    resolution: QuarantineResolution
    resolved_at: Time
    resolved_by: str
    resolution_reason: str | None


class RowsDismissed(ResponseModel):
    """What was dismissed, and what was already resolved."""

    dismissed: list[int]
    resolved_before: list[ResolvedRow]


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


@router.post("/dismiss", summary="Dismiss rows that need no action.")
def dismiss_rows(session: Operator, given: RowsToDismiss) -> RowsDismissed:
    """They stay in the quarantine, marked as dismissed."""
    with session.open(Quarantine) as store:
        done, before = dismiss(store, list(dict.fromkeys(given.ids)), given.reason)
    return RowsDismissed.model_validate({"dismissed": done, "resolved_before": before})


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

"""The quarantine: rows that the sink or the job set aside."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import Field

from dispatcher.api import bodies
from dispatcher.api.access import Viewer
from dispatcher.api.models import Name
from dispatcher.api.paging import AskBody, Limit, Number, NumberBefore
from dispatcher.api.shapes import PagedByNumber, Shown, Time
from dispatcher.operators.quarantine.store import Filter, Quarantine
from sink.contract.states import QuarantineReason, QuarantineResolution

router = APIRouter(prefix="/quarantine", tags=["quarantine"])


class ListedRow(Shown):
    """A row that was set aside, without its text."""

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
    """A row that was set aside."""

    row: str | None = Field(description="Its text; null unless bodies are asked for.")


@router.get("", summary="List rows that were set aside.")
def list_quarantine(
    session: Viewer,
    stream: Annotated[Name | None, Query(description="Only of this stream.")] = None,
    reason: Annotated[QuarantineReason | None, Query(description="Only for this.")] = None,
    open: Annotated[bool, Query(description="Only what nobody resolved; false: all.")] = True,  # noqa: A002 - the parameter's name
    resolved: Annotated[bool, Query(description="Only what somebody resolved.")] = False,
    limit: Limit = 50,
    before: NumberBefore | None = None,
) -> RowPage:
    """Return rows without their texts, the newest first."""
    wanted = Filter(stream, reason, open and not resolved, resolved)
    with session.open(Quarantine) as store:
        rows = store.newest(wanted, limit=limit, before=before)
    older = rows[-1]["id"] if len(rows) == limit else None
    return RowPage.model_validate({"rows": rows, "next_before": older})


@router.get("/{number}", summary="Show a row that was set aside.")
def show_quarantined(session: Viewer, number: Number, body: AskBody = False) -> QuarantinedRow:
    """Return one row, with its text where that is asked for."""
    bodies.allow(session, body=body)
    with session.open(Quarantine) as store:
        [row] = store.take([number])
    if body:
        bodies.note(session, "quarantine.read", f"quarantine {number}")
    else:
        row = bodies.without(row, "row")
    return QuarantinedRow.model_validate(row)

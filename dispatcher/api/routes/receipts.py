"""Receipts: how many deliveries a receiver's signature proves."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field

from dispatcher.api.access import Viewer
from dispatcher.api.long_looks import BACK_MAX, long_look
from dispatcher.api.models import Name
from dispatcher.api.paging import Text, Times
from dispatcher.api.settings import ApiSettings
from dispatcher.api.shapes import Count, Shown, Time
from dispatcher.operators.receipts.actions import count_receipts
from dispatcher.operators.receipts.rules import Tally
from dispatcher.operators.receipts.store import Sent
from dispatcher.operators.receipts.views import as_rows

router = APIRouter(prefix="/receipts", tags=["checks"])


class ReceiptCounts(Shown):
    """Deliveries to an endpoint, and how many of them a receipt proves."""

    endpoint: str
    since: Time
    until: Time
    subject: str | None
    delivered: Count
    undelivered: Count = Field(description="Tried in that time, and not delivered.")
    receipts: dict[str, int] = Field(
        description="Deliveries by what their receipt says: applied, duplicate, stale, none."
    )


@router.get("", summary="Count deliveries with and without a receipt.")
def count_endpoint_receipts(
    request: Request,
    session: Viewer,
    times: Times,
    endpoint: Name,
    subject: Annotated[Text | None, Query(description="Only of this subject.")] = None,
) -> ReceiptCounts:
    """Return the counts of a time; by default of the last day, which is the most.

    No receiver is asked: `holdfast receipts` does that. 30 s at most (503), one at a time (429).
    """
    settings: ApiSettings = request.app.state.settings
    tally = Tally(1)
    with long_look(request, session, times.since) as watch, Sent.connect(settings.dsn) as store:
        row = store.endpoint(endpoint)
        wanted = store.wanted(
            row.endpoint.id,
            times.since or BACK_MAX,
            times.until or timedelta(0),
            subject,
            hashed=False,
        )
        count_receipts(store, wanted, tally, watch)
    return ReceiptCounts.model_validate(as_rows(endpoint, wanted, None, tally))

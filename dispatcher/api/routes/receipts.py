"""Receipts: how many deliveries a signed receipt proves."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field

from holdfast.dispatcher.api.access import Viewer
from holdfast.dispatcher.api.long_reads import long_read, range_of
from holdfast.dispatcher.api.requests import Name, Text, Times
from holdfast.dispatcher.api.responses import Count, ResponseModel, Time
from holdfast.dispatcher.api.settings import ApiSettings
from holdfast.dispatcher.operators.receipts.actions import count_receipts
from holdfast.dispatcher.operators.receipts.rules import Tally
from holdfast.dispatcher.operators.receipts.store import SentEntries
from holdfast.dispatcher.operators.receipts.views import as_rows

router = APIRouter(prefix="/receipts", tags=["checks"])


class ReceiptCounts(ResponseModel):
    """Deliveries to an endpoint, and how many of them a receipt proves."""

    endpoint: str
    since: Time
    until: Time
    subject: str | None
    delivered: Count
    undelivered: Count = Field(description="Attempted in that time, but not delivered.")
    receipts: dict[str, int] = Field(
        description="Deliveries by the outcome in their receipt: applied, duplicate, stale, none."
    )


@router.get("", summary="Count deliveries with and without a receipt.")
def count_endpoint_receipts(
    request: Request,
    session: Viewer,
    times: Times,
    endpoint: Name,
    subject: Annotated[Text | None, Query(description="Only this subject.")] = None,
) -> ReceiptCounts:
    """Return the counts of a time range, by default and at most of the last day.

    Does not query the receiver; `holdfast receipts` does. At most 30 s (then 503), one at a time
    (else 429).
    """
    settings: ApiSettings = request.app.state.settings
    tally = Tally(1)
    with (
        long_read(request, session, times.since) as watch,
        SentEntries.connect(settings.dsn) as store,
    ):
        row = store.endpoint(endpoint)
        compared = store.range_(row.endpoint.id, *range_of(times), subject, hashed=False)
        count_receipts(store, compared, tally, watch)
    return ReceiptCounts.model_validate(as_rows(endpoint, compared, None, tally))

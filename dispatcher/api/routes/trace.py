"""The trace of an entry, from its batch to its receipts."""

from fastapi import APIRouter
from pydantic import Field

from holdfast.dispatcher.api import bodies
from holdfast.dispatcher.api.access import Viewer
from holdfast.dispatcher.api.requests import AskBody, KeyText
from holdfast.dispatcher.api.responses import Count, Json, ResponseModel, Time
from holdfast.dispatcher.api.responses import KeyText as ShownKey
from holdfast.dispatcher.api.routes.why import explaining
from holdfast.dispatcher.operators.entries.rules import key_of
from holdfast.dispatcher.operators.streams.batches import LedgerRow
from holdfast.dispatcher.operators.trace import Trace
from holdfast.dispatcher.operators.why.rules import Verdict
from holdfast.sink.contract.states import Outcome

router = APIRouter(prefix="/entries", tags=["entries"])


class TracedEntry(ResponseModel):
    """The entry."""

    subject: str
    sequence: int
    type: str
    occurred_at: Time
    written_at: Time
    priority: int
    traceparent: str | None
    decision: Json = Field(description="What was decided; amounts in minor units.")
    body_bytes: Count
    body_sha256: str
    body: str | None = Field(description="Byte for byte; null unless bodies are requested.")


class TracedAttempt(ResponseModel):
    """An attempt."""

    number: int
    finished_at: Time
    outcome: Outcome
    status: int | None
    duration_ms: int | None
    error: str | None
    receipt: Json | None = Field(description="The receiver's signed receipt; null without one.")
    retry_at: Time | None
    response_bytes: Count
    response: str | None = Field(description="null unless bodies are requested.")


class TracedEndpoint(ResponseModel):
    """What happened at an endpoint, attempts in order."""

    endpoint: str
    verdict: Verdict
    sentence: str
    attempts: list[TracedAttempt]


class Traced(ResponseModel):
    """A decision from its batch to its receipts."""

    key: ShownKey
    batch: LedgerRow
    entry: TracedEntry
    endpoints: list[TracedEndpoint]
    older_attempts: bool = Field(description="There are older attempts than the 500 returned.")


@router.get("/{key}/trace", summary="Trace an entry.")
def trace_entry(session: Viewer, key: KeyText, body: AskBody = False) -> Traced:
    """Return a decision from its batch to its receipts."""
    bodies.allow(session, body=body)
    with explaining(session, Trace) as store:
        found = store.trace(key_of(key), body=body)
    if body:
        bodies.note(session, "entry.read", key)
    return Traced.model_validate(found)

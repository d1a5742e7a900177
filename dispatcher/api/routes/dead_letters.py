"""Dead letters: listed, shown, dismissed. A redelivery sends them again."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

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
    Text,
)
from holdfast.dispatcher.api.responses import Count, KeyText, PagedByNumber, ResponseModel, Time
from holdfast.dispatcher.operators.dead_letters.rules import what_helps, what_it_holds
from holdfast.dispatcher.operators.dead_letters.store import DeadLetters, Filter
from holdfast.sink.contract.states import (
    DeadReason,
    DeadResolution,
    EndpointState,
    OrderPolicy,
    Outcome,
)

router = APIRouter(prefix="/dead-letters", tags=["dead letters"])


class ListedDeadLetter(ResponseModel):
    """A dead letter: an entry given up at an endpoint."""

    id: int
    endpoint: str
    subject: str
    sequence: int
    key: KeyText
    type: str | None = Field(description="null if the entry's partition was dropped.")
    reason: DeadReason
    detail: str = Field(description="The result of the last attempt.")
    attempts: Count
    written_at: Time = Field(description="When the entry was written.")
    died_at: Time
    resolution: DeadResolution | None
    resolved_at: Time | None
    resolved_by: str | None
    holds_lane: bool = Field(description="Later entries of its subject wait behind it.")
    resolution_reason: str | None


class DeadLetterPage(PagedByNumber):
    """Dead letters, the newest first."""

    dead_letters: list[ListedDeadLetter]


class LastAttempt(ResponseModel):
    """An attempt."""

    number: int
    finished_at: Time
    outcome: Outcome
    status: int | None
    duration_ms: int | None
    error: str | None
    response: str | None = Field(description="null unless bodies are requested.")


class Advice(ResponseModel):
    """A command and its effect."""

    command: str
    effect: str


class DeadLetter(ListedDeadLetter):
    """A dead letter, what it holds up, and what can be done about it."""

    order_policy: OrderPolicy
    endpoint_state: EndpointState
    window_waived: bool = Field(
        description="Sent although the receiver may have forgotten the key."
    )
    key_window_seconds: int | None
    waiting: Count = Field(description="Entries waiting behind it, counted to 1,000.")
    body: str | None = Field(description="null unless requested, or if its partition was dropped.")
    newest_attempts: list[LastAttempt] = Field(description="At most 20, the newest first.")
    holds: str
    advice: list[Advice]


@router.get("", summary="List dead letters.")
def list_dead_letters(
    session: Viewer,
    endpoint: Annotated[Name | None, Query(description="Only this endpoint.")] = None,
    subject: Annotated[Text | None, Query(description="Only this subject.")] = None,
    reason: Annotated[
        DeadReason | None, Query(description="Only dead letters with this reason.")
    ] = None,
    open: Annotated[bool, Query(description="Only unresolved ones; false: all.")] = True,  # noqa: A002 - the parameter's name
    resolved: Annotated[bool, Query(description="Only resolved ones.")] = False,
    limit: Limit = 50,
    before: NumberBefore | None = None,
) -> DeadLetterPage:
    """Return dead letters without their bodies, the newest first."""
    wanted = Filter(endpoint, subject, reason, open and not resolved, resolved)
    with session.open(DeadLetters) as store:
        rows = store.newest(wanted, limit=limit, before=before)
    older = rows[-1]["id"] if len(rows) == limit else None
    rows = [bodies.without_answers(row, "detail") for row in rows]
    return DeadLetterPage.model_validate({"dead_letters": rows, "next_before": older})


@router.get("/{number}", summary="Show a dead letter.")
def show_dead_letter(session: Viewer, number: Number, body: AskBody = False) -> DeadLetter:
    """Return one: its attempts, what it holds up, and what can be done about it."""
    bodies.allow(session, body=body)
    with session.open(DeadLetters) as store:
        row = store.one(number)
    advice = [each._asdict() for each in what_helps(row)]
    if body:
        bodies.note(session, "entry.read", row["key"], dead_letter=number)
    else:
        tried = [bodies.without(each, "response") for each in row["newest_attempts"]]
        row = bodies.without(bodies.without_answers(row, "detail"), "body")
        row["newest_attempts"] = tried
    return DeadLetter.model_validate({**row, "holds": what_it_holds(row), "advice": advice})


class Dismissal(RequestBody):
    """Dead letters to dismiss: their receivers never get them."""

    ids: Ids
    skip: bool = Field(
        False,
        description="Release the lanes that they hold. Without it, a dead letter that holds a lane"
        " is refused.",
    )
    reason: Reason


class DismissedDeadLetter(ResponseModel):
    """A dismissed dead letter."""

    id: int
    endpoint: str
    subject: str
    sequence: int
    key: str
    lane_goes_on: bool
    waiting: int = Field(description="Later entries behind it, counted to 1,000.")


class ResolvedDeadLetter(ResponseModel):
    """A dead letter that was already resolved."""

    id: int
    resolution: DeadResolution
    resolved_at: Time
    resolved_by: str


class DeadLetterDismissal(ResponseModel):
    """What was dismissed, and what was already resolved."""

    dismissed: list[DismissedDeadLetter]
    resolved_before: list[ResolvedDeadLetter]


@router.post("/dismiss", summary="Dismiss dead letters: their receivers never get them.")
def dismiss_dead_letters(session: Operator, given: Dismissal) -> DeadLetterDismissal:
    """Dismiss all of them or none. Those already resolved stay unchanged."""
    with session.open(DeadLetters) as store:
        done, before = store.dismiss(list(dict.fromkeys(given.ids)), given.reason, skip=given.skip)
    return DeadLetterDismissal.model_validate({"dismissed": done, "resolved_before": before})

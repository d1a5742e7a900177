"""Dead letters: given up. `redeliveries` sends them again."""

from fastapi import APIRouter
from pydantic import Field

from dispatcher.api.access import Operator
from dispatcher.api.models import Given, Ids, Reason
from dispatcher.api.shapes import Shown, Time
from dispatcher.operators.dead_letters.store import DeadLetters
from sink.contract.states import DeadResolution

router = APIRouter(prefix="/dead-letters", tags=["dead letters"])


class Dismissal(Given):
    """Dead letters whose receivers never get them."""

    ids: Ids
    skip: bool = Field(
        False,
        description="Let the lanes that they hold go on without them; such a one is refused else.",
    )
    reason: Reason


class DismissedDeadLetter(Shown):
    """A dead letter that was given up."""

    id: int
    endpoint: str
    subject: str
    sequence: int
    key: str
    lane_goes_on: bool
    waiting: int = Field(description="Later entries behind it, counted to 1000.")


class ResolvedDeadLetter(Shown):
    """A dead letter that somebody had resolved before."""

    id: int
    resolution: DeadResolution
    resolved_at: Time
    resolved_by: str


class DeadLetterDismissal(Shown):
    """What was given up, and what was resolved before."""

    dismissed: list[DismissedDeadLetter]
    resolved_before: list[ResolvedDeadLetter]


@router.post("/dismiss", summary="Give dead letters up: their receivers never get them.")
def dismiss_dead_letters(session: Operator, given: Dismissal) -> DeadLetterDismissal:
    """Give them up, all or none. Each that was resolved before stays as it is."""
    with session.open(DeadLetters) as store:
        done, before = store.dismiss(list(dict.fromkeys(given.ids)), given.reason, skip=given.skip)
    return DeadLetterDismissal.model_validate({"dismissed": done, "resolved_before": before})

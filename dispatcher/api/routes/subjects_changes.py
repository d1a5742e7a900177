"""Subjects: a lane that stands before decisions which are not stored any more."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from dispatcher.api.access import Operator
from dispatcher.api.models import Given, Name, Reason
from dispatcher.api.paging import Text
from dispatcher.api.shapes import Shown
from dispatcher.store.passing import Passing

router = APIRouter(prefix="/subjects", tags=["subjects"])


class LaneToPass(Given):
    """A subject, and the endpoint at which its lane stands still."""

    subject: Annotated[Text, Field(description="Its name, to the letter.", min_length=1)]
    endpoint: Name
    reason: Reason


class LanePassed(Shown):
    """What was passed; the receiver never gets it."""

    subject: str
    endpoint: str
    passed_from: int = Field(description="The first sequence that is not stored.")
    passed_to: int = Field(description="The last of them.")
    next_sequence: int | None = Field(description="What comes next; null: nothing is left.")


@router.post("/pass", summary="Let a lane go on behind what is not stored any more.")
def pass_missing(session: Operator, given: LaneToPass) -> LanePassed:
    """Pass it. A lane where nothing is missing, or that a dead letter holds, is left alone."""
    with session.open(Passing) as store:
        done = store.pass_missing(given.subject, given.endpoint, given.reason)
    return LanePassed.model_validate(done)

"""Subjects: a lane that stands before what is not stored any more, a state that is ahead."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter
from pydantic import Field

from dispatcher.api.access import Admin, Operator
from dispatcher.api.models import Given, Name, Reason
from dispatcher.api.paging import Moment, Text
from dispatcher.api.shapes import Count, KeyText, Shown, Time
from dispatcher.operators.subjects.rules import By
from dispatcher.operators.subjects.skip_gap import Passing
from dispatcher.operators.subjects.store import Repairs
from sink.contract.exits import CommandError, ExitCode

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


class SubjectToRepair(Given):
    """A subject that a date ahead of the clock silences: what to propose, or what to apply."""

    subject: Annotated[Text, Field(description="Its name, to the letter.", min_length=1)]
    stream: Annotated[
        Text | None, Field(description="Whose state; null with `proposal`.", min_length=1)
    ] = None
    to_type: Text | None = Field(None, description="The new last type, where no entry says it.")
    to_time: Annotated[Moment, Field(strict=False)] | None = Field(
        None, description="The new last time, likewise."
    )
    to_nothing: bool = Field(
        False, description="No state at all, likewise: the next decision is written whatever it is."
    )
    proposal: Annotated[UUID, Field(strict=False)] | None = Field(
        None, description="Do what was approved; then nothing else says what."
    )
    reason: Reason


class TransitionState(Shown):
    """What a stream's next decision about the subject is compared with."""

    last_type: str
    last_occurred_at: Time


class Overtaken(Shown):
    """A decision that was recorded and not written, as the state was ahead of it."""

    key: KeyText
    type: str
    occurred_at: Time
    suppressed_at: Time
    stream: str
    batch_id: int


class SubjectRepair(Shown):
    """A repair that is proposed, or was applied."""

    subject: str
    stream: str
    before: TransitionState
    after: TransitionState | None = Field(description="Null: no state.")
    applied: bool
    proposal: UUID
    planned_by: str
    approved_by: str | None
    overtaken_count: Count = Field(description="Overtaken since; 0 where applied.")
    overtaken: list[Overtaken] = Field(description="The first 1,000; a repair writes none of them.")


@router.post("/repair", summary="Put a subject right that a date ahead of the clock silences.")
def repair_subject(session: Admin, given: SubjectToRepair) -> SubjectRepair:
    """Propose the state that the stored entries say, or apply what a second person approved."""
    by = By(given.to_type, given.to_time, given.to_nothing)
    with session.open(Repairs) as store:
        if given.proposal is None and given.stream is not None:
            told = store.propose_repair(given.subject, given.stream, by, given.reason)
            state = told["state"]
            found = {**told, "before": state, "applied": False, **state}
        elif given.proposal is not None and given.stream is None and by == By():
            done = store.apply_repair(given.subject, given.proposal, given.reason)
            found = {**done, "applied": True, "overtaken": [], "overtaken_count": 0}
        else:
            raise CommandError(
                "give `stream`, or `proposal` alone: what was approved says the rest. Nothing was"
                " changed.",
                ExitCode.USAGE,
            )
    return SubjectRepair.model_validate(found)


@router.post("/pass", summary="Let a lane go on behind what is not stored any more.")
def pass_missing(session: Operator, given: LaneToPass) -> LanePassed:
    """Pass it. A lane where nothing is missing, or that a dead letter holds, is left alone."""
    with session.open(Passing) as store:
        done = store.pass_missing(given.subject, given.endpoint, given.reason)
    return LanePassed.model_validate(done)

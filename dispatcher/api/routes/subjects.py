"""Subjects: listed, shown, explained, repaired.

A name may contain any character, so it is a query parameter and not a part of the path.
"""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import Field

from holdfast.dispatcher.api.access import Admin, Operator, Viewer
from holdfast.dispatcher.api.requests import Limit, Moment, Name, Number, Reason, RequestBody, Text
from holdfast.dispatcher.api.responses import Count, KeyText, ResponseModel, Time
from holdfast.dispatcher.api.routes.why import Why, explaining
from holdfast.dispatcher.operators.entries.verbs import ListedEntry
from holdfast.dispatcher.operators.subjects.rules import By
from holdfast.dispatcher.operators.subjects.skip_gap import GapSkipper
from holdfast.dispatcher.operators.subjects.store import Held, Repairs, SubjectFilter, Subjects
from holdfast.dispatcher.operators.why.store import Why as Explains
from holdfast.dispatcher.shared.states import LaneState
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import BreakerState, DeadReason, EndpointState, OrderPolicy

router = APIRouter(prefix="/subjects", tags=["subjects"])

SubjectName = Annotated[Text, Query(description="The exact name of the subject.", min_length=1)]


class ListedSubject(ResponseModel):
    """A subject and the state of its lanes."""

    name: str
    last_sequence: int
    last_type: str | None
    last_written_at: Time | None
    lanes: Count
    stopped: Count = Field(description="Lanes stopped behind a dead letter.")
    retrying: Count
    behind: Count = Field(
        description="Lanes with an entry that was not attempted yet, or is in flight."
    )
    undelivered: Count = Field(
        description="Undelivered sequences of the lane that is furthest behind."
    )
    oldest_due_at: Time | None


class SubjectPage(ResponseModel):
    """Subjects, in byte order of their names."""

    subjects: list[ListedSubject]
    next_after: str | None = Field(
        description="`after` of the next page; null if this is the last."
    )


class Lane(ResponseModel):
    """A subject at an endpoint."""

    endpoint: str
    endpoint_state: EndpointState
    order_policy: OrderPolicy
    state: LaneState
    held: Held | None
    delivered_sequence: int
    last_sequence: int
    waiting: Count = Field(description="Waiting entries, counted to 1,001.")
    head_sequence: int | None
    head_key: KeyText | None
    head_type: str | None
    head_written_at: Time | None
    attempt: int = Field(description="Attempts of the head so far.")
    rescued: int = Field(
        description="Attempts among these that used no step of the retry schedule: the lease"
        " expired, the receiver sent Retry-After, or the address was refused."
    )
    priority: int
    due_at: Time | None
    lease_until: Time | None
    dead_letter: int | None = Field(description="Id of the dead letter that stops it.")
    dead_reason: DeadReason | None
    died_at: Time | None
    breaker: BreakerState
    breaker_until: Time | None
    held_until: Time | None


class Transition(ResponseModel):
    """The state with which a stream's next decision about a subject is compared: repeated,
    overtaken or new.
    """

    stream: str
    last_type: str
    last_occurred_at: Time
    updated_at: Time = Field(description="When its newest decision was written.")
    ahead: bool = Field(
        description="More than a day ahead of the clock, which silences the subject."
    )


class Subject(ResponseModel):
    """A subject with its lanes and its newest entries."""

    name: str
    last_sequence: int
    last_type: str | None = Field(description="From the stream that wrote it last.")
    last_occurred_at: Time | None = Field(description="From the stream that wrote it last.")
    last_written_at: Time | None
    transitions: list[Transition]
    lanes: list[Lane]
    entries: list[ListedEntry] = Field(description="The newest 20.")


@router.get("", summary="List subjects.")
def list_subjects(
    session: Viewer,
    prefix: Annotated[Text, Query(description="Prefix of the name.")] = "",
    held: Annotated[
        Held | None, Query(description="Only subjects with a lane in this state.")
    ] = None,
    silenced: Annotated[
        bool,
        Query(
            description="Only subjects silenced by a decision dated more than a day ahead; at most"
            " 4,000."
        ),
    ] = False,
    limit: Limit = 50,
    after: Annotated[
        Text | None, Query(description="`next_after` of the page before this one.")
    ] = None,
) -> SubjectPage:
    """Return subjects in the order of their names.

    With `held`, a page may be short or empty although `next_after` shows that more follow.
    """
    with session.open(Subjects) as store:
        rows, further = store.subjects(
            SubjectFilter(prefix, held, silenced), limit=limit, after=after
        )
    return SubjectPage.model_validate({"subjects": rows, "next_after": further})


@router.get("/named", summary="Show a subject.")
def show_subject(session: Viewer, name: SubjectName) -> Subject:
    """Return a subject with its lanes and its newest entries."""
    with session.open(Subjects) as store:
        return Subject.model_validate(store.subject(name))


@router.get("/named/why", summary="Explain a subject.")
def explain_subject(
    session: Viewer,
    name: SubjectName,
    sequence: Annotated[
        Number | None, Query(description="Only the entry with this sequence.")
    ] = None,
    endpoint: Annotated[Name | None, Query(description="Only this endpoint.")] = None,
) -> Why:
    """Return what it waits for: the head of its lane at each endpoint, or one entry."""
    with explaining(session, Explains) as store:
        if sequence is None:
            found = store.explain_subject(name, endpoint)
        else:
            found = store.explain_sequence(name, sequence, endpoint)
    return Why.of(name, found)


class LaneToPass(RequestBody):
    """A subject, and the endpoint at which its lane is blocked by a gap."""

    subject: Annotated[Text, Field(description="The exact name of the subject.", min_length=1)]
    endpoint: Name
    reason: Reason


class LanePassed(ResponseModel):
    """What was skipped; the receiver never gets it."""

    subject: str
    endpoint: str
    passed_from: int = Field(description="The first sequence that is not stored.")
    passed_to: int = Field(description="The last sequence that is not stored.")
    next_sequence: int | None = Field(description="The next sequence; null if nothing is left.")


class SubjectToRepair(RequestBody):
    """A subject silenced by a decision dated ahead of the clock: what to propose, or what to
    apply.
    """

    subject: Annotated[Text, Field(description="The exact name of the subject.", min_length=1)]
    stream: Annotated[
        Text | None,
        Field(
            description="The stream whose state is repaired; null with `proposal`.", min_length=1
        ),
    ] = None
    to_type: Text | None = Field(
        None, description="The new last type, if no stored entry determines it."
    )
    to_time: Annotated[Moment, Field(strict=False)] | None = Field(
        None, description="The new last time, if no stored entry determines it."
    )
    to_nothing: bool = Field(
        False,
        description="Remove the state, if no stored entry determines it: any next decision is"
        " written.",
    )
    proposal: Annotated[UUID, Field(strict=False)] | None = Field(
        None, description="Apply this approved proposal; then no other member may be given."
    )
    reason: Reason


class TransitionState(ResponseModel):
    """The state with which a stream's next decision about the subject is compared."""

    last_type: str
    last_occurred_at: Time


class Overtaken(ResponseModel):
    """A decision that was recorded but not written, because the state was ahead of it."""

    key: KeyText
    type: str
    occurred_at: Time
    suppressed_at: Time
    stream: str
    batch_id: int


class SubjectRepair(ResponseModel):
    """A repair, proposed or applied."""

    subject: str
    stream: str
    before: TransitionState
    after: TransitionState | None = Field(description="null: no state.")
    applied: bool
    proposal: UUID
    planned_by: str
    approved_by: str | None
    overtaken_count: Count = Field(description="Number of decisions overtaken since; 0 if applied.")
    overtaken: list[Overtaken] = Field(description="The first 1,000. A repair writes none of them.")


@router.post("/repair", summary="Repair a subject silenced by a decision dated ahead of the clock.")
def repair_subject(session: Admin, given: SubjectToRepair) -> SubjectRepair:
    """Propose the state that the stored entries imply, or apply what a second person approved."""
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
                "give `stream`, or `proposal` without other members. Nothing was changed.",
                ExitCode.USAGE,
                code="conflicting_parameters",
            )
    return SubjectRepair.model_validate(found)


@router.post("/pass", summary="Let a lane skip decisions that are no longer stored.")
def pass_missing(session: Operator, given: LaneToPass) -> LanePassed:
    """Skip the gap. A lane without a gap, or held by a dead letter, is not changed."""
    with session.open(GapSkipper) as store:
        done = store.pass_missing(given.subject, given.endpoint, given.reason)
    return LanePassed.model_validate(done)

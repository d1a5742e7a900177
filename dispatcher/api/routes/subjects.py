"""Subjects: by name, or by what holds them up. A name may hold any character: it is a parameter."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from dispatcher.api.access import Viewer
from dispatcher.api.explained import Why, explaining
from dispatcher.api.models import Name
from dispatcher.api.paging import Limit, Number, Text
from dispatcher.api.routes.entries import ListedEntry
from dispatcher.api.shapes import Count, KeyText, Shown, Time
from dispatcher.operators.subjects.store import Held, Subjects, WantedSubjects
from dispatcher.operators.why.store import Why as Explains
from dispatcher.shared.states import LaneState
from sink.contract.states import BreakerState, DeadReason, EndpointState, OrderPolicy

router = APIRouter(prefix="/subjects", tags=["subjects"])

SubjectName = Annotated[Text, Query(description="The subject, to the letter.", min_length=1)]


class ListedSubject(Shown):
    """A subject, and how its lanes stand."""

    name: str
    last_sequence: int
    last_type: str | None
    last_created_at: Time | None
    lanes: Count
    stopped: Count = Field(description="Lanes that wait for a person.")
    retrying: Count
    behind: Count = Field(description="Lanes with something not tried yet, or being sent.")
    undelivered: Count = Field(description="Sequences of the lane that is furthest back.")
    oldest_due_at: Time | None


class SubjectPage(Shown):
    """Subjects, in the order of their names' bytes."""

    subjects: list[ListedSubject]
    next_after: str | None = Field(
        description="`after` of the next page; null where nothing is left."
    )


class Lane(Shown):
    """A subject at an endpoint."""

    endpoint: str
    endpoint_state: EndpointState
    order_policy: OrderPolicy
    state: LaneState
    held: Held | None
    delivered_sequence: int
    last_sequence: int
    waiting: Count = Field(description="Entries; counted to 1,001.")
    head_sequence: int | None
    head_key: KeyText | None
    head_type: str | None
    head_created_at: Time | None
    attempt: int = Field(description="Tries of the head so far.")
    rescued: int = Field(
        description="Of these, used up no step of the schedule: their lease ran out, the receiver"
        " put them off with Retry-After, or the address was refused."
    )
    priority: int
    due_at: Time | None
    lease_until: Time | None
    dead_letter: int | None = Field(description="The number of the one that stops it.")
    dead_reason: DeadReason | None
    died_at: Time | None
    breaker: BreakerState
    breaker_until: Time | None
    held_until: Time | None


class Transition(Shown):
    """The state by which a stream's decisions about a subject repeat one, or are overtaken."""

    stream: str
    last_type: str
    last_occurred_at: Time
    updated_at: Time = Field(description="When its newest decision was written.")
    ahead: bool = Field(description="More than a day ahead of the clock: it silences the subject.")


class Subject(Shown):
    """A subject with its lanes and its newest entries."""

    name: str
    last_sequence: int
    last_type: str | None = Field(description="Of the stream that wrote it last.")
    last_occurred_at: Time | None = Field(description="Of the stream that wrote it last.")
    last_created_at: Time | None
    transitions: list[Transition]
    lanes: list[Lane]
    entries: list[ListedEntry] = Field(description="The newest 20.")


@router.get("", summary="List subjects.")
def list_subjects(
    session: Viewer,
    prefix: Annotated[Text, Query(description="What the name begins with.")] = "",
    held: Annotated[Held | None, Query(description="Only those of which a lane is so.")] = None,
    silenced: Annotated[
        bool,
        Query(description="Only those that a date more than a day ahead silences; 4,000 at most."),
    ] = False,
    limit: Limit = 50,
    after: Annotated[
        Text | None, Query(description="`next_after` of the page before this one.")
    ] = None,
) -> SubjectPage:
    """Return subjects in the order of their names.

    With `held` a page may be short, or empty, though `next_after` says that names follow.
    """
    with session.open(Subjects) as store:
        rows, further = store.subjects(
            WantedSubjects(prefix, held, silenced), limit=limit, after=after
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
    sequence: Annotated[Number | None, Query(description="One entry of it.")] = None,
    endpoint: Annotated[Name | None, Query(description="Only at this endpoint.")] = None,
) -> Why:
    """Return what it waits for: at each endpoint the head of its lane, or one entry."""
    with explaining(session, Explains) as store:
        if sequence is None:
            found = store.explain_subject(name, endpoint)
        else:
            found = store.explain_sequence(name, sequence, endpoint)
    return Why.of(name, found)

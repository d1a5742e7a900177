"""The answer of `holdfast why`, as the API gives it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self, TypeVar

from pydantic import Field

from dispatcher.api.access import Session
from dispatcher.api.shapes import Count, Json, KeyText, Shown, Time
from dispatcher.operators.why.rules import Verdict
from dispatcher.operators.why.store import Explained
from dispatcher.operators.why.store import Why as Explains
from dispatcher.operators.why.views import as_row
from sink.contract.exits import CommandError, ExitCode
from sink.contract.states import AccessRole, BreakerState, EndpointState, Outcome

Store = TypeVar("Store", bound=Explains)


@contextmanager
def explaining(session: Session, store: type[Store]) -> Iterator[Store]:
    """Lend what explains without what receivers answered: that is with the attempts, on demand.

    What other sessions of the database run is told to operators.
    """
    with session.open(store) as lent:
        lent.shows_answers = False
        lent.shows_queries = session.may(AccessRole.OPERATOR)
        yield lent


class Named(Shown):
    """An entry, without its body."""

    key: KeyText
    subject: str
    sequence: int
    type: str
    occurred_at: Time
    created_at: Time
    stream: str
    batch_id: int


class Holder(Shown):
    """A session that keeps something from everybody."""

    pid: int
    application: str
    state: str
    seconds: float
    query: str = Field(description="Its beginning; empty for viewers.")


class Said(Shown):
    """One answer."""

    verdict: Verdict
    needs_a_person: bool
    sentence: str
    also: list[str] = Field(description="What holds it up besides.")
    command: str | None = Field(description="What resolves it; null where nothing is to be done.")
    behind: "First | None" = Field(description="The entry that goes first, and why it waits.")
    holder: Holder | None


class First(Said):
    """The entry that goes first."""

    key: KeyText
    sequence: int


class Facts(Shown):
    """The figures behind an answer; null where there is none."""

    attempts: Count | None = None
    last_outcome: Outcome | None = None
    last_status: int | None = None
    last_tried_at: Time | None = None
    delivered_at: Time | None = None
    delivered_number: int | None = None
    receipt: Json | None = None
    due_at: Time | None = None
    lease_until: Time | None = None
    breaker: BreakerState | None = None
    breaker_until: Time | None = None
    held_until: Time | None = None
    endpoint_state: EndpointState | None = None
    acted_by: str | None = None
    acted_at: Time | None = None
    dead_letter: int | None = None
    due_before: int | None = None
    leased_lanes: int | None = None


class AtEndpoint(Said):
    """An answer for one endpoint."""

    endpoint: str
    entry: Named | None
    facts: Facts


class Why(Shown):
    """Why something is where it is."""

    asked: str
    verdict: Verdict = Field(description="That of the endpoint where it weighs most.")
    needs_a_person: bool
    entry: Named | None
    answer: Said | None = Field(description="Where no endpoint has anything to do with it.")
    endpoints: list[AtEndpoint]
    notes: list[str]

    @classmethod
    def of(cls, asked: str, found: Explained) -> Self:
        """Return the answer; raises `CommandError` (nothing matched) for what was never seen."""
        if found.verdict is Verdict.UNKNOWN and found.answer is not None:
            raise CommandError(found.answer.sentence, ExitCode.NOTHING_MATCHED)
        return cls.model_validate(as_row(asked, found))

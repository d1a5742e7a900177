"""Explanations (`holdfast why`) as API responses."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from pydantic import Field

from holdfast.dispatcher.api.access import Session
from holdfast.dispatcher.api.responses import Count, Json, KeyText, ResponseModel, Time
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.trace import Trace
from holdfast.dispatcher.operators.why.rules import Verdict
from holdfast.dispatcher.operators.why.store import Explanation
from holdfast.dispatcher.operators.why.store import Why as Explains
from holdfast.dispatcher.operators.why.views import as_row
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.states import AccessRole, BreakerState, EndpointState, Outcome

Store = TypeVar("Store", bound=Explains)


@contextmanager
def explaining(session: Session, store: type[Store]) -> Iterator[Store]:
    """Lend a store that explains without receivers' responses, which are part of the attempts, on
    demand.

    Queries of other database sessions are included for operators only.
    """
    with session.open(store) as lent:
        lent.shows_answers = False
        lent.shows_queries = session.may(AccessRole.OPERATOR)
        yield lent


class CachedTrace(Trace):
    """Explains for one page whose parts need the same: nothing is read twice."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self._read: dict[Key, Row] = {}
        self._answer_of: dict[Key, Explanation] = {}

    def entry(self, key: Key) -> Row:
        """Return the entry as `Entries.entry` does."""
        if key not in self._read:
            self._read[key] = super().entry(key)
        return self._read[key]

    def explain_key(self, key: Key, named: str, endpoint: str | None = None) -> Explanation:
        """Explain as `Why.explain_key` does; cached where it is about every endpoint."""
        if endpoint is not None or named:
            return super().explain_key(key, named, endpoint)
        if key not in self._answer_of:
            self._answer_of[key] = super().explain_key(key, named)
        return self._answer_of[key]


class Named(ResponseModel):
    """An entry, without its body."""

    key: KeyText
    subject: str
    sequence: int
    type: str
    occurred_at: Time
    written_at: Time
    stream: str
    batch_id: int


class Holder(ResponseModel):
    """A database session that holds a lock."""

    pid: int
    application: str
    state: str
    seconds: float
    query: str = Field(description="Beginning of the query; empty for viewers.")


class Said(ResponseModel):
    """One explanation."""

    verdict: Verdict
    needs_a_person: bool
    sentence: str
    also: list[str] = Field(description="Further reasons that hold it up.")
    command: str | None = Field(
        description="The command that resolves it; null if nothing is to be done."
    )
    behind: "First | None" = Field(description="The entry that goes first, and why it waits.")
    holder: Holder | None


class First(Said):
    """The entry that goes first."""

    key: KeyText
    sequence: int


class Facts(ResponseModel):
    """The figures behind an explanation; null if there is none."""

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
    """An explanation for one endpoint."""

    endpoint: str
    entry: Named | None
    facts: Facts


class Why(ResponseModel):
    """Why an entry or a subject is where it is."""

    asked: str
    verdict: Verdict = Field(description="The most severe verdict over all endpoints.")
    needs_a_person: bool
    entry: Named | None
    answer: Said | None = Field(description="Set if no endpoint is concerned.")
    endpoints: list[AtEndpoint]
    notes: list[str]

    @classmethod
    def of(cls, asked: str, explanation: Explanation) -> Self:
        """Return the response; raises `CommandError` (nothing matched) for a key or subject that
        was never seen.
        """
        if explanation.verdict is Verdict.UNKNOWN and explanation.answer is not None:
            raise CommandError(
                explanation.answer.sentence, ExitCode.NOTHING_MATCHED, code="nothing_matched"
            )
        return cls.model_validate(as_row(asked, explanation))

"""Decisions by hand: previewed, written by the sink's transaction, recorded.

An entry of them goes to the stream `<stream>.decide`, which acts for `<stream>`: both share the
state by which repeats are told. One that would follow a newer decision needs a second person.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from uuid import UUID, uuid4

from holdfast.dispatcher.operators.common.overtaking import overtaken
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.decisions.rules import (
    Action,
    ByHand,
    changes_nothing,
    moved,
    require_decidable,
)
from holdfast.dispatcher.operators.proposals.store import Proposals
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.exits import CommandError, ExitCode

_NO_DECISION: Row = {
    "last_sequence": 0,
    "stream": None,
    "type": None,
    "occurred_at": None,
    "sequence": None,
    "key": None,
    "own_type": None,
    "own_occurred_at": None,
}


class Decisions(Proposals):
    """Decisions by hand. A change and its audit row commit together."""

    def preview(
        self, stream: str, subject: str, action: Action, id_: UUID, seen: int | None
    ) -> Row:
        """Return what a decision would do now: `decision`, `body`, `newest`, `overtakes`, ...

        `seen` is the subject's last sequence of which the person knows; None is not compared.
        Raises `CommandError` where no person may decide, where it would change nothing, and where
        no endpoint takes it.
        """
        self._known_stream(stream)
        now: datetime = self._one("common/now")["now"]
        newest = self._newest_decision(subject, stream, action.type) or _NO_DECISION
        if seen is not None and newest["last_sequence"] != seen:
            raise moved(subject)
        require_decidable(self._one("decisions/stream", {"stream": stream}), subject, newest)
        if newest["own_type"] == action.type:
            raise changes_nothing(subject, action, newest)
        endpoints = self._all("decisions/endpoints", {"stream": stream, "type": action.type})
        if not endpoints:
            raise CommandError(
                f"no endpoint takes {action.type} of stream {stream!r}, so nobody would get it."
                " Nothing was changed; see `holdfast endpoint list`.",
                ExitCode.NOTHING_MATCHED,
                code="no_endpoint_takes_type",
            )
        decision = ByHand(stream, subject, action, id_, now)
        sequence = newest["last_sequence"]
        return {
            "decision": decision,
            "last_sequence": sequence,
            "sequence": sequence + 1,
            "body": decision.body(sequence + 1),
            "endpoints": [row["name"] for row in endpoints],
            "newest": None if newest["type"] is None else newest,
            "overtakes": overtaken(newest, now, action.type),
        }

    def offers(self, subject: str, streams: Iterable[Row]) -> dict[str, str]:
        """Return what a person may decide about a subject now, by stream.

        `streams` are its transition states.
        """
        return {
            row["stream"]: action.value
            for row in streams
            for action in Action
            if self._may(row["stream"], subject, action)
        }

    def _may(self, stream: str, subject: str, action: Action) -> bool:
        try:
            self.preview(stream, subject, action, uuid4(), None)
        except CommandError:
            return False
        return True

    def written(self, decision: ByHand) -> Row | None:
        """Return the entry of a decision that was written before, or None."""
        key = {"key": decision.key.digest, "subject": decision.subject}
        return self._maybe("decisions/written", key)

    def written_before(
        self, stream: str, subject: str, action: Action, id_: UUID | None
    ) -> ByHand | None:
        """Return the decision of an id that was written before, or None."""
        if id_ is None:
            return None
        decision = ByHand(stream, subject, action, id_, self._one("common/now")["now"])
        row = self.written(decision)
        return None if row is None else replace(decision, occurred_at=row["occurred_at"])

    def complete(self, decision: ByHand, reason: str) -> None:
        """Record a decision that a crashed process wrote and did not record."""
        known = {"target": target(decision.subject), "key": decision.key.text}
        with self._transaction():
            if not self._one("decisions/is_audited", known)["is_audited"]:
                self._audit_decision(decision, reason, {})

    def propose_decision(self, previewed: Row, reason: str) -> Row:
        """Propose what `preview` returned; write no entry yet. Returns the proposal."""
        decision: ByHand = previewed["decision"]
        detail = {
            "stream": decision.stream,
            "subject": decision.subject,
            "type": decision.action.type,
            "id": str(decision.id),
            "key": decision.key.text,
            "occurred_at": rfc3339(decision.occurred_at),
            "last_sequence": previewed["last_sequence"],
            "body": previewed["body"],
            "overtakes": previewed["overtakes"],
        }
        return self.propose(verb(decision.action), target(decision.subject), detail, reason)

    @contextmanager
    def writing(self, previewed: Row, reason: str) -> Iterator[None]:
        """Record the decision that the block writes: the row commits when the block ends well."""
        decision: ByHand = previewed["decision"]
        with self._transaction():
            self._audit_decision(decision, reason, {"last_sequence": previewed["last_sequence"]})
            yield

    @contextmanager
    def writing_approved(
        self, action: Action, subject: str, proposal: UUID, reason: str
    ) -> Iterator[tuple[ByHand, Row]]:
        """Yield an approved decision and its detail, which the block writes, and record it."""
        with self.applying(proposal, verb(action), target(subject)) as plan:
            detail = plan["detail"]
            decision = ByHand(
                detail["stream"],
                subject,
                action,
                UUID(detail["id"]),
                datetime.fromisoformat(detail["occurred_at"]),
            )
            who = {"planned_by": plan["actor"], "approved_by": plan["approved_by"]}
            self._audit_decision(decision, reason, {"proposal": proposal, **who})
            yield decision, detail

    def _audit_decision(self, decision: ByHand, reason: str, more: Row) -> None:
        detail = {"stream": decision.stream, "key": decision.key.text, "id": decision.id}
        self._audit(verb(decision.action), target(decision.subject), reason, {**detail, **more})


def verb(action: Action) -> str:
    """Return how the audit trail names a decision."""
    return f"decide.{action.value}"


def target(subject: str) -> str:
    """Return how the audit trail names its subject."""
    return f"subject {subject}"

"""The facts behind `holdfast why`: everything about an entry or a subject, in one snapshot."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
from psycopg import IsolationLevel

from holdfast.dispatcher.operators.attempts.store import Attempts
from holdfast.dispatcher.operators.cancellations.rules import cancellation
from holdfast.dispatcher.operators.cancellations.store import Cancellations
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.config.environment import reference_fault
from holdfast.dispatcher.operators.dead_letters.rules import without_answer
from holdfast.dispatcher.operators.subjects.rules import hold_of
from holdfast.dispatcher.operators.why import words
from holdfast.dispatcher.operators.why.lock_holders import holders, snapshot_holder, writing
from holdfast.dispatcher.operators.why.rules import (
    AT_REST,
    Answer,
    Conditions,
    ExplainedEntry,
    LaneHead,
    Verdict,
    judge,
)
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key

LOCK_SECONDS = 3
"""How long `why` itself waits for a table that another session has locked."""


@dataclass(frozen=True, slots=True)
class EndpointAnswer:
    """The answer at one endpoint, with its entry and the facts behind it."""

    endpoint: str
    answer: Answer
    entry: Row | None
    """`key` (as sent), `subject`, `sequence`, `type`, `occurred_at`, `written_at`."""
    facts: Row


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answers at all endpoints. `answer` is the only one when no endpoint is concerned."""

    entry: Row | None
    at_endpoints: list[EndpointAnswer]
    answer: Answer | None = None
    notes: list[str] = field(default_factory=list)
    """Sentences about what else may matter."""

    @property
    def verdict(self) -> Verdict:
        """The most important verdict: one that needs a person, then a waiting, then a final one."""
        if self.answer is not None:
            return self.answer.verdict
        return min((each.answer for each in self.at_endpoints), key=_weight).verdict

    @property
    def needs_a_person(self) -> bool:
        """Whether some answer needs a person."""
        answers = [each.answer for each in self.at_endpoints]
        answers += [self.answer] if self.answer else []
        return any(each.needs_a_person for each in answers)


class Why(Attempts):
    """Explains entries and subjects. Reads only."""

    shows_answers = True
    """Whether sentences may contain a receiver's answer."""

    shows_queries = True
    """Whether sentences may contain the query of another session."""

    def explain_key(self, key: Key, named: str, endpoint: str | None = None) -> Explanation:
        """Explain the entry of a key. `named` is another text of it: the key's parts as JSON."""
        with self._snapshot():
            batch = self._maybe("common/entry_key_find", {"key": key.digest})
            if batch is None:
                # A row that was no entry yet is kept with blanks between the parts.
                source = json.dumps(json.loads(named), ensure_ascii=False) if named else ""
                return self._unseen(key.text, [key.text, named, source])
            row = self._maybe("entries/find", {**batch, "key": key.digest})
            if row is None:
                return Explanation(None, [], self._unwritten(key, batch))
            return self._entry(row["subject_id"], row["sequence"], endpoint)

    def _unwritten(self, key: Key, batch: Row) -> Answer:
        """Return why the entry of a used key is not stored."""
        row = self._maybe("common/suppressed_cause", {**batch, "key": key.digest})
        if row is not None:
            command = f"holdfast suppressed show {key.text}"
            return Answer(Verdict.SUPPRESSED, words.suppressed(batch, row["cause"]), command)
        if self._one("why/day", {"at": batch["written_at"]})["stored"]:
            return Answer(Verdict.SUPPRESSED, words.suppressed(batch))
        cancelled = self.beside(Cancellations).of_key(key)
        return Answer(Verdict.PRUNED, words.pruned(batch, cancelled[0] if cancelled else None))

    def explain_sequence(
        self, subject: str, sequence: int, endpoint: str | None = None
    ) -> Explanation:
        """Explain the entry of a subject with this sequence.

        Raises `CommandError` (nothing matched) when it is not stored.
        """
        with self._snapshot():
            subject_row = self._maybe("why/subject", {"subject": subject})
            if subject_row is None:
                return self._unseen(subject, [json.dumps(subject, ensure_ascii=False)])
            if self._maybe("why/entry", {**subject_row, "sequence": sequence}) is None:
                last = subject_row["last_sequence"]
                raise CommandError(
                    f"sequence {sequence} of {subject!r} is not stored: the subject has had {last}"
                    " so far, and old partitions may have been dropped. Nothing was changed.",
                    ExitCode.NOTHING_MATCHED,
                    code="entry_not_stored",
                )
            return self._entry(subject_row["subject_id"], sequence, endpoint)

    def explain_subject(self, subject: str, endpoint: str | None = None) -> Explanation:
        """Explain what a subject waits for: the head of its lane at each endpoint."""
        with self._snapshot():
            subject_row = self._maybe("why/subject", {"subject": subject})
            if subject_row is None:
                return self._unseen(subject, [json.dumps(subject, ensure_ascii=False)])
            heads = self._all(
                "why/heads", {**subject_row, "endpoint_id": self.endpoint_id(endpoint)}
            )
            standing = [
                (
                    head,
                    *self._standing(
                        subject_row["subject_id"], head["sequence"], head["endpoint_id"]
                    ),
                )
                for head in heads
                if head["sequence"] is not None
            ]
            idle = [head for head in heads if head["sequence"] is None]
            conditions = self._conditions()
            answers = [
                self._endpoint_answer(entry, row, conditions)
                for _, entry, rows in standing
                for row in rows
            ]
            answers += [_idle(head, subject) for head in idle]
            answers.sort(key=lambda each: each.endpoint)
            return self._explanation(None, answers, conditions)

    def _entry(self, subject_id: int, sequence: int, endpoint: str | None) -> Explanation:
        entry, rows = self._standing(subject_id, sequence, self.endpoint_id(endpoint))
        replays = self._all("why/replays", {"subject_id": subject_id, "sequence": sequence})
        conditions = self._conditions()
        answers = [self._endpoint_answer(entry, row, conditions) for row in rows]
        explanation = self._explanation(entry, answers, conditions)
        explanation.notes.extend(words.replayed(str(each["id"])[:8]) for each in replays)
        return explanation

    def _standing(
        self, subject_id: int, sequence: int, endpoint_id: int | None
    ) -> tuple[Row, list[Row]]:
        """Return an entry and its rows of `why/standing`, with all facts that `judge` needs."""
        entry = self._one("why/entry", {"subject_id": subject_id, "sequence": sequence})
        most = words.DUE_COUNTED_MAX + 1
        rows = self._all(
            "why/standing", {**entry, "endpoint_id": endpoint_id, "due_before_max": most}
        )
        cancelled = self.beside(Cancellations).of_entry(subject_id, sequence)
        rows = [{**row, "cancelled": cancellation(cancelled, row["endpoint"])} for row in rows]
        return entry, [self._completed(row, entry) for row in rows]

    def _completed(self, row: Row, entry: Row) -> Row:
        row = {**row, "acted_by": None, "acted_at": None, "resolution": None, "head": None}
        row["receipt"] = None if row["receipt"] is None else json.loads(row["receipt"])
        row["on_hold"] = hold_of(row["on_hold"])
        row["not_allowed"] = reference_fault(row)
        if not self.shows_answers and row["dead_detail"] is not None:
            row["dead_detail"] = without_answer(row["dead_detail"])
        if row["endpoint_state"] != "active":
            action = f"endpoint.{row['endpoint_state']}"
            row |= self._maybe("why/action", {**row, "action": action}) or {}
        reached = row["lane_delivered_sequence"]
        if reached is not None and reached >= entry["sequence"] and not row["delivered_number"]:
            of = {"subject_id": entry["subject_id"], "sequence": entry["sequence"]}
            row |= self._maybe("why/resolved", {**row, **of}) or {}
        head = row["head_sequence"]
        if head is not None and head < entry["sequence"]:
            first, [its] = self._standing(entry["subject_id"], head, row["endpoint_id"])
            row["head"] = (first, its)
        return row

    def _endpoint_answer(self, entry: Row, row: Row, conditions: Conditions) -> EndpointAnswer:
        lane_head = None
        if row["head"] is not None:
            first, its = row["head"]
            answer = judge(its, _explained_entry(first), conditions)
            lane_head = LaneHead(Key(first["key"]).text, first["sequence"], answer)
        answer = judge(row, _explained_entry(entry), conditions, lane_head)
        facts = {name: row[name] for name in _FACTS}
        if row["on_hold"] is not None:
            facts["due_at"] = None
        return EndpointAnswer(row["endpoint"], answer, _shown(entry), facts)

    def _explanation(
        self, entry: Row | None, answers: list[EndpointAnswer], conditions: Conditions
    ) -> Explanation:
        answer = None
        if not answers:
            sentence = "no endpoint exists, so nothing is sent anywhere"
            answer = Answer(
                Verdict.NO_ENDPOINT,
                sentence,
                "holdfast endpoint add NAME --url URL --secret-ref REF",
            )
        holder = snapshot_holder(conditions.sessions)
        notes = [words.snapshot(holder)] if holder is not None else []
        return Explanation(None if entry is None else _shown(entry), answers, answer, notes)

    def _unseen(self, what: str, texts: list[str]) -> Explanation:
        rows = [
            row for text in texts if text for row in self._all("why/quarantined", {"text": text})
        ]
        if rows:
            quarantined = min(rows, key=lambda row: (row["resolution"] is not None, -row["id"]))
            verdict = Verdict.UNKNOWN if quarantined["resolution"] else Verdict.QUARANTINED
            command = f"holdfast quarantine show {quarantined['id']}"
            return Explanation(None, [], Answer(verdict, words.quarantined(quarantined), command))
        sentence = words.unknown(what, writing(self._conditions().sessions))
        return Explanation(None, [], Answer(Verdict.UNKNOWN, sentence, "holdfast entry list"))

    def _conditions(self) -> Conditions:
        """Read dispatchers and sessions; later statements have the login's rights."""
        at = self._one("why/moment")["at"]
        heartbeats = self._heartbeats()
        dispatchers = self._all("why/dispatchers", heartbeats)
        sessions = self._sessions("why/sessions")
        return Conditions(at, dispatchers, sessions, heartbeats["read_only"])

    def _sessions(self, name: str) -> list[Row]:
        self._run("common/login")
        rows = self._all(name)
        return rows if self.shows_queries else [{**row, "query": None} for row in rows]

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Read everything in one snapshot. For a locked table, the error names the holder."""
        self._connection.isolation_level = IsolationLevel.REPEATABLE_READ
        self._connection.read_only = True
        try:
            with self._transaction():
                self._run("why/patience", {"lock_timeout": f"{LOCK_SECONDS}s"})
                yield
        except psycopg.errors.LockNotAvailable:
            with self._transaction():
                lockers = holders(self._sessions("why/exclusive"))
            by_whom = f": {lockers[0]} has locked it" if lockers else ""
            command = f" If that session may be ended: {lockers[0].command}" if lockers else ""
            raise CommandError(
                f"a table of the outbox cannot be read{by_whom}, so nothing is delivered either."
                f" Nothing was changed.{command}",
                ExitCode.DEGRADED,
                code="table_locked",
            ) from None


_FACTS = (
    "attempts",
    "last_outcome",
    "last_status",
    "last_tried_at",
    "delivered_at",
    "delivered_number",
    "receipt",
    "due_at",
    "lease_until",
    "breaker",
    "breaker_until",
    "held_until",
    "endpoint_state",
    "acted_by",
    "acted_at",
    "dead_letter",
    "due_before",
    "leased_lanes",
)
"""The figures of an answer, by their column names in `why/standing`."""

_SHOWN = ("subject", "sequence", "type", "occurred_at", "written_at", "stream", "batch_id")


def _weight(answer: Answer) -> int:
    if answer.needs_a_person:
        return 0
    return 2 if answer.verdict in AT_REST else 1


def _explained_entry(entry: Row) -> ExplainedEntry:
    return ExplainedEntry(
        key=Key(entry["key"]).text,
        subject=entry["subject"],
        sequence=entry["sequence"],
        type=entry["type"],
        written_at=entry["written_at"],
        batch=entry,
    )


def _shown(entry: Row) -> Row:
    return {"key": Key(entry["key"]).text, **{name: entry[name] for name in _SHOWN}}


def _idle(head: Row, subject: str) -> EndpointAnswer:
    if head["waits"]:
        missing = head["lane_delivered_sequence"] + 1
        way_out = words.pass_missing(subject, head["endpoint"])
        answer = Answer(Verdict.GAP, words.gap(subject, missing), way_out)
        return EndpointAnswer(head["endpoint"], answer, None, {})
    row = {**head, "receipt": None if head["receipt"] is None else json.loads(head["receipt"])}
    hold = hold_of(head["on_hold"])
    also = () if hold is None else (words.on_hold(hold),)
    answer = Answer(Verdict.NOTHING_WAITS, words.nothing_waits(row), also=also)
    return EndpointAnswer(head["endpoint"], answer, None, {})

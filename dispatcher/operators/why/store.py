"""The facts behind `holdfast why`: everything about an entry or a subject, in one snapshot."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
from psycopg import IsolationLevel

from holdfast.dispatcher.operators.attempts.store import Attempts
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.config.environment import reference_fault
from holdfast.dispatcher.operators.dead_letters.rules import without_answer
from holdfast.dispatcher.operators.why import words
from holdfast.dispatcher.operators.why.lock_holders import holders, snapshot_holder, writing
from holdfast.dispatcher.operators.why.rules import (
    AT_REST,
    Ahead,
    Answer,
    Around,
    Subject,
    Verdict,
    judge,
)
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key

LOCK_SECONDS = 3
"""How long `why` itself waits for a table that another session has locked."""


@dataclass(frozen=True, slots=True)
class Here:
    """The answer at one endpoint, with its entry and the facts behind it."""

    endpoint: str
    answer: Answer
    entry: Row | None
    """`key` (as sent), `subject`, `sequence`, `type`, `occurred_at`, `written_at`."""
    facts: Row


@dataclass(frozen=True, slots=True)
class Explained:
    """The answers at all endpoints. `answer` is the only one when no endpoint is concerned."""

    entry: Row | None
    at_endpoints: list[Here]
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

    def explain_key(self, key: Key, named: str, endpoint: str | None = None) -> Explained:
        """Explain the entry of a key. `named` is another text of it: the key's parts as JSON."""
        with self._snapshot():
            batch = self._maybe("common/entry_key_find", {"key": key.digest})
            if batch is None:
                return self._unseen(key.text, [key.text, named])
            found = self._maybe("entries/find", {**batch, "key": key.digest})
            if found is None:
                return Explained(None, [], self._unwritten(key, batch))
            return self._entry(found["subject_id"], found["sequence"], endpoint)

    def _unwritten(self, key: Key, batch: Row) -> Answer:
        """Return why the entry of a used key is not stored."""
        found = self._maybe("common/suppressed_cause", {**batch, "key": key.digest})
        if found is not None:
            command = f"holdfast suppressed show {key.text}"
            return Answer(Verdict.SUPPRESSED, words.suppressed(batch, found["cause"]), command)
        if self._one("why/day", {"at": batch["written_at"]})["stored"]:
            return Answer(Verdict.SUPPRESSED, words.suppressed(batch))
        return Answer(Verdict.PRUNED, words.pruned(batch))

    def explain_sequence(
        self, subject: str, sequence: int, endpoint: str | None = None
    ) -> Explained:
        """Explain the entry of a subject with this sequence.

        Raises `CommandError` (nothing matched) when it is not stored.
        """
        with self._snapshot():
            found = self._maybe("why/subject", {"subject": subject})
            if found is None:
                return self._unseen(subject, [json.dumps(subject, ensure_ascii=False)])
            if self._maybe("why/entry", {**found, "sequence": sequence}) is None:
                last = found["last_sequence"]
                raise CommandError(
                    f"sequence {sequence} of {subject!r} is not stored: the subject has had {last}"
                    " so far, and old partitions may have been dropped. Nothing was changed.",
                    ExitCode.NOTHING_MATCHED,
                    code="entry_not_stored",
                )
            return self._entry(found["subject_id"], sequence, endpoint)

    def explain_subject(self, subject: str, endpoint: str | None = None) -> Explained:
        """Explain what a subject waits for: the head of its lane at each endpoint."""
        with self._snapshot():
            found = self._maybe("why/subject", {"subject": subject})
            if found is None:
                return self._unseen(subject, [json.dumps(subject, ensure_ascii=False)])
            heads = self._all("why/heads", {**found, "endpoint_id": self.endpoint_id(endpoint)})
            standing = [
                (head, *self._standing(found["subject_id"], head["sequence"], head["endpoint_id"]))
                for head in heads
                if head["sequence"] is not None
            ]
            idle = [head for head in heads if head["sequence"] is None]
            around = self._around()
            here = [self._here(entry, row, around) for _, entry, rows in standing for row in rows]
            here += [_idle(head, subject) for head in idle]
            here.sort(key=lambda each: each.endpoint)
            return self._explained(None, here, around)

    def _entry(self, subject_id: int, sequence: int, endpoint: str | None) -> Explained:
        entry, rows = self._standing(subject_id, sequence, self.endpoint_id(endpoint))
        replays = self._all("why/replays", {"subject_id": subject_id, "sequence": sequence})
        around = self._around()
        here = [self._here(entry, row, around) for row in rows]
        explained = self._explained(entry, here, around)
        explained.notes.extend(words.replayed(str(each["id"])[:8]) for each in replays)
        return explained

    def _standing(
        self, subject_id: int, sequence: int, endpoint_id: int | None
    ) -> tuple[Row, list[Row]]:
        """Return an entry and its rows of `why/standing`, with all facts that `judge` needs."""
        entry = self._one("why/entry", {"subject_id": subject_id, "sequence": sequence})
        most = words.DUE_COUNTED_MAX + 1
        rows = self._all(
            "why/standing", {**entry, "endpoint_id": endpoint_id, "due_before_max": most}
        )
        return entry, [self._completed(row, entry) for row in rows]

    def _completed(self, row: Row, entry: Row) -> Row:
        row = {**row, "acted_by": None, "acted_at": None, "resolution": None, "head": None}
        row["receipt"] = None if row["receipt"] is None else json.loads(row["receipt"])
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

    def _here(self, entry: Row, row: Row, around: Around) -> Here:
        ahead = None
        if row["head"] is not None:
            first, its = row["head"]
            answer = judge(its, _subject(first), around)
            ahead = Ahead(Key(first["key"]).text, first["sequence"], answer)
        answer = judge(row, _subject(entry), around, ahead)
        facts = {name: row[name] for name in _FACTS}
        return Here(row["endpoint"], answer, _shown(entry), facts)

    def _explained(self, entry: Row | None, here: list[Here], around: Around) -> Explained:
        answer = None
        if not here:
            said = "no endpoint exists, so nothing is sent anywhere"
            answer = Answer(
                Verdict.NO_ENDPOINT, said, "holdfast endpoint add NAME --url URL --secret-ref REF"
            )
        holder = snapshot_holder(around.sessions)
        notes = [words.snapshot(holder)] if holder is not None else []
        return Explained(None if entry is None else _shown(entry), here, answer, notes)

    def _unseen(self, what: str, texts: list[str]) -> Explained:
        rows = [
            row for text in texts if text for row in self._all("why/quarantined", {"text": text})
        ]
        if rows:
            found = min(rows, key=lambda row: (row["resolution"] is not None, -row["id"]))
            verdict = Verdict.UNKNOWN if found["resolution"] else Verdict.QUARANTINED
            command = f"holdfast quarantine show {found['id']}"
            return Explained(None, [], Answer(verdict, words.quarantined(found), command))
        said = words.unknown(what, writing(self._around().sessions))
        return Explained(None, [], Answer(Verdict.UNKNOWN, said, "holdfast entries list"))

    def _around(self) -> Around:
        """Read dispatchers and sessions; later statements have the login's rights."""
        at = self._one("why/moment")["at"]
        heartbeats = self._heartbeats()
        dispatchers = self._all("why/dispatchers", heartbeats)
        sessions = self._sessions("why/sessions")
        return Around(at, dispatchers, sessions, heartbeats["read_only"])

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
                found = holders(self._sessions("why/exclusive"))
            said = f": {found[0]} has locked it" if found else ""
            command = f" If that session may be ended: {found[0].command}" if found else ""
            raise CommandError(
                f"a table of the outbox cannot be read{said}, so nothing is delivered either."
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
"""The figures of an answer, by their column names in `why/sql/standing.sql`."""

_SHOWN = ("subject", "sequence", "type", "occurred_at", "written_at", "stream", "batch_id")


def _weight(answer: Answer) -> int:
    if answer.needs_a_person:
        return 0
    return 2 if answer.verdict in AT_REST else 1


def _subject(entry: Row) -> Subject:
    return Subject(
        key=Key(entry["key"]).text,
        subject=entry["subject"],
        sequence=entry["sequence"],
        type=entry["type"],
        written_at=entry["written_at"],
        batch=entry,
    )


def _shown(entry: Row) -> Row:
    return {"key": Key(entry["key"]).text, **{name: entry[name] for name in _SHOWN}}


def _idle(head: Row, subject: str) -> Here:
    if head["waits"]:
        missing = head["lane_delivered_sequence"] + 1
        way_out = words.pass_missing(subject, head["endpoint"])
        answer = Answer(Verdict.GAP, words.gap(subject, missing), way_out)
        return Here(head["endpoint"], answer, None, {})
    row = {**head, "receipt": None if head["receipt"] is None else json.loads(head["receipt"])}
    return Here(head["endpoint"], Answer(Verdict.NOTHING_WAITS, words.nothing_waits(row)), None, {})

"""Suppressed decisions: recorded and not written. Reads them, and writes an overtaken one.

Writing an overtaken decision needs two people. The sink writes the entry in its own transaction,
under a key that follows from the old one. After a crash between that and the record here, applying
the proposal again completes the record.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, NamedTuple
from uuid import UUID

from holdfast.dispatcher.operators.common.overtaking import overtaken
from holdfast.dispatcher.operators.common.paging import ALWAYS, bad_cursor
from holdfast.dispatcher.operators.common.session import OperatorSession, Row
from holdfast.dispatcher.operators.common.verbs import OfStream, OfSubject, Param, Since, Until
from holdfast.dispatcher.operators.proposals.store import Proposals
from holdfast.dispatcher.operators.quarantine.rules import sha256
from holdfast.dispatcher.operators.suppressed.rules import (
    new_key_of,
    obsolete,
    require_writable,
    state_json,
    text_of,
)
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.states import SuppressedCause

_PIECE_BITS = 43
_PLACE = re.compile(r"\d{1,18}(\.\d{1,13}){3}", re.ASCII)


class Place(NamedTuple):
    """A decision's position in the order of lists, the newest batch first."""

    batch_no: int
    key: UUID

    @classmethod
    def of(cls, text: str) -> "Place":
        """Read `text` as `str` writes it; raises `CommandError` for anything else."""
        if _PLACE.fullmatch(text):
            batch_no, *pieces = map(int, text.split("."))
            number = 0
            for piece in pieces:
                number = number << _PIECE_BITS | piece
            if max(pieces) < 1 << _PIECE_BITS and number < 1 << 128:
                return cls(batch_no, UUID(int=number))
        raise bad_cursor(text)

    def __str__(self) -> str:
        """Return it as a cursor of the API: numbers of at most 18 digits.

        >>> place = Place(7, UUID(int=2**128 - 1))
        >>> str(place), Place.of(str(place)) == place
        ('7.4398046511103.8796093022207.8796093022207', True)
        """
        lowest = (1 << _PIECE_BITS) - 1
        pieces = (self.key.int >> shift & lowest for shift in (2 * _PIECE_BITS, _PIECE_BITS, 0))
        return ".".join(map(str, (self.batch_no, *pieces)))


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of decisions; None means any. `since`, `until`: when they were suppressed."""

    stream: OfStream = None
    subject: OfSubject = None
    cause: Annotated[SuppressedCause | None, Param("Only this reason or cause.", label="Cause")] = (
        None
    )
    since: Since = None
    until: Until = None


class SuppressedDecisions(OperatorSession):
    """Reads of suppressed decisions."""

    def newest(
        self, filter_: Filter, *, limit: int, before: Place | None = None
    ) -> tuple[list[Row], Place | None]:
        """Return decisions without content, the newest first, and the cursor of the next page.

        All follow `before` in that order. The cursor is None on the last page. Raises
        `CommandError` (nothing matched) for an unknown stream or subject.
        """
        since, until = ALWAYS
        parameters: Row = {
            "cause": filter_.cause,
            "stream": filter_.stream,
            "since": filter_.since or since,
            "until": filter_.until or until,
            "before_batch_no": before and before.batch_no,
            "before_key": before and before.key,
            "limit": limit + 1,
        }
        if filter_.stream is not None:
            self._known_stream(filter_.stream)
        if filter_.subject is None:
            rows = self._all("suppressed/list", parameters)
        else:
            rows = self._of_subject(filter_.subject, parameters)
        last = rows[limit - 1] if len(rows) > limit else None
        place = None if last is None else Place(last["batch_no"], last["key"])
        return [{**row, "key": Key(row["key"]).text} for row in rows[:limit]], place

    def decision(self, key: Key) -> Row:
        """Return a suppressed decision with its content and its batch.

        `key_parts` is a list; `data` is JSON text, as it would have been sent; `state` is the
        transition state that the decision would be compared with now, None without any;
        `written_as` is the key under which it was written later, None if it was not. Raises
        `CommandError` (nothing matched) when the key was not suppressed, or its partition was
        dropped.
        """
        batch = self._maybe("common/entry_key_find", {"key": key.digest})
        row = batch and self._maybe("suppressed/find", {**batch, "key": key.digest})
        if batch is None or row is None:
            raise CommandError(
                f"no suppressed decision with the key {key.text} is stored. Nothing was changed;"
                f" `holdfast why {key.text}` says what became of it.",
                ExitCode.NOTHING_MATCHED,
                code="unknown_suppressed_decision",
            )
        state = self._maybe("suppressed/state", {**row, "stream": batch["stream"]})
        new_key = new_key_of(key)
        written = self._maybe("common/entry_key_find", {"key": new_key.digest})
        return {
            "key": key.text,
            **row,
            "key_parts": json.loads(row["key_parts"]),
            "batch": batch,
            "state": state,
            "written_as": None if written is None else new_key.text,
        }

    def _of_subject(self, subject: str, parameters: Row) -> list[Row]:
        subject_id = self._subject_id(subject)
        rows = self._all("suppressed/of_subject", {**parameters, "subject_id": subject_id})
        return [{"subject": subject, **row} for row in rows]


VERB = "suppressed.write"


class OvertakenDecisions(SuppressedDecisions, Proposals):
    """Writes of overtaken decisions: proposed, approved, recorded."""

    def propose_write(self, key: Key, reason: str, *, despite_later: bool = False) -> Row:
        """Propose to write an overtaken decision; write nothing yet.

        Returns the decision as `decision` does, with `new_key`; `newest` of the subject in all
        streams (`last_sequence`, `last_type`, `last_occurred_at`); `overtakes`, a result of
        `overtaken`; `later`, the count of the
        subject's decisions in this stream that occurred later and were suppressed too, and
        `newest_later` of them; `sha256` of the entry; `proposal`, `planned_by`, `approved_by`.
        Raises `CommandError` when it must not be written, or (nothing matched) is not stored.
        """
        decision = self.decision(key)
        detail = self._detail(key, decision)
        require_writable(decision)
        if detail["later"] and not despite_later:
            raise obsolete(decision, detail)
        made = self.propose(VERB, target(key), detail, reason)
        return {
            **decision,
            **{name: detail[name] for name in ("new_key", "sha256", "later", "newest_later")},
            "newest": self._one("reissue/subject", decision),
            "overtakes": detail.get("overtakes"),
            "proposal": made["id"],
            "planned_by": made["actor"],
            "approved_by": made["approved_by"],
        }

    @contextmanager
    def writing(
        self, key: Key, proposal: UUID, reason: str
    ) -> Iterator[tuple[Row, str, Row | None, int]]:
        """Yield what the block writes, and record it.

        The decision, its text, the one it overtakes, and the subject's last sequence before.

        A decision that was written before is only recorded. Raises `CommandError` unless the
        proposal is approved and of exactly this entry, and when the subject's state changed since.
        """
        with self.applying(proposal, VERB, target(key)) as plan:
            decision, detail = self.decision(key), plan["detail"]
            stream = decision["batch"]["stream"]
            sequence = self._last_sequence(decision["subject"], stream, decision["type"])
            text = text_of(decision)
            if (sha256(text), new_key_of(key).text) != (detail["sha256"], detail["new_key"]):
                raise CommandError(
                    f"proposal {proposal.hex[:8]} is of another entry than {key.text}. Nothing was"
                    " changed; propose it again.",
                    code="proposal_mismatch",
                )
            if decision["written_as"] is None:
                if self._detail(key, decision) != detail:
                    raise _moved(decision, proposal)
                require_writable(decision)
            self.try_audit()
            yield decision, text, detail.get("overtakes"), sequence
            audited = {name: detail[name] for name in ("subject", "type", "new_key", "sha256")}
            who = {"planned_by": plan["actor"], "approved_by": plan["approved_by"]}
            self._audit(VERB, key.text, reason, {**audited, "proposal": proposal, **who})

    def _detail(self, key: Key, decision: Row) -> Row:
        """Return exactly what would be written, and the subject's state that it depends on."""
        stream = decision["batch"]["stream"]
        later = self._maybe("suppressed/later", {**decision, "stream": stream})
        newest = self._newest_decision(decision["subject"], stream, decision["type"])
        over = overtaken(newest, decision["occurred_at"], decision["type"])
        return {
            **{name: decision[name] for name in ("subject", "type")},
            "occurred_at": rfc3339(decision["occurred_at"]),
            "stream": stream,
            "new_key": new_key_of(key).text,
            "sha256": sha256(text_of(decision)),
            "state": state_json(decision["state"]),
            "later": 0 if later is None else later["count"],
            "newest_later": later and _outward(later),
            **({"overtakes": over} if over else {}),
        }


def target(key: Key) -> str:
    """Return how proposals name a suppressed decision."""
    return f"suppressed {key.text}"


def _outward(row: Row) -> Row:
    members = {name: row[name] for name in ("type", "cause")}
    return {"key": Key(row["key"]).text, "occurred_at": rfc3339(row["occurred_at"]), **members}


def _moved(decision: Row, proposal: UUID) -> CommandError:
    short = proposal.hex[:8]
    return CommandError(
        f"the subject has changed since proposal {short}: a decision was written or suppressed, or"
        " it was repaired. Nothing was changed; end the proposal with `holdfast proposal cancel"
        f" {short} --reason TEXT`, see `holdfast suppressed show {decision['key']}`, and propose"
        " again if it should still be written.",
        code="proposal_outdated",
    )

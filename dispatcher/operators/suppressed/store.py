"""Decisions that were recorded and not written: a page of the newest, or one with its content."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from dispatcher.operators.common.session import OperatorSession, Row, operator_connection
from dispatcher.operators.suppressed.overtaken import new_key_of
from sink.contract.exits import CommandError, ExitCode
from sink.contract.key import Key
from sink.contract.states import SuppressedCause

_ALWAYS = (datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC))
_PIECE_BITS = 43
_PLACE = re.compile(r"\d{1,18}(\.\d{1,13}){3}", re.ASCII)


class Place(NamedTuple):
    """A decision's place in the order in which they are listed, the newest batch first."""

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
        raise CommandError(
            f"--before {text!r} is not what a page said of the next one. Nothing was changed;"
            " take `next_before` of its --json, or its last line.",
            ExitCode.USAGE,
        )

    def __str__(self) -> str:
        """Return it as an API's cursor: numbers of at most 18 digits.

        >>> place = Place(7, UUID(int=2**128 - 1))
        >>> str(place), Place.of(str(place)) == place
        ('7.4398046511103.8796093022207.8796093022207', True)
        """
        lowest = (1 << _PIECE_BITS) - 1
        pieces = (self.key.int >> shift & lowest for shift in (2 * _PIECE_BITS, _PIECE_BITS, 0))
        return ".".join(map(str, (self.batch_no, *pieces)))


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which decisions a command is about; None means any."""

    stream: str | None = None
    subject: str | None = None
    cause: SuppressedCause | None = None
    since: datetime | None = None
    """Suppressed at this moment or later."""

    until: datetime | None = None
    """Suppressed before this moment."""


class SuppressedDecisions(OperatorSession):
    """Reads of suppressed decisions; use `suppressed(dsn)` to get it."""

    def newest(
        self, wanted: Wanted, *, limit: int, before: Place | None = None
    ) -> tuple[list[Row], Place | None]:
        """Return decisions without their content, the newest first, and where the next page begins.

        All are behind `before` in that order. The place is None where nothing is left. Raises
        `CommandError` (nothing matched) where there is no such stream or subject.
        """
        since, until = _ALWAYS
        given: Row = {
            "cause": wanted.cause,
            "stream": wanted.stream,
            "since": wanted.since or since,
            "until": wanted.until or until,
            "before_batch_no": before and before.batch_no,
            "before_key": before and before.key,
            "limit": limit + 1,
        }
        if wanted.stream is not None:
            self._known_stream(wanted.stream)
        if wanted.subject is None:
            rows = self._all("suppressed/list", given)
        else:
            rows = self._of_subject(wanted.subject, given)
        last = rows[limit - 1] if len(rows) > limit else None
        place = None if last is None else Place(last["batch_no"], last["key"])
        return [{**row, "key": Key(row["key"]).text} for row in rows[:limit]], place

    def decision(self, key: Key) -> Row:
        """Return a suppressed decision with its content and its batch.

        `key_parts` is a list; `data` is JSON text, as it would have been sent; `state` is what the
        decision would be compared with now, None where its stream wrote nothing of the subject;
        `written_as` is the key under which it was written after all, None where it was not.
        Raises `CommandError` (nothing matched) where the key was not suppressed, or its day was
        dropped.
        """
        batch = self._maybe("common/entry_key_find", {"key": key.digest})
        found = batch and self._maybe("suppressed/find", {**batch, "key": key.digest})
        if batch is None or found is None:
            raise CommandError(
                f"no suppressed decision with the key {key.text} is stored. Nothing was changed;"
                f" `holdfast why {key.text}` says what became of it.",
                ExitCode.NOTHING_MATCHED,
            )
        state = self._maybe("suppressed/state", {**found, "stream": batch["stream"]})
        new_key = new_key_of(key)
        written = self._maybe("common/entry_key_find", {"key": new_key.digest})
        return {
            "key": key.text,
            **found,
            "key_parts": json.loads(found["key_parts"]),
            "batch": batch,
            "state": state,
            "written_as": None if written is None else new_key.text,
        }

    def _of_subject(self, subject: str, given: Row) -> list[Row]:
        found = self._maybe("common/entry_subject", {"subject": subject})
        if found is None:
            raise CommandError(
                f"no subject is called {subject!r}. Nothing was changed; names are compared exactly"
                " (`holdfast subjects list --prefix`).",
                ExitCode.NOTHING_MATCHED,
            )
        rows = self._all("suppressed/of_subject", {**given, "subject_id": found["id"]})
        return [{"subject": subject, **row} for row in rows]


@contextmanager
def suppressed(dsn: str | None) -> Iterator[SuppressedDecisions]:
    """Connect in the operator's role; raises `CommandError` when that is not possible."""
    with operator_connection(dsn) as connection:
        yield SuppressedDecisions(connection)

"""The messages that a connection sends from the claim of a delivery to its commit. No I/O.

A driver runs the generators `enter` and `leave`: it sends each message in one round trip and
returns the first row of its last statement, or throws the error in. A delivery is two round trips:
`BEGIN` and the claim, then `COMMIT`, with the service's block between them. In an open transaction
a savepoint replaces both, as a message of its own if messages can be cancelled; otherwise it is
inside them, at no extra round trip.
"""

from collections.abc import Generator, Sequence
from enum import Enum
from itertools import cycle
from typing import Protocol

from holdfast.receiver.claim import claiming, overlap
from holdfast.receiver.claim.one_trip import Texts, Way, ways
from holdfast.receiver.message.receipt import Receipt

Raw = Sequence[bytes | None] | None
"""A row in the text format of the wire protocol, or None."""

_WRONG_NAME = frozenset({"26000", "42P05"})
"""invalid_sql_statement_name, duplicate_prepared_statement."""
_NO_SAVEPOINT = "3B001"

UNDO_ALL = b"ROLLBACK"

UNCANCELLED = (b"SAVEPOINT", b"ROLLBACK TO")
"""How messages begin that fail the enclosing transaction, and other deliveries with it, if the
server cancels them. They wait for no lock.
"""

_savepoints = cycle(range(64))
"""Few names, because `pg_stat_statements` counts each name as a statement; more than one, because
the name identifies the block's own transaction at its end."""


class State(Enum):
    """The transaction state of the connection."""

    IDLE = "no transaction"
    OPEN = "a transaction"
    FAILED = "a transaction that can only be rolled back"
    LOST = "unknown: it is closed, or a statement is running"


class Session(Protocol):
    """What a block needs from its connection."""

    sent: int
    """Number of messages sent; without one, nothing needs to be undone."""
    frames: list[overlap.Frame]
    """The frames of the connection's open blocks, in order of their begin."""

    can_cancel: bool
    """The driver cancels a message that its task no longer waits for, but none of `UNCANCELLED`."""

    def state(self) -> State: ...

    def begin(self) -> bytes:
        """Return `BEGIN` with the connection's isolation level, access mode and deferrability."""

    def prepare_threshold(self) -> int | None: ...

    def made(self, name: str) -> int:
        """Return how many claims of that name were sent before, and count this one."""

    def close(self) -> None:
        """Close the connection, which rolls back everything uncommitted."""


class Block:
    """One use of `Inbox.receive`."""

    def __init__(self, texts: Texts, session: Session, steps: claiming.Steps) -> None:
        self._texts = texts
        self._session = session
        self._steps = steps
        self.frame: overlap.Frame

    def enter(self) -> Generator[bytes, Raw, Receipt]:
        """Begin, claim, and return the receipt. After an exception nothing remains.

        Raises `TakenBack` if the transaction on the connection is about to be rolled back.
        """
        overlap.must_be_free(self._session.frames)
        name, parameters = next(self._steps)
        self.frame = self._framed()
        try:
            raw = yield from self._claim(parameters)
            while True:
                try:
                    name, parameters = self._steps.send(self._row(name, raw))
                except StopIteration as done:
                    self.frame.receipt = done.value
                    return self.frame.receipt
                raw = yield self._texts.plain(name, parameters)
        except BaseException:
            yield from self._undone()
            raise

    def leave(self, *, ended_well: bool, in_turn: bool = True) -> Generator[bytes, Raw, None]:
        """Commit or roll back the block; raises `TakenBack` if it cannot commit.

        `in_turn`: the driver's own transactions are properly nested with the block.
        """
        frame, frames = self.frame, self._session.frames
        undone_later = overlap.left(frames, frame, in_turn=in_turn)
        if not ended_well or frame.overlaps:
            frame.take_back()
            if not undone_later:
                yield from self._undone()
            if ended_well:
                raise overlap.overlapped()
            return
        unclosed = self._session.sent
        try:
            yield from self._closed()
        except BaseException:
            frame.take_back()
            # If it was cancelled after its release, the savepoint is gone: rolling back to it
            # would fail the enclosing transaction, and with it other deliveries.
            if self._session.sent == unclosed or self._session.state() is not State.OPEN:
                yield from self._undone()
            raise
        overlap.kept(frames, frame)

    def abandon(self) -> None:
        """Roll the block back by closing the connection, because no message may be awaited."""
        overlap.left(self._session.frames, self.frame, in_turn=False)
        self.frame.take_back()
        self._session.close()

    def _framed(self) -> overlap.Frame:
        name = b"holdfast_%d" % next(_savepoints)
        open_, close = b"SAVEPOINT %s;" % name, b"RELEASE %s" % name
        if self._session.state() is not State.IDLE:
            undo = b"ROLLBACK TO %s;RELEASE %s" % (name, name)
            return overlap.Frame(open_, close, undo, owns_transaction=False)
        # At the end, the savepoint proves that this is still the same transaction.
        open_ = self._session.begin() + b";" + open_
        return overlap.Frame(open_, close + b";COMMIT", UNDO_ALL, owns_transaction=True)

    def _closed(self) -> Generator[bytes, Raw, None]:
        """Commit or release the block, with its result; raises `TakenBack` if it is gone."""
        receipt = self.frame.receipt
        claiming.must_be_open(open_=self._session.state() is State.OPEN)
        closing = self.frame.close
        if claiming.has_new_result(receipt):
            kept = claiming.result_of(receipt)
            closing = self._texts.plain("keep_result", kept) + b";" + closing
        claiming.passed_apply(receipt)
        try:
            yield closing
        except Exception as error:
            claiming.must_be_open(open_=_state_of(error) != _NO_SAVEPOINT)
            raise

    def _claim(self, parameters: dict[str, object]) -> Generator[bytes, Raw, Raw]:
        session, texts = self._session, self._texts
        given = ways(session.made(texts.name), session.prepare_threshold())
        for way in given:
            opening = self.frame.open
            try:
                if session.can_cancel and not self.frame.owns_transaction:
                    yield opening
                    opening = b""
                if way is Way.PREPARE:
                    yield opening + texts.prepare
                    opening = b""
                return (yield opening + texts.claim(way, parameters))
            except Exception as error:
                if way is given[-1] or _state_of(error) not in _WRONG_NAME:
                    raise
            yield self.frame.undo
        raise AssertionError("no form of the claim was sent")

    def _row(self, name: str, raw: Raw) -> claiming.Row | None:
        if raw is None:
            return None
        values = [None if value is None else value.decode("ascii") for value in raw]
        match name, values:
            case "claim", [str() as outcome, str() as microseconds, fenced]:
                return outcome, int(microseconds), fenced == "t"
            case "find", [sha256, outcome, result, str() as microseconds]:
                return sha256, outcome, result, int(microseconds)
        return values

    def _undone(self) -> Generator[bytes, Raw, None]:
        if not self._session.sent:
            return
        # An error is already being raised; a second one must not hide it.
        try:
            if self._session.state() in {State.OPEN, State.FAILED}:
                yield self.frame.undo
        except Exception:  # noqa: BLE001 - the driver's errors, which are not imported here
            return
        finally:
            # If it stayed open, the next delivery would join it, be answered, and never commit.
            if self.frame.owns_transaction and self._session.state() is not State.IDLE:
                self._session.close()


def _state_of(error: Exception) -> str | None:
    return getattr(error, "sqlstate", None)

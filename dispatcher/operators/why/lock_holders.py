"""Which transaction keeps others from a row, or the whole database from cleaning up.

A row's `xmax` names the transaction that locks or changes it, as long as that one runs. So it is
compared with the sessions of `why_sessions.sql`; a lock taken inside a savepoint is not seen this
way, but somebody who waits for it is.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dispatcher.operators.common.text import span
from dispatcher.shared.text import one_line

HELD_SECONDS = 5.0
"""How old a transaction is before it counts as one that holds something up."""

SNAPSHOT_SECONDS = 600.0
"""How old a snapshot is before it is worth a word: deleted versions of the hot rows pile up."""

DISPATCHER = "holdfast-dispatcher"
SINK = "holdfast sink"
"""What the names begin with under which the services connect."""

QUERY_CHARACTERS_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Holder:
    """A session whose transaction is open. `query` is the beginning of its newest statement."""

    pid: int
    application: str
    state: str
    seconds: float
    query: str

    def __str__(self) -> str:
        name = f"{self.application}, " if self.application else ""
        query = f": {self.query}" if self.query else ""
        return (
            f"pid {self.pid} ({name}{self.state}, its transaction open for"
            f" {span(self.seconds)}{query})"
        )

    @property
    def command(self) -> str:
        """What ends the session; its transaction rolls back."""
        return f"psql \"$HOLDFAST_DSN\" -c 'SELECT pg_terminate_backend({self.pid})'"


def row_holder(
    sessions: Sequence[Mapping[str, Any]], transactions: Collection[str]
) -> Holder | None:
    """Return who holds one of the rows with these `xmax`, or makes a dispatcher wait; the oldest.

    A dispatcher that stands still in the middle of a transaction counts like anybody else.
    """
    blocking: set[int] = set()
    for each in sessions:
        if each["application_name"].startswith(DISPATCHER):
            blocking |= set(each["blocked_by"] or ())
    found = [
        each
        for each in sessions
        if (_holds(each, transactions) or each["pid"] in blocking)
        and _age(each) >= HELD_SECONDS
        # Whoever waits himself is not the cause.
        and not each["blocked_by"]
    ]
    return _holder(max(found, key=_age)) if found else None


def snapshot_holder(sessions: Sequence[Mapping[str, Any]]) -> Holder | None:
    """Return who has held a snapshot longest, if that is longer than `SNAPSHOT_SECONDS`."""
    old = [each for each in sessions if each["snapshot"] and _age(each) >= SNAPSHOT_SECONDS]
    return _holder(max(old, key=_age)) if old else None


def holders(sessions: Sequence[Mapping[str, Any]]) -> list[Holder]:
    """Return sessions as they are shown."""
    return [_holder(each) for each in sessions]


def writing(sessions: Sequence[Mapping[str, Any]]) -> list[Holder]:
    """Return the sinks that are in a transaction: what they write cannot be seen yet."""
    return holders(
        [
            each
            for each in sessions
            if each["application_name"].startswith(SINK) and each["backend_xid"] is not None
        ]
    )


def _holds(session: Mapping[str, Any], transactions: Collection[str]) -> bool:
    return session["backend_xid"] is not None and session["backend_xid"] in transactions


def _age(session: Mapping[str, Any]) -> float:
    return float(session["transaction_seconds"] or 0.0)


def _holder(session: Mapping[str, Any]) -> Holder:
    query = one_line(session["query"] or "")
    if len(query) > QUERY_CHARACTERS_SHOWN:
        query = f"{query[:QUERY_CHARACTERS_SHOWN]} ..."
    return Holder(
        session["pid"],
        one_line(session["application_name"]),
        session["state"] or "in a transaction",
        _age(session),
        query or "no statement",
    )

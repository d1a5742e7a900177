"""Which session holds a row that delivery needs, or a snapshot that blocks VACUUM. Pure.

A row's `xmax` names the running transaction that locks or changes it, so it is compared with the
sessions of `why/sessions`. That misses a lock inside a savepoint, but not a session that waits
for it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.dispatcher.operators.common.text import span
from holdfast.dispatcher.shared.text import one_line

HELD_SECONDS = 5.0
"""Age from which a transaction counts as a blocker."""

SNAPSHOT_SECONDS = 600.0
"""Age from which a snapshot is reported: dead versions of the hot rows pile up."""

DISPATCHER = "holdfast-dispatcher"
SINK = "holdfast sink"
"""Prefixes of the services' `application_name`."""

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
        """The command that ends the session; its transaction rolls back."""
        return f"psql \"$HOLDFAST_DSN\" -c 'SELECT pg_terminate_backend({self.pid})'"


def row_holder(
    sessions: Sequence[Mapping[str, Any]], transactions: Collection[str]
) -> Holder | None:
    """Return the oldest session that holds a row with one of these `xmax`, or blocks a dispatcher.

    A dispatcher that hangs inside a transaction counts like any other session.
    """
    blocking: set[int] = set()
    for each in sessions:
        if each["application_name"].startswith(DISPATCHER):
            blocking |= set(each["blocked_by"] or ())
    candidates = [
        each
        for each in sessions
        if (_holds(each, transactions) or each["pid"] in blocking)
        and _age(each) >= HELD_SECONDS
        # A session that waits itself is not the cause.
        and not each["blocked_by"]
    ]
    return _holder(max(candidates, key=_age)) if candidates else None


def snapshot_holder(sessions: Sequence[Mapping[str, Any]]) -> Holder | None:
    """Return the session with the oldest snapshot, if it is older than `SNAPSHOT_SECONDS`."""
    old = [each for each in sessions if each["snapshot"] and _age(each) >= SNAPSHOT_SECONDS]
    return _holder(max(old, key=_age)) if old else None


def holders(sessions: Sequence[Mapping[str, Any]]) -> list[Holder]:
    """Return sessions as `Holder`s."""
    return [_holder(each) for each in sessions]


def writing(sessions: Sequence[Mapping[str, Any]]) -> list[Holder]:
    """Return the sinks that are in a transaction: their writes are not visible yet."""
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

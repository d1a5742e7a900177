"""Finds statements with a full scan of a large table, with EXPLAIN before each statement."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
from psycopg import ClientCursor

from holdfast.dispatcher.operators.common.session import OperatorSession, Row
from holdfast.dispatcher.operators.common.statements import statement

WHOLE = re.compile(r"Seq Scan on (?:entry|entry_key|attempt|lane)(?:_\d{8})?\b.*rows=(\d+)")
FEW = 10
"""A day without rows is read as fast as its index."""

READS = re.compile(rb"^(SELECT|WITH)", re.MULTILINE)


@dataclass
class Plans:
    """The statements that ran, and plans that read something large whole, by the name."""

    names: set[str] = field(default_factory=set)
    whole: dict[str, str] = field(default_factory=dict)

    def take(self, name: str, plan: str) -> None:
        """Note a statement's plan."""
        self.names.add(name)
        if any(int(rows) > FEW for rows in WHOLE.findall(plan)):
            self.whole[name] = plan


@contextmanager
def explaining(*, could: bool) -> Iterator[Plans]:
    """Explain every statement of an operator's session in this process, right before it runs.

    With `could` the planner avoids reading whole tables, so that one is read only where no index
    serves: in a small database it is right to read them. Otherwise plans are those that run.
    """
    plans, run = Plans(), OperatorSession._run

    def explained(
        self: OperatorSession, name: str, parameters: Row | None = None
    ) -> psycopg.Cursor[Row]:
        text = statement(name)
        if READS.search(text):
            plans.take(name, _plan(self._connection, text, parameters, could=could))
        return run(self, name, parameters)

    OperatorSession._run = explained  # type: ignore[method-assign]
    try:
        yield plans
    finally:
        OperatorSession._run = run  # type: ignore[method-assign]


def _plan(
    connection: psycopg.Connection[Row], text: bytes, parameters: Row | None, *, could: bool
) -> str:
    if could:
        connection.execute("SET enable_seqscan = off")
    rows = ClientCursor(connection).execute(b"EXPLAIN " + text, parameters).fetchall()
    if could:
        connection.execute("RESET enable_seqscan")
    return "\n".join(str(next(iter(row.values()))) for row in rows)

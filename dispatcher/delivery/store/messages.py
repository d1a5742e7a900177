"""Runs statements of a transaction, those that do not depend on each other in one pipeline.

Most of the cost of a small transaction is its round trips.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import Enum
from typing import Any

import psycopg
from psycopg import errors
from psycopg.rows import DictRow, tuple_row

from holdfast.dispatcher.delivery.store.pool import Connection
from holdfast.sink.contract import statements

Step = tuple[str, Mapping[str, Any] | None]
"""The name of a statement and its parameters."""


def statement(name: str) -> bytes:
    """Return a statement of this package, or one that operators have too for a name alone."""
    package = "holdfast.dispatcher.delivery.store" if "/" in name else "holdfast.dispatcher.shared"
    return statements.statement(package, name)


class Plans(Enum):
    """How the statements of a transaction are planned: values of `plan_cache_mode`."""

    AUTO = "auto"
    GENERIC = "force_generic_plan"
    """By generic plans, made once per session, for statements that run many times a second."""
    CUSTOM = "force_custom_plan"
    """By a new plan for the given parameters, each time."""


async def begin(
    connection: Connection, *steps: Step, plans: Plans = Plans.AUTO
) -> list[list[DictRow]]:
    """Open a transaction and run its first steps, in one round trip; returns the rows of each.

    Each step has its own snapshot. `plans` applies to the whole transaction.
    """
    async with _in_one_message(connection):
        await _begin(connection, plans)
        cursors = await _run(connection, steps)
    return [await cursor.fetchall() for cursor in cursors]


async def run_bare(
    connection: Connection, *steps: Step, begins: bool = False, commits: bool = False
) -> tuple[list[list[DictRow]], list[Any]]:
    """Run steps in one message; returns the rows of each, and apart from them those of the last.

    The last may return many rows; they are plain tuples, which are made quickest. With `begins` the
    message opens the transaction, on generic plans; with `commits` it ends it.
    """
    *steps_before, (name, parameters) = steps
    async with connection.cursor(binary=True, row_factory=tuple_row) as last_cursor:
        async with _in_one_message(connection):
            if begins:
                await _begin(connection, Plans.GENERIC)
            cursors = await _run(connection, steps_before)
            await last_cursor.execute(statement(name), parameters)
            if commits:
                await connection.execute(b"COMMIT")
        return [await cursor.fetchall() for cursor in cursors], await last_cursor.fetchall()


async def _begin(connection: Connection, plans: Plans) -> None:
    await connection.execute(b"BEGIN")
    await connection.execute(statement("connection/session"), {"plans": plans.value})


async def _run(connection: Connection, steps: Sequence[Step]) -> list[psycopg.AsyncCursor[DictRow]]:
    return [
        await connection.execute(statement(name), parameters, binary=True)
        for name, parameters in steps
    ]


async def finish(connection: Connection, *steps: Step) -> list[DictRow]:
    """Run the last steps and COMMIT, in one round trip; returns the rows of the last."""
    async with _in_one_message(connection):
        *_, cursor = await _run(connection, steps)
        await connection.execute(b"COMMIT")
    return await cursor.fetchall()


@asynccontextmanager
async def _in_one_message(connection: Connection) -> AsyncIterator[None]:
    """Pipeline the statements of the block, and wait for all results at its end."""
    ended = ""

    def on_notice(notice: errors.Diagnostic) -> None:
        nonlocal ended
        if notice.severity_nonlocalized == "FATAL":
            ended = notice.message_primary or ""

    connection.add_notice_handler(on_notice)
    try:
        async with connection.pipeline():
            yield
    except asyncio.CancelledError:
        # Its pipeline stops half way: the connection cannot be reused.
        await connection.close()
        raise
    except psycopg.OperationalError as error:
        # The server ended the session before it got the statements: report its reason.
        if error.sqlstate is None and ended:
            raise psycopg.OperationalError(ended) from None
        raise
    finally:
        connection.remove_notice_handler(on_notice)


async def run(
    connection: Connection, name: str, parameters: Mapping[str, Any] | None = None
) -> list[DictRow]:
    """Run the statement `name`; returns its rows, or an empty list if it returns none."""
    cursor = await connection.execute(statement(name), parameters, binary=True)
    return await cursor.fetchall() if cursor.description else []

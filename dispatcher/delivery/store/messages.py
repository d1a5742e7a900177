"""Statements of a transaction, as many of them in one message as do not need each other's answers.

Most of what a small transaction costs is the way to the server and back.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import Enum
from typing import Any

import psycopg
from psycopg import errors
from psycopg.rows import DictRow, tuple_row

from dispatcher.delivery.store.pool import Connection
from dispatcher.shared import statements

Step = tuple[str, Mapping[str, Any] | None]
"""The name of a statement and its parameters."""


def statement(name: str) -> bytes:
    """Return the text of `sql/{name}.sql`, or of a shared statement for a name without a folder."""
    return statements.statement("delivery/store" if "/" in name else "shared", name)


class Plans(Enum):
    """How the statements of a transaction are planned: values of `plan_cache_mode`."""

    AUTO = "auto"
    KEPT = "force_generic_plan"
    """By plans that a session makes once and keeps, for what is run many times a second."""
    ANEW = "force_custom_plan"
    """By a plan for the very parameters, each time."""


async def begin(
    connection: Connection, *steps: Step, plans: Plans = Plans.AUTO
) -> list[list[DictRow]]:
    """Open a transaction and take its first steps, all in one message; returns the rows of each.

    Each step has a snapshot of its own. `plans` holds for the whole transaction.
    """
    async with _in_one_message(connection):
        await _begin(connection, plans)
        cursors = await _run(connection, steps)
    return [await cursor.fetchall() for cursor in cursors]


async def finish_bare(
    connection: Connection, *steps: Step, last: Step, begins: bool = False
) -> tuple[list[list[DictRow]], list[Any]]:
    """Run the last steps and COMMIT, all in one message; returns the rows of each step.

    Those of the very last are as `run_bare` returns them. With `begins` it is a whole transaction,
    on kept plans.
    """
    async with connection.cursor(binary=True, row_factory=tuple_row) as many:
        async with _in_one_message(connection):
            if begins:
                await _begin(connection, Plans.KEPT)
            cursors = await _run(connection, steps)
            await many.execute(statement(last[0]), last[1])
            await connection.execute(b"COMMIT")
        return [await cursor.fetchall() for cursor in cursors], await many.fetchall()


async def _begin(connection: Connection, plans: Plans) -> None:
    await connection.execute(b"BEGIN")
    await connection.execute(statement("connection/session"), {"plans": plans.value})


async def _run(connection: Connection, steps: Sequence[Step]) -> list[psycopg.AsyncCursor[DictRow]]:
    return [
        await connection.execute(statement(name), parameters, binary=True)
        for name, parameters in steps
    ]


async def finish(connection: Connection, *steps: Step) -> list[DictRow]:
    """Run the last steps and COMMIT, all in one message; returns the rows of the last."""
    async with _in_one_message(connection):
        *_, cursor = await _run(connection, steps)
        await connection.execute(b"COMMIT")
    return await cursor.fetchall()


async def run_bare(
    connection: Connection, name: str, parameters: Mapping[str, Any] | None = None
) -> list[Any]:
    """Run a statement that returns many rows; they are plain tuples, which are made quickest."""
    async with connection.cursor(binary=True, row_factory=tuple_row) as cursor:
        await cursor.execute(statement(name), parameters)
        return await cursor.fetchall()


@asynccontextmanager
async def _in_one_message(connection: Connection) -> AsyncIterator[None]:
    """Send what is executed in the block together, and wait for all of it at its end."""
    ended = ""

    def heard(notice: errors.Diagnostic) -> None:
        nonlocal ended
        if notice.severity_nonlocalized == "FATAL":
            ended = notice.message_primary or ""

    connection.add_notice_handler(heard)
    try:
        async with connection.pipeline():
            yield
    except asyncio.CancelledError:
        # It stops in the middle of what it has sent: nobody else can use it.
        await connection.close()
        raise
    except psycopg.OperationalError as error:
        # Why the server ended the session before it was asked is no answer to what was sent.
        if error.sqlstate is None and ended:
            raise psycopg.OperationalError(ended) from None
        raise
    finally:
        connection.remove_notice_handler(heard)


async def run(
    connection: Connection, name: str, parameters: Mapping[str, Any] | None = None
) -> list[DictRow]:
    """Run the statement `name`; returns its rows, or an empty list for one that has none."""
    cursor = await connection.execute(statement(name), parameters, binary=True)
    return await cursor.fetchall() if cursor.description else []

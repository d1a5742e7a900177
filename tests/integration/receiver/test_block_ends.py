"""The end of a block on psycopg's connections: what is answered is committed, and nothing else is.

Other tasks use the connection, deliveries are cancelled at each of their steps, and blocks do with
the transaction what they should not.
"""

import asyncio
import re
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from enum import Enum
from typing import IO

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from holdfast.receiver import Delivery, Inbox, Receipt, Secret, TakenBack, answer, inbox, verify
from holdfast.receiver.claim.block import UNCANCELLED
from holdfast.sink.contract.wire import ReceiptOutcome
from tests.support.dispatch.sender import KEY_BYTES, Sent
from tests.support.servers.postgres_proxy import PostgresProxy

SECRET = Secret(KEY_BYTES)
APPLIED, DUPLICATE = ReceiptOutcome.APPLIED, ReceiptOutcome.DUPLICATE
IDLE, OPEN = TransactionStatus.IDLE, TransactionStatus.INTRANS
NAMES_MAX = 64


def delivery(sequence: int = 1, subject: str = "m_482") -> Delivery:
    sent = Sent.of(subject, "block", sequence)
    return verify(sent.headers, sent.content, [SECRET])


def kept(dsn: str) -> list[str]:
    """The subjects whose keys another session sees."""
    with psycopg.connect(dsn) as connection:
        return [
            name for (name,) in connection.execute("SELECT subject FROM payouts.inbox").fetchall()
        ]


@pytest.fixture
def connection(payouts_dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(payouts_dsn, autocommit=True) as connection:
        yield connection


def on_a_connection(dsn: str, case: Callable[[psycopg.AsyncConnection], Awaitable[None]]) -> None:
    async def run() -> None:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            await case(connection)

    asyncio.run(run())


async def _sending(connection: psycopg.AsyncConnection, query: str) -> asyncio.Task[None]:
    """Start `query` in another task, and return when it is on its way."""

    async def send() -> None:
        await connection.execute(query.encode(), prepare=False)

    task = asyncio.create_task(send())
    await asyncio.sleep(0)
    assert connection.info.transaction_status is TransactionStatus.ACTIVE
    return task


def test_block_that_raises_while_another_task_is_sending_is_taken_back(payouts_dsn: str) -> None:
    """Left open, the transaction would swallow the next delivery, which is answered."""

    async def case(connection: psycopg.AsyncConnection) -> None:
        tasks: list[asyncio.Task[None]] = []

        async def fail() -> None:
            async with Inbox().receive(connection, delivery(), subject="m_482"):
                tasks.append(await _sending(connection, "SELECT pg_sleep(0.05)"))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        await tasks[0]
        assert connection.info.transaction_status is IDLE
        async with Inbox().receive(connection, delivery(1, "m_7"), subject="m_7") as receipt:
            assert receipt.outcome is APPLIED
        assert kept(payouts_dsn) == ["m_7"]

    on_a_connection(payouts_dsn, case)


def test_block_ends_behind_what_another_task_is_sending(payouts_dsn: str) -> None:
    async def case(connection: psycopg.AsyncConnection) -> None:
        async with Inbox().receive(connection, delivery(), subject="m_482"):
            task = await _sending(connection, "SELECT pg_sleep(0.05)")
        await task
        assert kept(payouts_dsn) == ["m_482"]
        with pytest.raises(TakenBack):
            async with Inbox().receive(connection, delivery(1, "m_7"), subject="m_7"):
                task = await _sending(connection, "SELECT 1 / (pg_sleep(0.05)::text = '.')::int")
        with pytest.raises(psycopg.errors.DivisionByZero):
            await task
        assert connection.info.transaction_status is IDLE
        assert kept(payouts_dsn) == ["m_482"]

    on_a_connection(payouts_dsn, case)


def test_delivery_begins_behind_what_another_task_is_sending(payouts_dsn: str) -> None:
    async def case(connection: psycopg.AsyncConnection) -> None:
        task = await _sending(connection, "SELECT pg_sleep(0.05)")
        async with Inbox().receive(connection, delivery(), subject="m_482") as receipt:
            assert receipt.outcome is APPLIED
        await task
        assert kept(payouts_dsn) == ["m_482"]

    on_a_connection(payouts_dsn, case)


def test_end_that_is_cancelled_while_another_task_is_sending_keeps_nothing(
    payouts_dsn: str,
) -> None:
    async def case(connection: psycopg.AsyncConnection) -> None:
        begun: asyncio.Queue[Receipt] = asyncio.Queue()
        sending: list[asyncio.Task[None]] = []

        async def receive() -> None:
            async with (
                connection.transaction(),
                Inbox().receive(connection, delivery(), subject="m_482") as receipt,
            ):
                sending.append(await _sending(connection, "SELECT pg_sleep(0.2)"))
                begun.put_nowait(receipt)

        task = asyncio.create_task(receive())
        receipt = await begun.get()
        task.cancel()
        await asyncio.gather(task, *sending, return_exceptions=True)
        assert task.cancelled()
        with pytest.raises(TakenBack):
            answer(receipt, SECRET)
        assert kept(payouts_dsn) == []

    on_a_connection(payouts_dsn, case)


def _last_query(trace: IO[bytes]) -> bytes:
    """The newest message that libpq noted in its trace."""
    trace.seek(0)
    return re.findall(rb'\tF\t\d+\tQuery\t "([^"]*)', trace.read())[-1]


def test_delivery_that_is_cancelled_never_breaks_those_around_it(
    payouts_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch in one transaction: the first is answered, so the second must not undo it.

    A server that is busy may cancel a savepoint before it is set, and then nothing can go back to
    it: so none is cancelled, nor is the way back.
    """
    cancelled: list[bytes] = []

    async def case(connection: psycopg.AsyncConnection) -> None:
        connection.pgconn.trace(trace.fileno())
        cancel = connection.cancel_safe

        def noted(**options: float) -> Awaitable[None]:
            cancelled.append(_last_query(trace))
            return cancel(**options)

        monkeypatch.setattr(connection, "cancel_safe", noted)
        for steps in range(1, 25):
            first, second = f"first{steps}", f"second{steps}"

            async def receive(name: str = second) -> None:
                async with Inbox().receive(connection, delivery(1, name), subject=name):
                    pass

            async with connection.transaction():
                async with Inbox().receive(connection, delivery(1, first), subject=first):
                    pass
                task = asyncio.create_task(receive())
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                assert connection.info.transaction_status is OPEN
            assert first in kept(payouts_dsn)
        connection.pgconn.untrace()

    with tempfile.TemporaryFile() as trace:
        on_a_connection(payouts_dsn, case)
    assert cancelled
    assert not [each for each in cancelled if each.startswith(UNCANCELLED)]


def test_connection_is_closed_where_no_answer_follows_a_cancellation(
    payouts_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "_SILENCE_SECONDS", 0.05)

    async def case(connection: psycopg.AsyncConnection) -> None:
        async def receive() -> None:
            async with connection.transaction():
                proxy.swallow()
                async with Inbox().receive(connection, delivery(), subject="m_482"):
                    pass

        task = asyncio.create_task(receive())
        while not proxy.struck.is_set() or connection.info.transaction_status is OPEN:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        assert connection.closed

    with PostgresProxy(payouts_dsn) as proxy:
        on_a_connection(proxy.dsn, case)
    assert kept(payouts_dsn) == []


@pytest.mark.parametrize("autocommit", [True, False])
@pytest.mark.parametrize(
    "statements", [("ROLLBACK", "BEGIN"), ("ROLLBACK AND CHAIN",), ("COMMIT", "BEGIN")]
)
def test_block_that_is_in_another_transaction_at_its_end_is_no_answer(
    payouts_dsn: str, statements: tuple[str, ...], *, autocommit: bool
) -> None:
    with psycopg.connect(payouts_dsn, autocommit=autocommit) as connection, ExitStack() as stack:
        block = Inbox().receive_sync(connection, delivery(), subject="m_482")
        receipt = stack.enter_context(block)
        for statement in statements:
            connection.execute(statement.encode())
        with pytest.raises(TakenBack):
            stack.close()
        with pytest.raises(TakenBack):
            answer(receipt, SECRET)
        assert connection.info.transaction_status is IDLE


def test_transaction_that_cannot_be_undone_is_closed_with_its_connection(
    connection: psycopg.Connection, payouts_dsn: str
) -> None:
    left_open = ExitStack()

    def fail() -> None:
        with Inbox().receive_sync(connection, delivery(), subject="m_482"):
            left_open.enter_context(connection.pipeline())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert connection.closed
    with pytest.raises(psycopg.OperationalError):
        left_open.close()
    assert kept(payouts_dsn) == []


def test_block_that_confused_the_drivers_count_leaves_the_connection_usable(
    connection: psycopg.Connection,
) -> None:
    def confuse() -> None:
        with Inbox().receive_sync(connection, delivery(), subject="m_482"):
            connection.execute("ROLLBACK")
            connection.transaction().__enter__()

    with pytest.raises(psycopg.ProgrammingError):
        confuse()
    with connection.transaction():
        row = connection.execute("SELECT 1").fetchone()
    connection.commit()
    assert row == (1,)


def test_block_that_is_taken_back_takes_back_what_the_driver_planned_in_it(
    payouts_dsn: str,
) -> None:
    with psycopg.connect(payouts_dsn, autocommit=True, prepare_threshold=0) as connection:
        connection.execute("CREATE TABLE payouts.plan AS SELECT 1 AS one")

        def change() -> None:
            with Inbox().receive_sync(connection, delivery(), subject="m_482"):
                connection.execute("ALTER TABLE payouts.plan ADD COLUMN two int")
                connection.execute("SELECT * FROM payouts.plan")
                raise ZeroDivisionError

        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                change()
            assert connection.execute("SELECT * FROM payouts.plan").fetchall() == [(1,)]
            assert connection.execute("SELECT * FROM payouts.plan").fetchall() == [(1,)]


class Merchant(str, Enum):  # noqa: UP042 - StrEnum formats as its value
    """A text that is formatted as its name."""

    FIRST = "m_482"


class Hostile(str):
    """A text that claims to be another one."""

    __slots__ = ()

    def __format__(self, specification: str) -> str:
        return "'); DROP TABLE payouts.inbox; --"

    def __str__(self) -> str:
        return format(self)

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return format(self).encode(encoding, errors)


@pytest.mark.parametrize("subject", [Merchant.FIRST, Hostile("m_482"), Hostile("m_'482")])
def test_subject_is_the_characters_of_the_text_whatever_its_class(
    connection: psycopg.Connection, payouts_dsn: str, subject: str
) -> None:
    connection.prepare_threshold = 1
    for sequence in (1, 2):
        with Inbox().receive_sync(connection, delivery(sequence), subject=subject) as receipt:
            assert receipt.outcome is APPLIED
    assert kept(payouts_dsn) == ["".join(iter(subject))] * 2


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1", "SJIS", "UTF8"])
def test_result_comes_back_whatever_the_sessions_encoding_can_hold(
    connection: psycopg.Connection, encoding: str
) -> None:
    connection.execute(f"SET client_encoding = {encoding}".encode())
    with Inbox().receive_sync(connection, delivery(), subject="m_482") as receipt:
        receipt.result = {"wer": "Müller 商人"}
    with Inbox().receive_sync(connection, delivery(), subject="m_482") as again:
        assert (again.outcome, again.result) == (DUPLICATE, receipt.result)
    found = Inbox().inquire_sync(connection, receipt.key)
    assert found is not None
    assert found.result == receipt.result


def test_savepoints_have_few_names(connection: psycopg.Connection) -> None:
    """Servers before 17 count each name as another statement (`pg_stat_statements`)."""
    with tempfile.TemporaryFile() as trace:
        connection.pgconn.trace(trace.fileno())
        for sequence in range(1, NAMES_MAX * 2):
            with Inbox().receive_sync(connection, delivery(sequence), subject="m_482"):
                pass
        connection.pgconn.untrace()
        trace.seek(0)
        names = re.findall(rb"SAVEPOINT (\w+)", trace.read())
    assert len(names) > NAMES_MAX >= len(set(names))

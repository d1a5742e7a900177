"""The end of `Inbox.transaction` on psycopg's connections: what is answered is committed.

Other tasks use the connection, deliveries are cancelled at each of their steps, and blocks do with
the transaction what they should not.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, suppress
from enum import Enum

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from holdfast.receiver import Delivery, Inbox, Receipt, Secret, TakenBack, answer, verify
from holdfast.sink.contract.wire import ReceiptOutcome
from tests.support.dispatch.inboxes import receiving, receiving_async
from tests.support.dispatch.sender import KEY_BYTES, Sent

SECRET = Secret(KEY_BYTES)
APPLIED, DUPLICATE = ReceiptOutcome.APPLIED, ReceiptOutcome.DUPLICATE
IDLE = TransactionStatus.IDLE


def delivery(sequence: int = 1, subject: str = "m_482") -> Delivery:
    sent = Sent.of(subject, "block", sequence)
    return verify(sent.headers, sent.content, [SECRET])


def kept(dsn: str) -> list[str]:
    """The subjects whose keys another session sees."""
    with psycopg.connect(dsn) as connection:
        return [
            name for (name,) in connection.execute("SELECT subject FROM payouts.inbox").fetchall()
        ]


def is_answered(receipt: Receipt) -> bool:
    try:
        answer(receipt, SECRET)
    except TakenBack:
        return False
    return True


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


def test_block_raising_while_a_task_sends_is_rolled_back(payouts_dsn: str) -> None:
    """Left open, the transaction would swallow the next delivery, which is answered."""

    async def case(connection: psycopg.AsyncConnection) -> None:
        tasks: list[asyncio.Task[None]] = []

        async def fail() -> None:
            async with receiving_async(connection, delivery()):
                tasks.append(await _sending(connection, "SELECT pg_sleep(0.05)"))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        await tasks[0]
        assert connection.info.transaction_status is IDLE
        async with receiving_async(connection, delivery(1, "m_7"), "m_7") as receipt:
            assert receipt.outcome is APPLIED
        assert kept(payouts_dsn) == ["m_7"]

    on_a_connection(payouts_dsn, case)


@pytest.mark.parametrize(
    "query", ["SELECT pg_sleep(0.05)", "SELECT 1 / (pg_sleep(0.05)::text = '.')::int"]
)
def test_block_ending_while_a_task_sends_keeps_nothing(payouts_dsn: str, query: str) -> None:
    """The statement belongs to the transaction, and nobody knows yet whether it fails."""

    async def case(connection: psycopg.AsyncConnection) -> None:
        with pytest.raises(TakenBack):
            async with receiving_async(connection, delivery()) as receipt:
                task = await _sending(connection, query)
        await asyncio.gather(task, return_exceptions=True)
        assert not is_answered(receipt)
        assert connection.info.transaction_status is IDLE
        assert kept(payouts_dsn) == []

    on_a_connection(payouts_dsn, case)


def test_delivery_begins_behind_what_another_task_is_sending(payouts_dsn: str) -> None:
    async def case(connection: psycopg.AsyncConnection) -> None:
        task = await _sending(connection, "SELECT pg_sleep(0.05)")
        async with receiving_async(connection, delivery()) as receipt:
            assert receipt.outcome is APPLIED
        await task
        assert kept(payouts_dsn) == ["m_482"]

    on_a_connection(payouts_dsn, case)


def test_end_cancelled_while_a_task_sends_keeps_nothing(
    payouts_dsn: str,
) -> None:
    async def case(connection: psycopg.AsyncConnection) -> None:
        begun: asyncio.Queue[Receipt] = asyncio.Queue()
        sending: list[asyncio.Task[None]] = []

        async def receive() -> None:
            async with (
                connection.transaction(),
                receiving_async(connection, delivery()) as receipt,
            ):
                sending.append(await _sending(connection, "SELECT pg_sleep(0.2)"))
                begun.put_nowait(receipt)

        task = asyncio.create_task(receive())
        receipt = await begun.get()
        task.cancel()
        await asyncio.gather(task, *sending, return_exceptions=True)
        assert task.cancelled()
        assert not is_answered(receipt)
        assert kept(payouts_dsn) == []

    on_a_connection(payouts_dsn, case)


def test_delivery_cancelled_at_any_step_answers_what_is_kept(payouts_dsn: str) -> None:
    """A batch in one transaction: cancelling the second may fail both, never one silently."""

    async def case(connection: psycopg.AsyncConnection) -> None:
        for steps in range(1, 25):
            first, second = f"first{steps}", f"second{steps}"

            async def receive(name: str = second) -> None:
                async with receiving_async(connection, delivery(1, name), name):
                    pass

            with suppress(TakenBack):
                async with Inbox().transaction(connection):
                    async with receiving_async(connection, delivery(1, first), first) as receipt:
                        pass
                    task = asyncio.create_task(receive())
                    for _ in range(steps):
                        await asyncio.sleep(0)
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
            assert connection.info.transaction_status is IDLE
            assert is_answered(receipt) == (first in kept(payouts_dsn))

    on_a_connection(payouts_dsn, case)


@pytest.mark.parametrize("autocommit", [True, False])
@pytest.mark.parametrize("statement", ["ROLLBACK", "COMMIT", "SELECT 1 / 0"])
def test_block_without_an_open_transaction_at_its_end_is_no_answer(
    payouts_dsn: str, statement: str, *, autocommit: bool
) -> None:
    """The driver would report success: the server rolls back at such a COMMIT, without an error."""
    with psycopg.connect(payouts_dsn, autocommit=autocommit) as connection, ExitStack() as stack:
        receipt = stack.enter_context(receiving(connection, delivery()))
        with suppress(psycopg.errors.DivisionByZero):
            connection.execute(statement.encode())
        with pytest.raises(TakenBack):
            stack.close()
        assert not is_answered(receipt)
        assert connection.info.transaction_status is IDLE


@pytest.mark.parametrize(
    "statements", [("ROLLBACK", "BEGIN"), ("ROLLBACK AND CHAIN",), ("COMMIT", "BEGIN")]
)
def test_block_in_another_transaction_at_its_end_is_no_answer(
    connection: psycopg.Connection, statements: tuple[str, ...]
) -> None:
    """Its savepoint is gone."""
    with ExitStack() as stack:
        stack.enter_context(connection.transaction())
        receipt = stack.enter_context(receiving(connection, delivery()))
        for statement in statements:
            connection.execute(statement.encode())
        with pytest.raises(TakenBack):
            stack.close()
        assert not is_answered(receipt)
        assert connection.info.transaction_status is IDLE


def test_failed_rollback_closes_the_connection(
    connection: psycopg.Connection, payouts_dsn: str
) -> None:
    left_open = ExitStack()

    def fail() -> None:
        with receiving(connection, delivery()):
            left_open.enter_context(connection.pipeline())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert connection.closed
    with pytest.raises(psycopg.OperationalError):
        left_open.close()
    assert kept(payouts_dsn) == []


def test_miscounted_nesting_closes_the_connection(
    connection: psycopg.Connection, payouts_dsn: str
) -> None:
    """An open transaction would swallow what comes next on it."""

    def confuse() -> None:
        with receiving(connection, delivery()):
            connection.execute("ROLLBACK")
            connection.transaction().__enter__()

    with pytest.raises(psycopg.ProgrammingError):
        confuse()
    assert connection.closed
    assert kept(payouts_dsn) == []


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
def test_subject_is_plain_text_whatever_its_class(
    connection: psycopg.Connection, payouts_dsn: str, subject: str
) -> None:
    connection.prepare_threshold = 1
    for sequence in (1, 2):
        with receiving(connection, delivery(sequence), subject) as receipt:
            assert receipt.outcome is APPLIED
    assert kept(payouts_dsn) == ["".join(iter(subject))] * 2


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1", "SJIS", "UTF8"])
def test_result_comes_back_whatever_the_sessions_encoding_can_hold(
    connection: psycopg.Connection, encoding: str
) -> None:
    connection.execute(f"SET client_encoding = {encoding}".encode())
    with receiving(connection, delivery()) as receipt:
        Inbox().store_result_sync(connection, receipt, {"wer": "Müller 商人"})
    with receiving(connection, delivery()) as again:
        assert (again.outcome, again.result) == (DUPLICATE, receipt.result)
    result = Inbox().inquire_sync(connection, receipt.key)
    assert result is not None
    assert result.result == receipt.result

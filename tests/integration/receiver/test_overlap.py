"""Deliveries of several tasks on one connection: the second one is refused before it writes."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from holdfast.receiver import Delivery, Inbox, Receipt, Secret, TakenBack, answer, verify
from holdfast.sink.contract.wire import ReceiptOutcome
from tests.support.dispatch.inboxes import receiving_async
from tests.support.dispatch.sender import KEY_BYTES, Sent

SECRET = Secret(KEY_BYTES)
APPLIED = ReceiptOutcome.APPLIED
IDLE = TransactionStatus.IDLE

Case = Callable[[psycopg.AsyncConnection], Awaitable[None]]


def delivery(subject: str) -> Delivery:
    sent = Sent.of(subject, "block", 1)
    return verify(sent.headers, sent.content, [SECRET])


def kept(dsn: str) -> tuple[list[str], list[str]]:
    """The subjects whose keys another session sees, and whose actions it sees."""
    with psycopg.connect(dsn) as connection:
        keys = connection.execute("SELECT subject FROM payouts.inbox ORDER BY subject").fetchall()
        acts = connection.execute("SELECT subject FROM payouts.act ORDER BY subject").fetchall()
    return [name for (name,) in keys], [name for (name,) in acts]


def on_a_connection(dsn: str, case: Case, *, autocommit: bool = True) -> None:
    async def run() -> None:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=autocommit) as connection:
            await case(connection)

    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE payouts.act (subject text)")
    asyncio.run(run())


class Task:
    """A delivery in a task of its own: begins when it is made, ends when it is told to."""

    def __init__(self, connection: psycopg.AsyncConnection, subject: str) -> None:
        self.receipt: Receipt
        self._connection = connection
        self._subject = subject
        self._begun, self._told = asyncio.Event(), asyncio.Event()
        self._raising: Exception | None = None
        self._task = asyncio.create_task(self._run())

    @classmethod
    async def begun(cls, connection: psycopg.AsyncConnection, subject: str) -> "Task":
        task = cls(connection, subject)
        await task._begun.wait()
        return task

    async def end(self, raising: Exception | None = None) -> BaseException | None:
        """Act, then end the block, by `raising` if told so; returns what came out of it."""
        self._raising = raising
        self._told.set()
        (outcome,) = await asyncio.gather(self._task, return_exceptions=True)
        return outcome

    def is_answered(self) -> bool:
        try:
            return answer(self.receipt, SECRET).status == 200
        except TakenBack:
            return False

    async def _run(self) -> None:
        message = delivery(self._subject)
        async with receiving_async(self._connection, message, self._subject) as receipt:
            self.receipt = receipt
            self._begun.set()
            await self._told.wait()
            await self._connection.execute("INSERT INTO payouts.act VALUES (%s)", [self._subject])
            if self._raising:
                raise self._raising


@pytest.mark.parametrize("raising", [None, ZeroDivisionError("the action failed")])
def test_second_delivery_on_a_connection_is_refused(
    payouts_dsn: str, raising: Exception | None
) -> None:
    """The end of the first one would be its end: it would be answered, and perhaps undone."""

    async def case(connection: psycopg.AsyncConnection) -> None:
        one = await Task.begun(connection, "m_1")
        with pytest.raises(TakenBack, match="another task"):
            async with Inbox().transaction(connection):
                pytest.fail("it must not begin")
        two = asyncio.create_task(Inbox().receive(connection, delivery("m_2"), subject="m_2"))
        with pytest.raises(TakenBack, match="another task"):
            await two
        assert await one.end(raising) is raising
        assert one.is_answered() is (raising is None)
        names = [] if raising else ["m_1"]
        assert kept(payouts_dsn) == (names, names)
        again = await Task.begun(connection, "m_2")
        assert again.receipt.outcome is APPLIED
        assert await again.end() is None
        assert kept(payouts_dsn) == ([*names, "m_2"], [*names, "m_2"])

    on_a_connection(payouts_dsn, case)


@pytest.mark.parametrize("autocommit", [True, False])
def test_refused_delivery_leaves_an_outer_transaction_usable(
    payouts_dsn: str, *, autocommit: bool
) -> None:
    """What the service did in it before is committed, and so is a delivery that comes after."""

    async def case(connection: psycopg.AsyncConnection) -> None:
        async with connection.transaction():
            await connection.execute("INSERT INTO payouts.act VALUES ('outer')")
            one = await Task.begun(connection, "m_1")
            two = Task(connection, "m_2")
            assert isinstance(await two.end(), TakenBack)
            assert isinstance(await one.end(ZeroDivisionError()), ZeroDivisionError)
            three = await Task.begun(connection, "m_3")
            assert await three.end() is None
        assert [each.is_answered() for each in (one, three)] == [False, True]
        assert kept(payouts_dsn) == (["m_3"], ["m_3", "outer"])

    on_a_connection(payouts_dsn, case, autocommit=autocommit)


@pytest.mark.parametrize("fails", [True, False])
def test_inner_delivery_is_kept_and_answered_with_the_outer_one(
    payouts_dsn: str, *, fails: bool
) -> None:
    receipts: list[Receipt] = []

    async def nested(connection: psycopg.AsyncConnection) -> None:
        async with receiving_async(connection, delivery("m_1"), "m_1") as outer:
            receipts.append(outer)
            for name in ("m_2", "m_3"):
                async with receiving_async(connection, delivery(name), name) as inner:
                    receipts.append(inner)
            if fails:
                raise ZeroDivisionError

    async def case(connection: psycopg.AsyncConnection) -> None:
        with suppress(ZeroDivisionError):
            await nested(connection)
        assert connection.info.transaction_status is IDLE
        assert [each.taken_back for each in receipts] == [fails] * 3
        assert kept(payouts_dsn) == ([] if fails else ["m_1", "m_2", "m_3"], [])

    on_a_connection(payouts_dsn, case)


@pytest.mark.parametrize("outer", ["delivery", "transaction"])
def test_overlapping_delivery_and_driver_transaction_keep_nothing(
    payouts_dsn: str, outer: str
) -> None:
    async def case(connection: psycopg.AsyncConnection) -> None:
        begun, told = asyncio.Event(), asyncio.Event()

        async def transaction() -> None:
            async with connection.transaction():
                begun.set()
                await told.wait()

        async def start() -> asyncio.Task[None]:
            task = asyncio.create_task(transaction())
            await begun.wait()
            return task

        if outer == "delivery":
            task, other = await Task.begun(connection, "m_1"), await start()
            assert isinstance(await task.end(), psycopg.ProgrammingError)
            told.set()
            await other  # the driver ends a transaction on a closed connection without an error
        else:
            other, task = await start(), await Task.begun(connection, "m_1")
            told.set()
            with pytest.raises(psycopg.ProgrammingError):
                await other
            assert isinstance(await task.end(), psycopg.ProgrammingError)
        assert not task.is_answered()
        assert connection.closed
        assert kept(payouts_dsn) == ([], [])

    on_a_connection(payouts_dsn, case)

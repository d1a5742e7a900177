"""Deliveries of several tasks on one connection: one that ends out of turn keeps nothing."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from holdfast.receiver import Delivery, Inbox, Receipt, Secret, TakenBack, answer, verify
from holdfast.sink.contract.wire import ReceiptOutcome
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
        inbox, given = Inbox(), delivery(self._subject)
        async with inbox.receive(self._connection, given, subject=self._subject) as receipt:
            self.receipt = receipt
            self._begun.set()
            await self._told.wait()
            await self._connection.execute("INSERT INTO payouts.act VALUES (%s)", [self._subject])
            if self._raising:
                raise self._raising


@pytest.mark.parametrize("last", [None, ZeroDivisionError("the action failed")])
@pytest.mark.parametrize("first", [None, ZeroDivisionError("the action failed")])
def test_two_that_do_not_end_inside_of_each_other_keep_nothing(
    payouts_dsn: str, first: Exception | None, last: Exception | None
) -> None:
    async def case(connection: psycopg.AsyncConnection) -> None:
        one, two = await Task.begun(connection, "m_1"), await Task.begun(connection, "m_2")
        ends = [await one.end(first), await two.end(last)]
        for given, end in zip((first, last), ends, strict=True):
            assert end is given if given else isinstance(end, TakenBack)
        assert not one.is_answered()
        assert not two.is_answered()
        assert connection.info.transaction_status is IDLE
        assert kept(payouts_dsn) == ([], [])
        for subject in ("m_1", "m_2"):
            again = await Task.begun(connection, subject)
            assert again.receipt.outcome is APPLIED
            assert await again.end() is None
        assert kept(payouts_dsn) == (["m_1", "m_2"], ["m_1", "m_2"])

    on_a_connection(payouts_dsn, case)


@pytest.mark.parametrize("autocommit", [True, False])
def test_two_in_an_outer_transaction_leave_it_usable(payouts_dsn: str, *, autocommit: bool) -> None:
    """What the service did in it before is committed, and so is a delivery that comes after."""

    async def case(connection: psycopg.AsyncConnection) -> None:
        async with connection.transaction():
            await connection.execute("INSERT INTO payouts.act VALUES ('outer')")
            one, two = await Task.begun(connection, "m_1"), await Task.begun(connection, "m_2")
            assert isinstance(await one.end(), TakenBack)
            assert isinstance(await two.end(ZeroDivisionError()), ZeroDivisionError)
            three = await Task.begun(connection, "m_3")
            assert await three.end() is None
        assert [each.is_answered() for each in (one, two, three)] == [False, False, True]
        assert kept(payouts_dsn) == (["m_3"], ["m_3", "outer"])

    on_a_connection(payouts_dsn, case, autocommit=autocommit)


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0)])
def test_of_three_none_is_kept_that_another_one_was_open_in(
    payouts_dsn: str, order: tuple[int, ...]
) -> None:
    async def case(connection: psycopg.AsyncConnection) -> None:
        names = ["m_1", "m_2", "m_3"]
        tasks = [await Task.begun(connection, name) for name in names]
        for number in order:
            await tasks[number].end()
        answered = [name for name, task in zip(names, tasks, strict=True) if task.is_answered()]
        # The outermost ends last only in the last order: what it did is whole.
        assert answered == (["m_1"] if order[-1] == 0 else [])
        assert connection.info.transaction_status is IDLE
        assert kept(payouts_dsn) == (answered, answered)

    on_a_connection(payouts_dsn, case)


def test_no_delivery_begins_in_what_is_being_taken_back(payouts_dsn: str) -> None:
    """It would be answered, and then be undone with the delivery that is still open."""

    async def case(connection: psycopg.AsyncConnection) -> None:
        one, two = await Task.begun(connection, "m_1"), await Task.begun(connection, "m_2")
        await one.end()
        with pytest.raises(TakenBack, match="being rolled back"):
            async with Inbox().receive(connection, delivery("m_3"), subject="m_3"):
                pass
        await two.end()
        assert connection.info.transaction_status is IDLE
        three = await Task.begun(connection, "m_3")
        assert await three.end() is None
        assert kept(payouts_dsn) == (["m_3"], ["m_3"])

    on_a_connection(payouts_dsn, case)


def test_those_that_end_inside_of_each_other_are_kept(payouts_dsn: str) -> None:
    async def case(connection: psycopg.AsyncConnection) -> None:
        one, two = await Task.begun(connection, "m_1"), await Task.begun(connection, "m_2")
        assert (await two.end(), await one.end()) == (None, None)
        assert one.is_answered()
        assert two.is_answered()
        assert kept(payouts_dsn) == (["m_1", "m_2"], ["m_1", "m_2"])

    on_a_connection(payouts_dsn, case)


def test_inner_one_is_no_answer_where_the_outer_one_is_taken_back(payouts_dsn: str) -> None:
    async def case(connection: psycopg.AsyncConnection) -> None:
        one, two = await Task.begun(connection, "m_1"), await Task.begun(connection, "m_2")
        three = await Task.begun(connection, "m_3")
        assert (await three.end(), await two.end()) == (None, None)
        await one.end(ZeroDivisionError())
        assert [each.is_answered() for each in (one, two, three)] == [False] * 3
        assert kept(payouts_dsn) == ([], [])

    on_a_connection(payouts_dsn, case)


@pytest.mark.parametrize("outer", ["delivery", "transaction"])
def test_delivery_and_transaction_of_the_drivers_that_overlap_keep_nothing(
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
            assert isinstance(await task.end(), TakenBack)
            told.set()
            with pytest.raises(psycopg.ProgrammingError):
                await other
        else:
            other, task = await start(), await Task.begun(connection, "m_1")
            told.set()
            with pytest.raises(psycopg.ProgrammingError):
                await other
            assert isinstance(await task.end(), TakenBack)
        assert not task.is_answered()
        assert connection.info.transaction_status is IDLE
        assert kept(payouts_dsn) == ([], [])

    on_a_connection(payouts_dsn, case)


def test_ending_in_turn_costs_no_further_message(payouts_dsn: str) -> None:
    with (
        psycopg.connect(payouts_dsn, autocommit=True, prepare_threshold=None) as connection,
        tempfile.TemporaryFile() as trace,
    ):
        connection.pgconn.trace(trace.fileno())
        with Inbox().receive_sync(connection, delivery("m_1"), subject="m_1"):
            pass
        connection.pgconn.untrace()
        trace.seek(0)
        assert trace.read().count(b"\tQuery\t") == 2

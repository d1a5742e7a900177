"""Deliveries that overlap or come in any order, and keys beyond the window."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import count
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.pq import TransactionStatus

from holdfast.deploy.payouts.app import prune_all, receive
from holdfast.deploy.payouts.database import Pool, open_pool
from holdfast.deploy.payouts.metrics import Measures
from holdfast.receiver import Inbox, Receipt, Secret, TakenBack, answer, verify
from holdfast.sink.contract.wire import ReceiptOutcome
from tests.support.dispatch.inboxes import (
    SECRET,
    delivery,
    on_async_connection,
    receiving,
    receiving_async,
)
from tests.support.dispatch.sender import KEY_BYTES, Sent

APPLIED = ReceiptOutcome.APPLIED
IDLE = TransactionStatus.IDLE

Case = Callable[[psycopg.AsyncConnection], Awaitable[None]]


def kept(dsn: str) -> tuple[list[str], list[str]]:
    """The subjects whose keys another session sees, and whose actions it sees."""
    with psycopg.connect(dsn) as connection:
        keys = connection.execute("SELECT subject FROM payouts.inbox ORDER BY subject").fetchall()
        acts = connection.execute("SELECT subject FROM payouts.act ORDER BY subject").fetchall()
    return [name for (name,) in keys], [name for (name,) in acts]


def on_a_connection(dsn: str, case: Case, *, autocommit: bool = True) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE payouts.act (subject text)")
    on_async_connection(dsn, case, autocommit=autocommit)


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
        message = delivery(subject=self._subject)
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
        two = asyncio.create_task(
            Inbox().receive(connection, delivery(subject="m_2"), subject="m_2")
        )
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
        async with receiving_async(connection, delivery(subject="m_1"), "m_1") as outer:
            receipts.append(outer)
            for name in ("m_2", "m_3"):
                async with receiving_async(connection, delivery(subject=name), name) as inner:
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
        begun, reply = asyncio.Event(), asyncio.Event()

        async def transaction() -> None:
            async with connection.transaction():
                begun.set()
                await reply.wait()

        async def start() -> asyncio.Task[None]:
            task = asyncio.create_task(transaction())
            await begun.wait()
            return task

        if outer == "delivery":
            task, other = await Task.begun(connection, "m_1"), await start()
            assert isinstance(await task.end(), psycopg.ProgrammingError)
            reply.set()
            await other  # the driver ends a transaction on a closed connection without an error
        else:
            other, task = await start(), await Task.begun(connection, "m_1")
            reply.set()
            with pytest.raises(psycopg.ProgrammingError):
                await other
            assert isinstance(await task.end(), psycopg.ProgrammingError)
        assert not task.is_answered()
        assert connection.closed
        assert kept(payouts_dsn) == ([], [])

    on_a_connection(payouts_dsn, case)


def deliver(connection: psycopg.Connection[Any], sequence: int) -> Receipt:
    with receiving(connection, delivery(sequence)) as receipt:
        return receipt


def age(connection: psycopg.Connection[Any], days: int, *sequences: int) -> None:
    connection.execute(
        "UPDATE payouts.inbox SET received_at = now() - make_interval(days => %s)"
        " WHERE sequence = ANY(%s)",
        [days, list(sequences)],
    )


def kept_sequences(connection: psycopg.Connection[Any]) -> list[int]:
    rows = connection.execute("SELECT sequence FROM payouts.inbox ORDER BY sequence").fetchall()
    return [sequence for (sequence,) in rows]


def test_keys_beyond_the_window_are_forgotten_oldest_first_in_chunks(payouts_dsn: str) -> None:
    inbox = Inbox(window=timedelta(days=10))
    with psycopg.connect(payouts_dsn, autocommit=True) as connection:
        for sequence in range(1, 6):
            deliver(connection, sequence)
        age(connection, 9, 4)
        age(connection, 11, 1, 3)
        age(connection, 12, 2)
        assert inbox.prune_sync(connection, limit=1) == 1
        assert kept_sequences(connection) == [1, 3, 4, 5]
        assert inbox.prune_sync(connection, limit=10) == 2
        assert inbox.prune_sync(connection) == 0
        assert kept_sequences(connection) == [4, 5]


def test_forgotten_key_is_stale_when_repeated(payouts_dsn: str) -> None:
    with psycopg.connect(payouts_dsn, autocommit=True) as connection:
        assert deliver(connection, 1).outcome is ReceiptOutcome.APPLIED
        age(connection, 46, 1)
        assert Inbox().prune_sync(connection) == 1
        assert deliver(connection, 1).outcome is ReceiptOutcome.STALE
        assert deliver(connection, 2).outcome is ReceiptOutcome.APPLIED


def test_prune_belongs_to_the_transaction_that_it_is_called_in(payouts_dsn: str) -> None:
    with psycopg.connect(payouts_dsn, autocommit=True) as connection:
        deliver(connection, 1)
        age(connection, 46, 1)
        with connection.transaction(force_rollback=True):
            assert Inbox().prune_sync(connection) == 1
        assert kept_sequences(connection) == [1]


def test_two_prunes_share_the_work_and_do_not_wait(payouts_dsn: str) -> None:
    with (
        psycopg.connect(payouts_dsn, autocommit=True) as connection,
        psycopg.connect(payouts_dsn, options="-c lock_timeout=1s") as other,
    ):
        for sequence in range(1, 4):
            deliver(connection, sequence)
        age(connection, 46, 1, 2, 3)
        with connection.transaction():
            assert Inbox().prune_sync(connection, limit=2) == 2
            assert Inbox().prune_sync(other) == 1
    with psycopg.connect(payouts_dsn) as connection:
        assert kept_sequences(connection) == []


def test_service_forgets_everything_that_is_old(payouts_dsn: str) -> None:
    with psycopg.connect(payouts_dsn, autocommit=True) as connection:
        for sequence in range(1, 6):
            deliver(connection, sequence)
        age(connection, 46, 1, 2, 3, 4)

        async def run() -> int:
            async with open_pool(payouts_dsn) as pool:
                return await prune_all(pool, Inbox(), limit=2)

        assert asyncio.run(run()) == 4
        assert kept_sequences(connection) == [5]


def test_prune_reads_no_more_than_it_forgets(payouts_dsn: str) -> None:
    with psycopg.connect(payouts_dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO payouts.inbox"
            " SELECT 'hf_' || lpad(to_hex(n), 32, '0'), sha256(''), 'm', n, 'applied', NULL,"
            " now() - n * interval '1 min' FROM generate_series(1, 100000) n"
        )
        connection.execute("ANALYZE payouts.inbox")
        with connection.transaction():
            assert Inbox().prune_sync(connection, limit=10) == 10
            scans = connection.execute(
                "SELECT seq_scan FROM pg_stat_xact_user_tables"
                " WHERE relid = 'payouts.inbox'::regclass"
            ).fetchone()
    assert scans == (0,)


MERCHANTS = count()
Play = Callable[[list[Sent]], None]
Storm = Callable[[list[list[Sent]]], None]

ACTIONS = st.lists(st.sampled_from(["block", "release"]), min_size=1, max_size=6)
GROUPS = st.integers(min_value=1, max_value=4)
ARRIVALS = st.lists(st.integers(min_value=0, max_value=5), min_size=1, max_size=15)


@pytest.fixture
def play(payouts_dsn: str) -> Iterator[Play]:
    """Deliver one after another through the service, without HTTP."""
    with asyncio.Runner() as runner:
        pool = open_pool(payouts_dsn)
        runner.run(pool.open())
        yield lambda sent: runner.run(_deliver(pool, sent))
        runner.run(pool.close())


@pytest.fixture
def storm(payouts_dsn: str) -> Iterator[Storm]:
    """Deliver groups, each at once; what is told `in_progress` is sent again."""
    with asyncio.Runner() as runner:
        pool = open_pool(payouts_dsn)
        runner.run(pool.open())
        yield lambda groups: runner.run(_storm(pool, groups))
        runner.run(pool.close())


async def _storm(pool: Pool, groups: list[list[Sent]]) -> None:
    for group in groups:
        await asyncio.gather(*(_until_settled(pool, sent) for sent in group))


async def _until_settled(pool: Pool, sent: Sent) -> None:
    delivery = verify(sent.headers, sent.content, [Secret(KEY_BYTES)])
    while (await receive(pool, Inbox(), delivery, Measures())).status == 409:
        pass


async def _deliver(pool: Pool, plan: list[Sent]) -> None:
    for sent in plan:
        answer = await receive(
            pool, Inbox(), verify(sent.headers, sent.content, [Secret(KEY_BYTES)]), Measures()
        )
        assert answer.status == 200


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(actions=ACTIONS, arrivals=ARRIVALS)
def test_final_hold_is_the_highest_sequence_that_arrived(
    play: Play, payouts_dsn: str, actions: list[str], arrivals: list[int]
) -> None:
    merchant = f"m_{next(MERCHANTS)}"
    order = [number % len(actions) + 1 for number in arrivals]
    play([Sent.of(merchant, actions[sequence - 1], sequence) for sequence in order])

    with psycopg.connect(payouts_dsn) as connection:

        def rows(query: str) -> list[Any]:
            return connection.execute(query, [merchant]).fetchall()

        held = rows("SELECT held FROM payouts.hold WHERE merchant_id = %s")
        history = rows(
            "SELECT sequence, effect FROM payouts.hold_history WHERE merchant_id = %s"
            " ORDER BY arrival"
        )
        log = rows(
            "SELECT sequence, outcome FROM payouts.delivery_log WHERE subject = %s ORDER BY arrival"
        )
    assert bool(held and held[0][0]) is (actions[max(order) - 1] == "block")
    newest = [s for i, s in enumerate(order) if s > max(order[:i], default=0)]
    assert [sequence for sequence, _ in history] == newest
    assert [sequence for sequence, _ in log] == order
    assert [s for s, outcome in log if outcome == "applied"] == newest
    changes = [actions[s - 1] for s, effect in history if effect == "applied"]
    assert changes == ["block", "release"] * (len(changes) // 2) + ["block"] * (len(changes) % 2)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), transitions=st.integers(min_value=1, max_value=6), size=GROUPS)
def test_any_interleaving_ends_as_in_order_delivery_once_each_does(
    storm: Storm, payouts_dsn: str, data: st.DataObject, transitions: int, size: int
) -> None:
    """Each arrives at least once, in any order, with duplicates, `size` of them at once."""
    number = next(MERCHANTS)
    calm, wild = f"calm_{number}", f"wild_{number}"
    numbers = range(1, transitions + 1)
    more = data.draw(st.lists(st.sampled_from(numbers), max_size=8), label="duplicates")
    order = data.draw(st.permutations([*numbers, *more]), label="arrivals")

    def sent(merchant: str, sequence: int) -> Sent:
        return Sent.of(merchant, "block" if sequence % 2 else "release", sequence)

    storm([[sent(calm, sequence)] for sequence in numbers])
    storm(
        [
            [sent(wild, sequence) for sequence in order[start : start + size]]
            for start in range(0, len(order), size)
        ]
    )
    with psycopg.connect(payouts_dsn) as connection:

        def ended(merchant: str) -> list[Any]:
            return connection.execute(
                "SELECT coalesce(held, false), last_sequence FROM payouts.inbox_subject"
                " LEFT JOIN payouts.hold ON merchant_id = subject WHERE subject = %s",
                [merchant],
            ).fetchall()

        assert ended(wild) == ended(calm) == [(transitions % 2 == 1, transitions)]
        applied = connection.execute(
            "SELECT sequence FROM payouts.delivery_log WHERE subject = %s AND outcome = 'applied'",
            [wild],
        ).fetchall()
    assert len(applied) == len(set(applied))

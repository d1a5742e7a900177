"""How a block of the inbox ends, and the messages that it costs."""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from enum import Enum

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from holdfast.receiver import Delivery, Inbox, Receipt, TakenBack, answer
from holdfast.sink.contract.wire import ReceiptOutcome
from tests.support.dispatch.inboxes import (
    SECRET,
    delivery,
    is_answered,
    on_async_connection,
    receiving,
    receiving_async,
)
from tests.support.servers.pgbouncer import PgBouncer

APPLIED, DUPLICATE = ReceiptOutcome.APPLIED, ReceiptOutcome.DUPLICATE
IDLE = TransactionStatus.IDLE


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

    on_async_connection(payouts_dsn, case)


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

    on_async_connection(payouts_dsn, case)


def test_delivery_begins_behind_what_another_task_is_sending(payouts_dsn: str) -> None:
    async def case(connection: psycopg.AsyncConnection) -> None:
        task = await _sending(connection, "SELECT pg_sleep(0.05)")
        async with receiving_async(connection, delivery()) as receipt:
            assert receipt.outcome is APPLIED
        await task
        assert kept(payouts_dsn) == ["m_482"]

    on_async_connection(payouts_dsn, case)


def test_end_cancelled_while_a_task_sends_keeps_nothing(payouts_dsn: str) -> None:
    async def case(connection: psycopg.AsyncConnection) -> None:
        begun: asyncio.Queue[Receipt] = asyncio.Queue()
        sending: list[asyncio.Task[None]] = []

        async def receive() -> None:
            async with connection.transaction(), receiving_async(connection, delivery()) as receipt:
                sending.append(await _sending(connection, "SELECT pg_sleep(0.2)"))
                begun.put_nowait(receipt)

        task = asyncio.create_task(receive())
        receipt = await begun.get()
        task.cancel()
        await asyncio.gather(task, *sending, return_exceptions=True)
        assert task.cancelled()
        assert not is_answered(receipt)
        assert kept(payouts_dsn) == []

    on_async_connection(payouts_dsn, case)


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

    on_async_connection(payouts_dsn, case)


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


KEPT = "SELECT count(*) FROM payouts.inbox"


def receive(connection: psycopg.Connection, message: Delivery, subject: str = "m_482") -> Receipt:
    with receiving(connection, message, subject) as receipt:
        return receipt


def count(connection: psycopg.Connection, query: str = KEPT) -> int:
    row = connection.execute(query.encode(), prepare=False).fetchone()
    assert row is not None
    return int(row[0])


def test_delivery_is_three_messages(payouts_dsn: str) -> None:
    with (
        psycopg.connect(payouts_dsn, autocommit=True, prepare_threshold=None) as connection,
        tempfile.TemporaryFile() as trace,
    ):
        connection.pgconn.trace(trace.fileno())
        assert receive(connection, delivery()).outcome is APPLIED
        connection.pgconn.untrace()
        trace.seek(0)
        sent = trace.read()
    assert (sent.count(b"\tQuery\t"), sent.count(b"\tExecute\t")) == (2, 1)


def test_pooler_in_transaction_mode_changes_nothing(payouts_dsn: str) -> None:
    """Each transaction may get another session."""
    with PgBouncer(payouts_dsn, pool=2) as pooler, ExitStack() as stack:
        services = [
            stack.enter_context(
                psycopg.connect(pooler.dsn, autocommit=True, prepare_threshold=None)
            )
            for _ in range(3)
        ]
        for sequence in range(1, 13):
            one, other, third = services[sequence % 3 :] + services[: sequence % 3]
            with other.transaction():
                other.execute("SELECT 1", prepare=False)  # holds one of the two sessions
                assert receive(one, delivery(sequence)).outcome is APPLIED
            assert receive(third, delivery(sequence)).outcome is DUPLICATE
        assert count(services[0]) == 12


@pytest.mark.parametrize(
    "subject",
    [
        "o'neill",
        'a"b\\',
        "\\'; DROP TABLE payouts.inbox; --",
        "händler 商人",
        "%s {0} $1",
        "",
        "\n",
    ],
)
@pytest.mark.parametrize("encoding", ["UTF8", "LATIN1"])
def test_any_text_is_a_subject_and_is_kept_as_it_is(
    connection: psycopg.Connection, subject: str, encoding: str
) -> None:
    connection.execute("SET standard_conforming_strings = off")
    connection.execute("SET escape_string_warning = off")
    connection.execute(f"SET client_encoding = {encoding}".encode())
    connection.prepare_threshold = 1
    for sequence in (1, 2):
        assert receive(connection, delivery(sequence), subject).outcome is APPLIED
    kept = connection.execute(
        "SELECT encode(convert_to(subject, 'UTF8'), 'hex') FROM payouts.inbox"
    )
    assert kept.fetchall() == [(subject.encode().hex(),)] * 2


@pytest.mark.parametrize("subject", ["m_482", "händler"])
def test_key_and_fence_of_any_subject_are_found_by_index(
    connection: psycopg.Connection, subject: str
) -> None:
    """A text that was bytes has another collation than the columns, unless it is given theirs."""
    connection.execute("SET enable_seqscan = off")
    scans = "SELECT sum(seq_scan) FROM pg_stat_xact_user_tables WHERE schemaname = 'payouts'"
    with connection.transaction():
        for message in (delivery(2), delivery(2), delivery(1)):
            Inbox().receive_sync(connection, message, subject=subject)
        assert connection.execute(scans.encode()).fetchone() == (0,)


def test_subject_invalid_in_postgres_is_refused(connection: psycopg.Connection) -> None:
    with pytest.raises(psycopg.DataError):
        receive(connection, delivery(), "m\x00482")
    assert connection.info.transaction_status is TransactionStatus.IDLE
    assert count(connection) == 0


def test_times_and_results_are_independent_of_session_formats(
    connection: psycopg.Connection,
) -> None:
    connection.execute("SET TimeZone = 'Asia/Kathmandu'")
    connection.execute("SET DateStyle = 'SQL, DMY'")
    connection.execute("SET bytea_output = 'escape'")
    with receiving(connection, delivery()) as first:
        Inbox().store_result_sync(connection, first, {"wer": "Müller"})
    again = receive(connection, delivery())
    assert (again.outcome, again.result) == (DUPLICATE, {"wer": "Müller"})
    assert again.applied_at == first.applied_at is not None
    connection.execute("SET DateStyle = 'ISO'")  # the only one that the driver itself reads
    shown = connection.execute("SELECT received_at FROM payouts.inbox").fetchone()
    assert shown == (first.applied_at,)


def test_connection_isolation_level_applies_to_the_transaction(
    connection: psycopg.Connection,
) -> None:
    connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
    connection.deferrable = True
    with receiving(connection, delivery()):
        row = connection.execute(
            "SELECT current_setting('transaction_isolation'),"
            " current_setting('transaction_deferrable')"
        ).fetchone()
    assert row == ("serializable", "on")
    connection.read_only = True
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        receive(connection, delivery(2))
    assert connection.info.transaction_status is TransactionStatus.IDLE


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_driver_refuses_to_end_the_transaction_inside_the_block(
    connection: psycopg.Connection, ending: str
) -> None:
    with (
        pytest.raises(psycopg.ProgrammingError, match="forbidden within a Transaction"),
        receiving(connection, delivery()),
    ):
        getattr(connection, ending)()
    assert count(connection) == 0
    assert receive(connection, delivery()).outcome is APPLIED
    connection.commit()


def test_driver_transactions_nest_around_and_inside_the_block(
    connection: psycopg.Connection,
) -> None:
    with connection.transaction(), receiving(connection, delivery()):
        with connection.transaction(force_rollback=True):
            connection.execute("CREATE TABLE payouts.undone ()")
        with connection.transaction():
            connection.execute("CREATE TABLE payouts.done ()")
    assert count(connection) == 1
    tables_there = connection.execute(
        "SELECT to_regclass('payouts.done'), to_regclass('payouts.undone')"
    )
    assert tables_there.fetchone() == ("payouts.done", None)


def test_block_that_closes_its_connection_is_no_answer(connection: psycopg.Connection) -> None:
    """The driver ends a transaction on a closed connection without an error."""
    with ExitStack() as stack:
        receipt = stack.enter_context(receiving(connection, delivery()))
        connection.close()
        with pytest.raises(TakenBack):
            stack.close()
        with pytest.raises(TakenBack):
            answer(receipt, SECRET)


@pytest.mark.parametrize("outer", [True, False])
def test_block_that_hides_a_failed_statement_is_no_answer(
    connection: psycopg.Connection, *, outer: bool
) -> None:
    """COMMIT would end such a transaction without an error, and keep nothing."""
    with ExitStack() as stack:
        if outer:
            stack.enter_context(connection.transaction())
            connection.execute("CREATE TABLE payouts.kept ()")
        block = ExitStack()
        receipt = block.enter_context(receiving(connection, delivery()))
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("SELECT 1 / 0")
        with pytest.raises(TakenBack):
            block.close()
        with pytest.raises(TakenBack):
            answer(receipt, SECRET)
    assert count(connection) == 0
    assert count(connection, "SELECT count(to_regclass('payouts.kept'))") == outer


def test_failed_inner_block_rolls_back_only_itself(connection: psycopg.Connection) -> None:
    with receiving(connection, delivery(1)) as outer:
        with pytest.raises(ZeroDivisionError), receiving(connection, delivery(1, "m_7"), "m_7"):
            raise ZeroDivisionError
        with receiving(connection, delivery(1, "m_8"), "m_8") as inner:
            assert inner.outcome is APPLIED
    assert outer.outcome is APPLIED
    rows = connection.execute("SELECT subject FROM payouts.inbox ORDER BY 1").fetchall()
    assert rows == [("m_482",), ("m_8",)]


def test_result_that_the_table_refuses_takes_the_action_back(
    connection: psycopg.Connection,
) -> None:
    connection.execute("ALTER TABLE payouts.inbox ADD CHECK (result IS NULL)")
    with pytest.raises(psycopg.errors.CheckViolation), receiving(connection, delivery()) as receipt:
        Inbox().store_result_sync(connection, receipt, {"hold": 7})
    assert connection.info.transaction_status is TransactionStatus.IDLE
    assert count(connection) == 0
    with pytest.raises(TakenBack):
        answer(receipt, SECRET)


async def _cancelled_after(
    connection: psycopg.AsyncConnection, sequence: int, steps: int
) -> TransactionStatus:
    async def receive() -> None:
        async with receiving_async(connection, delivery(sequence)):
            pass

    task = asyncio.create_task(receive())
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return connection.info.transaction_status


def test_cancelled_delivery_leaves_its_connection_without_a_transaction(payouts_dsn: str) -> None:
    async def each() -> list[TransactionStatus]:
        async with await psycopg.AsyncConnection.connect(
            payouts_dsn, autocommit=True, prepare_threshold=3
        ) as connection:
            return [await _cancelled_after(connection, steps + 1, steps) for steps in range(30)]

    assert set(asyncio.run(each())) == {TransactionStatus.IDLE}


def test_lost_connection_is_the_drivers_error_and_no_answer(
    connection: psycopg.Connection, payouts_dsn: str
) -> None:
    kept: list[Receipt] = []

    def lose() -> None:
        with receiving(connection, delivery()) as receipt:
            kept.append(receipt)
            with psycopg.connect(payouts_dsn, autocommit=True) as other:
                other.execute(
                    "SELECT pg_terminate_backend(%s, 10000)", [connection.info.backend_pid]
                )

    with pytest.raises(psycopg.OperationalError):
        lose()
    with pytest.raises(TakenBack):
        answer(kept[0], SECRET)

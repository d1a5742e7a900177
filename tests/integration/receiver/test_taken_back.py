"""Receipts that are taken back, and the inbox in SQLAlchemy sessions."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import psycopg
import pytest
from psycopg.pq import PipelineStatus
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from holdfast.receiver import Inbox, NoTransaction, Receipt, TakenBack, UnsupportedDriver, answer
from holdfast.receiver.sqlalchemy_inbox import (
    async_connection_of,
    connection_of,
    transaction,
    transaction_async,
)
from holdfast.sink.contract.wire import ReceiptOutcome
from tests.support.dispatch.inboxes import (
    DRIVERS,
    INBOX,
    SECRET,
    SUBJECT,
    Driver,
    async_engine_of,
    delivery,
    engine_of,
    is_answered,
    on_a_connection,
    receiving,
    receiving_async,
)

CIRCULAR: list[Any] = []
CIRCULAR.append(CIRCULAR)


class Base(DeclarativeBase):
    pass


class Kept(Base):
    __tablename__ = "orm_kept"
    __table_args__ = {"schema": "payouts"}  # noqa: RUF012 - SQLAlchemy's own form

    merchant: Mapped[str] = mapped_column(primary_key=True)


def test_receipt_of_a_block_that_rolled_back_is_no_answer(payouts_dsn: str) -> None:
    with psycopg.connect(payouts_dsn) as connection:
        with receiving(connection, delivery()) as receipt:
            raise psycopg.Rollback  # psycopg swallows it at the end of the block
        with pytest.raises(TakenBack):
            answer(receipt, SECRET)


@pytest.mark.parametrize("end", ["rollback", "commit", "close"])
def test_block_ending_its_transaction_is_refused(payouts_dsn: str, end: str) -> None:
    with Session(engine_of(payouts_dsn)) as session, ExitStack() as stack:
        connection = stack.enter_context(transaction(session))
        receipt = Inbox().receive_sync(connection, delivery(), subject=SUBJECT)
        getattr(session, end)()
        with pytest.raises(TakenBack):
            stack.close()
        with pytest.raises(TakenBack):
            answer(receipt, SECRET)


async def _cancelled_after(dsn: str, steps: int) -> PipelineStatus:
    connection = await psycopg.AsyncConnection.connect(dsn, autocommit=True)

    async def receive() -> None:
        async with receiving_async(connection, delivery(steps + 1)):
            pass

    task = asyncio.create_task(receive())
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    status = PipelineStatus(connection.pgconn.pipeline_status)
    await connection.close()
    return status


def test_cancelled_claim_leaves_no_pipeline_on_its_connection(payouts_dsn: str) -> None:
    async def each() -> set[PipelineStatus]:
        return {await _cancelled_after(payouts_dsn, steps) for steps in range(40)}

    assert asyncio.run(each()) == {PipelineStatus.OFF}


def test_non_text_subject_is_refused_first(payouts_dsn: str) -> None:
    subject: Any = None
    with (
        psycopg.connect(payouts_dsn) as connection,
        pytest.raises(TypeError, match="NoneType"),
        receiving(connection, delivery(), subject),
    ):
        pass


def held(dsn: str) -> int:
    """Make the table that holds `SUBJECT` already; how many keys the inbox has."""
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS payouts.orm_kept (merchant text UNIQUE)")
        connection.execute(
            "INSERT INTO payouts.orm_kept VALUES (%s) ON CONFLICT DO NOTHING", [SUBJECT]
        )
        row = connection.execute("SELECT count(*) FROM payouts.inbox").fetchone()
    return int(row[0]) if row else -1


def test_row_that_fails_behind_the_block_takes_the_answer_back(payouts_dsn: str) -> None:
    """A session writes at the end of the savepoint: behind the block, before the `with` is left."""
    assert held(payouts_dsn) == 0
    with Session(engine_of(payouts_dsn)) as session, session.begin():
        with suppress(IntegrityError), transaction(session) as connection:
            receipt = Inbox().receive_sync(connection, delivery(), subject=SUBJECT)
            session.add(Kept(merchant=SUBJECT))
        assert not is_answered(receipt)
    assert held(payouts_dsn) == 0


def test_failed_row_behind_an_async_block_revokes_the_answer(payouts_dsn: str) -> None:
    async def run() -> Receipt:
        async with AsyncSession(async_engine_of(payouts_dsn)) as session, session.begin():
            with suppress(IntegrityError):
                async with transaction_async(session) as connection:
                    receipt = await Inbox().receive(connection, delivery(), subject=SUBJECT)
                    session.add(Kept(merchant=SUBJECT))
        return receipt

    assert held(payouts_dsn) == 0
    assert not is_answered(asyncio.run(run()))
    assert held(payouts_dsn) == 0


@pytest.mark.parametrize(
    "statements",
    [["SELECT 1 / 0"], ["ROLLBACK"], ["ROLLBACK", "BEGIN"]],
    ids=["broke it", "ended it", "is in another one"],
)
def test_block_hiding_transaction_control_is_refused(
    payouts_dsn: str, statements: list[str]
) -> None:
    receipts = []

    def act(receipt: Receipt) -> None:
        receipts.append(receipt)
        for statement in statements:
            with suppress(DBAPIError):
                session.execute(text(statement))

    with Session(engine_of(payouts_dsn)) as session:
        with pytest.raises(TakenBack), transaction(session) as connection:
            act(Inbox().receive_sync(connection, delivery(), subject=SUBJECT))
        session.rollback()
    assert [is_answered(each) for each in receipts] == [False]
    assert held(payouts_dsn) == 0


def test_async_block_hiding_a_failed_statement_is_refused(payouts_dsn: str) -> None:
    receipts = []

    async def receive(session: AsyncSession) -> None:
        async with transaction_async(session) as connection:
            receipts.append(await Inbox().receive(connection, delivery(), subject=SUBJECT))
            with suppress(DBAPIError):
                await session.execute(text("SELECT 1 / 0"))

    async def run() -> None:
        async with AsyncSession(async_engine_of(payouts_dsn)) as session:
            with pytest.raises(TakenBack):
                await receive(session)
            await session.rollback()

    asyncio.run(run())
    assert [is_answered(each) for each in receipts] == [False]
    assert held(payouts_dsn) == 0


@pytest.mark.parametrize("driver", list(DRIVERS.values()), ids=list(DRIVERS))
@pytest.mark.parametrize(
    ("result", "error"),
    [
        (object(), TypeError),
        ({(1, 2): 3}, TypeError),
        (float("nan"), ValueError),
        (CIRCULAR, ValueError),
        ("\0", psycopg.DataError),
        ("\ud800", psycopg.DataError),
    ],
    ids=["object", "key", "NaN", "cycle", "NUL", "surrogate"],
)
def test_result_that_cannot_be_kept_takes_the_delivery_back(
    payouts_dsn: str, driver: Driver, result: Any, error: type[Exception]
) -> None:
    receipts = []

    def act(receipt: Receipt) -> None:
        receipts.append(receipt)
        receipt.result = {"x": result}

    with pytest.raises(error):
        driver(payouts_dsn, delivery(), act, SUBJECT)
    assert [is_answered(each) for each in receipts] == [False]
    assert held(payouts_dsn) == 0


APPLIED, DUPLICATE = ReceiptOutcome.APPLIED, ReceiptOutcome.DUPLICATE


class Hold(Base):
    __tablename__ = "orm_hold"
    __table_args__ = {"schema": "payouts"}  # noqa: RUF012 - SQLAlchemy's own form

    merchant: Mapped[str] = mapped_column(primary_key=True)


@pytest.fixture
def holds(payouts_dsn: str) -> str:
    """DSN of a database with the inbox and a table of the service's own."""
    Base.metadata.create_all(engine_of(payouts_dsn))
    return payouts_dsn


@pytest.fixture
def session(holds: str) -> Iterator[Session]:
    with Session(engine_of(holds)) as session:
        yield session


@contextmanager
def receiving_in(session: Session) -> Iterator[Receipt]:
    with transaction(session) as connection:
        yield INBOX.receive_sync(connection, delivery(), subject=SUBJECT)


def rows(dsn: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(
            "SELECT (SELECT count(*) FROM payouts.inbox), (SELECT count(*) FROM payouts.orm_hold)"
        ).fetchall()


def test_nothing_is_committed_before_the_service_commits(
    session: Session, payouts_dsn: str
) -> None:
    with receiving_in(session) as receipt:
        assert receipt.outcome is APPLIED
        session.add(Hold(merchant=SUBJECT))
    assert rows(payouts_dsn) == [(0, 0)]
    session.commit()
    assert rows(payouts_dsn) == [(1, 1)]


def test_rollback_of_the_service_takes_key_and_action_back(
    session: Session, payouts_dsn: str
) -> None:
    with receiving_in(session):
        session.add(Hold(merchant=SUBJECT))
    session.rollback()
    assert rows(payouts_dsn) == [(0, 0)]
    with receiving_in(session) as receipt:
        assert receipt.outcome is APPLIED


def test_action_that_fails_leaves_what_the_service_did_before(
    session: Session, payouts_dsn: str
) -> None:
    def failing() -> None:
        with receiving_in(session):
            session.add(Hold(merchant="inside"))
            raise ZeroDivisionError

    session.add(Hold(merchant="before"))
    with pytest.raises(ZeroDivisionError):
        failing()
    session.commit()
    assert rows(payouts_dsn) == [(0, 1)]
    assert session.get(Hold, "before") is not None


def test_failed_async_action_keeps_earlier_work(holds: str) -> None:
    async def run() -> None:
        async with AsyncSession(async_engine_of(holds)) as session:
            session.add(Hold(merchant="before"))
            with suppress(ZeroDivisionError):
                async with transaction_async(session) as connection:
                    await INBOX.receive(connection, delivery(), subject=SUBJECT)
                    session.add(Hold(merchant="inside"))
                    raise ZeroDivisionError
            await session.commit()

    asyncio.run(run())
    assert rows(holds) == [(0, 1)]


def test_bare_connection_is_joined_as_a_session_is(holds: str) -> None:
    with engine_of(holds).connect() as connection:
        assert on_a_connection(connection, delivery(), SUBJECT).outcome is APPLIED
        connection.rollback()
        assert on_a_connection(connection, delivery(), SUBJECT).outcome is APPLIED
        connection.commit()
        assert on_a_connection(connection, delivery(), SUBJECT).outcome is DUPLICATE
    assert rows(holds) == [(1, 0)]


def test_key_is_found_and_forgotten_in_both_forms(session: Session, payouts_dsn: str) -> None:
    message = delivery()
    connection = connection_of(session)
    assert INBOX.inquire_sync(connection, message.key) is None
    with receiving_in(session) as receipt:
        INBOX.store_result_sync(connection, receipt, {"hold": 7})
    found = INBOX.inquire_sync(connection, message.key)
    assert found is not None
    assert (found.outcome, found.applied_at, found.result) == (
        APPLIED,
        receipt.applied_at,
        {"hold": 7},
    )
    session.execute(text("UPDATE payouts.inbox SET received_at = now() - interval '46 days'"))
    assert (INBOX.prune_sync(connection), INBOX.prune_sync(connection)) == (1, 0)
    session.rollback()

    async def both() -> tuple[Any, int]:
        async with AsyncSession(async_engine_of(payouts_dsn)) as asynchronous:
            async with transaction_async(asynchronous) as connection:
                await INBOX.receive(connection, message, subject=SUBJECT)
            connection = await async_connection_of(await asynchronous.connection())
            found = await INBOX.inquire(connection, message.key)
            return found, await INBOX.prune(connection)

    found, pruned = asyncio.run(both())
    assert (found.key, found.outcome, pruned) == (message.key, APPLIED, 0)
    assert rows(payouts_dsn) == [(0, 0)]


def test_other_databases_are_refused_before_anything_is_written() -> None:
    with (
        create_engine("sqlite://").connect() as connection,
        pytest.raises(UnsupportedDriver, match=r"not sqlite\+pysqlite"),
    ):
        on_a_connection(connection, delivery(), SUBJECT)


def test_connection_that_commits_each_statement_is_refused(holds: str) -> None:
    engine = engine_of(holds, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection, pytest.raises(NoTransaction):
        on_a_connection(connection, delivery(), SUBJECT)
    assert rows(holds) == [(0, 0)]

"""What was not kept is never answered, and a cancelled claim leaves a connection as it was."""

import asyncio
from contextlib import ExitStack, suppress
from typing import Any

import psycopg
import pytest
from psycopg.pq import PipelineStatus
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from holdfast.receiver import (
    Delivery,
    Inbox,
    Receipt,
    Secret,
    TakenBack,
    answer,
    verify,
)
from holdfast.receiver.sqlalchemy_inbox import transaction, transaction_async
from tests.support.dispatch.inboxes import (
    DRIVERS,
    Driver,
    async_engine_of,
    engine_of,
    receiving,
    receiving_async,
)
from tests.support.dispatch.sender import KEY_BYTES, Sent

SUBJECT = "m_482"
SECRET = Secret(KEY_BYTES)
CIRCULAR: list[Any] = []
CIRCULAR.append(CIRCULAR)


class Base(DeclarativeBase):
    pass


class Kept(Base):
    __tablename__ = "orm_kept"
    __table_args__ = {"schema": "payouts"}  # noqa: RUF012 - SQLAlchemy's own form

    merchant: Mapped[str] = mapped_column(primary_key=True)


def delivery(sequence: int = 1) -> Delivery:
    sent = Sent.of(SUBJECT, "block", sequence)
    return verify(sent.headers, sent.content, [SECRET])


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


def is_answered(receipt: Receipt) -> bool:
    try:
        answer(receipt, SECRET)
    except TakenBack:
        return False
    return True


def test_row_that_fails_behind_the_block_takes_the_answer_back(payouts_dsn: str) -> None:
    """A session writes at the end of the savepoint: behind the block, before the `with` is left."""
    assert held(payouts_dsn) == 0
    with Session(engine_of(payouts_dsn)) as session, session.begin():
        with (
            suppress(IntegrityError),
            transaction(session) as connection,
        ):
            receipt = Inbox().receive_sync(connection, delivery(), subject=SUBJECT)
            session.add(Kept(merchant=SUBJECT))
        assert not is_answered(receipt)
    assert held(payouts_dsn) == 0


def test_failed_row_behind_an_async_block_revokes_the_answer(
    payouts_dsn: str,
) -> None:
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
        with (
            pytest.raises(TakenBack),
            transaction(session) as connection,
        ):
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

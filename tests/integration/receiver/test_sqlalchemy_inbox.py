"""The inbox in a transaction of SQLAlchemy's: it joins what the service has and never ends it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from holdfast.receiver import (
    Delivery,
    Inbox,
    NoTransaction,
    Receipt,
    Secret,
    UnsupportedDriver,
    verify,
)
from holdfast.receiver.sqlalchemy_inbox import (
    async_connection_of,
    connection_of,
    transaction,
    transaction_async,
)
from holdfast.sink.contract.wire import ReceiptOutcome
from tests.support.dispatch.inboxes import async_engine_of, engine_of, on_a_connection
from tests.support.dispatch.sender import KEY_BYTES, Sent

SUBJECT = "m_482"
INBOX = Inbox()
APPLIED, DUPLICATE = ReceiptOutcome.APPLIED, ReceiptOutcome.DUPLICATE


class Base(DeclarativeBase):
    pass


class Hold(Base):
    __tablename__ = "orm_hold"
    __table_args__ = {"schema": "payouts"}  # noqa: RUF012 - SQLAlchemy's own form

    merchant: Mapped[str] = mapped_column(primary_key=True)


def delivery(sequence: int = 1) -> Delivery:
    sent = Sent.of(SUBJECT, "block", sequence)
    return verify(sent.headers, sent.content, [Secret(KEY_BYTES)])


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
def receiving(session: Session) -> Iterator[Receipt]:
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
    with receiving(session) as receipt:
        assert receipt.outcome is APPLIED
        session.add(Hold(merchant=SUBJECT))
    assert rows(payouts_dsn) == [(0, 0)]
    session.commit()
    assert rows(payouts_dsn) == [(1, 1)]


def test_rollback_of_the_service_takes_key_and_action_back(
    session: Session, payouts_dsn: str
) -> None:
    with receiving(session):
        session.add(Hold(merchant=SUBJECT))
    session.rollback()
    assert rows(payouts_dsn) == [(0, 0)]
    with receiving(session) as receipt:
        assert receipt.outcome is APPLIED


def test_action_that_fails_leaves_what_the_service_did_before(
    session: Session, payouts_dsn: str
) -> None:
    def failing() -> None:
        with receiving(session):
            session.add(Hold(merchant="inside"))
            raise ZeroDivisionError

    session.add(Hold(merchant="before"))
    with pytest.raises(ZeroDivisionError):
        failing()
    session.commit()
    assert rows(payouts_dsn) == [(0, 1)]
    assert session.get(Hold, "before") is not None


def test_failed_async_action_keeps_earlier_work(
    holds: str,
) -> None:
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
    with receiving(session) as receipt:
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
    with (
        engine.connect() as connection,
        pytest.raises(NoTransaction),
    ):
        on_a_connection(connection, delivery(), SUBJECT)
    assert rows(holds) == [(0, 0)]

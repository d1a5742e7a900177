"""Keys are kept for the window, forgotten after it, and never applied again all the same."""

import asyncio
from datetime import timedelta
from typing import Any

import psycopg

from holdfast.deploy.payouts.database import open_pool
from holdfast.deploy.payouts.pruning import prune_all
from holdfast.receiver import Delivery, Inbox, Receipt, Secret, verify
from holdfast.sink.contract.wire import ReceiptOutcome
from tests.support.dispatch.inboxes import receiving
from tests.support.dispatch.sender import KEY_BYTES, Sent

SUBJECT = "m_482"


def delivery(sequence: int) -> Delivery:
    sent = Sent.of(SUBJECT, "block", sequence)
    return verify(sent.headers, sent.content, [Secret(KEY_BYTES)])


def deliver(connection: psycopg.Connection[Any], sequence: int) -> Receipt:
    with receiving(connection, delivery(sequence)) as receipt:
        return receipt


def age(connection: psycopg.Connection[Any], days: int, *sequences: int) -> None:
    connection.execute(
        "UPDATE payouts.inbox SET received_at = now() - make_interval(days => %s)"
        " WHERE sequence = ANY(%s)",
        [days, list(sequences)],
    )


def kept(connection: psycopg.Connection[Any]) -> list[int]:
    rows = connection.execute("SELECT sequence FROM payouts.inbox ORDER BY sequence").fetchall()
    return [sequence for (sequence,) in rows]


def test_keys_beyond_the_window_are_forgotten_oldest_first_in_chunks(
    payouts_dsn: str,
) -> None:
    inbox = Inbox(window=timedelta(days=10))
    with psycopg.connect(payouts_dsn, autocommit=True) as connection:
        for sequence in range(1, 6):
            deliver(connection, sequence)
        age(connection, 9, 4)
        age(connection, 11, 1, 3)
        age(connection, 12, 2)
        assert inbox.prune_sync(connection, limit=1) == 1
        assert kept(connection) == [1, 3, 4, 5]
        assert inbox.prune_sync(connection, limit=10) == 2
        assert inbox.prune_sync(connection) == 0
        assert kept(connection) == [4, 5]


def test_key_that_was_forgotten_is_stale_when_it_comes_again(payouts_dsn: str) -> None:
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
        assert kept(connection) == [1]


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
        assert kept(connection) == []


def test_service_forgets_everything_that_is_old(payouts_dsn: str) -> None:
    with psycopg.connect(payouts_dsn, autocommit=True) as connection:
        for sequence in range(1, 6):
            deliver(connection, sequence)
        age(connection, 46, 1, 2, 3, 4)

        async def run() -> int:
            async with open_pool(payouts_dsn) as pool:
                return await prune_all(pool, Inbox(), limit=2)

        assert asyncio.run(run()) == 4
        assert kept(connection) == [5]


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

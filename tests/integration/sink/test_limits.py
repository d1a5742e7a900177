"""A batch that is bad as a whole is refused as a whole, and so is one whose `also` broke it."""

from collections.abc import Callable
from contextlib import suppress

import psycopg
import pytest

from holdfast.sink import Written
from holdfast.sink.errors import CompanionFailed, TooManyRefused
from holdfast.sink.rows.quarantine_limit import QuarantineLimit
from tests.support.dispatch.entries import decision
from tests.support.job.driver import Driver
from tests.support.job.outbox import contents

MakeDriver = Callable[..., Driver]

ROWS = [decision("", n) for n in range(6)] + [decision(f"m_{n}") for n in range(4)]


def test_batch_beyond_the_limit_writes_nothing_until_the_limit_is_raised(
    driver: MakeDriver, db: psycopg.Connection
) -> None:
    spark = driver(quarantine_limit=QuarantineLimit(share_from=10))
    spark.batch(0, decision("m_1"))
    before = contents(db)
    with pytest.raises(TooManyRefused, match=r"'payouts': batch 1: 6 of its 10 rows were refused"):
        spark.batch(1, *ROWS)
    assert contents(db) == before
    # A batch below the limit is not stopped by one that was above it.
    assert isinstance(spark.batch(1, *ROWS[1:8]), Written)

    again = driver(query_id=spark.query_id, quarantine_limit=QuarantineLimit(share=1))
    assert again.batch(2, *ROWS).counts.quarantined == 6


def test_bad_rows_below_the_limit_stop_nothing(driver: MakeDriver) -> None:
    counts = driver(quarantine_limit=QuarantineLimit(rows=6)).batch(0, *ROWS).counts
    assert (counts.entries, counts.quarantined) == (4, 6)


def _hide_an_error(connection: psycopg.Connection, _rows: object) -> None:
    with suppress(psycopg.Error):
        connection.execute("SELECT 1 / 0")


def _end_it(connection: psycopg.Connection, _rows: object) -> None:
    connection.execute("ROLLBACK")


def _commit(connection: psycopg.Connection, _rows: object) -> None:
    connection.commit()


def _roll_back_in_a_block(connection: psycopg.Connection, _rows: object) -> None:
    with connection.transaction():
        connection.rollback()


def _turn_transactions_off(connection: psycopg.Connection, _rows: object) -> None:
    connection.autocommit = False


ENDINGS = (_hide_an_error, _end_it, _commit, _roll_back_in_a_block, _turn_transactions_off)


@pytest.mark.parametrize("also", ENDINGS)
def test_also_that_breaks_the_transaction_is_an_error_and_not_a_written_batch(
    driver: MakeDriver,
    db: psycopg.Connection,
    also: Callable[[psycopg.Connection, object], None],
) -> None:
    spark = driver(also=also)
    with pytest.raises(CompanionFailed, match=r"`also` hid an error .* of batch 0 itself"):
        spark.batch(0, decision())
    assert db.execute("SELECT count(*) FROM holdfast.batch").fetchone() == (0,)
    healed = driver(query_id=spark.query_id)
    assert isinstance(healed.batch(0, decision()), Written)


def test_mistake_in_a_statement_of_also_is_raised_as_it_is(driver: MakeDriver) -> None:
    def also(connection: psycopg.Connection, _rows: object) -> None:
        connection.execute("SELECT %s", [])

    with pytest.raises(psycopg.ProgrammingError, match="placeholder"):
        driver(also=also).batch(0, decision())


def test_also_may_use_a_savepoint_around_what_may_fail(driver: MakeDriver) -> None:
    def also(connection: psycopg.Connection, _rows: object) -> None:
        with suppress(psycopg.Error), connection.transaction():
            connection.execute("SELECT 1 / 0")

    assert isinstance(driver(also=also).batch(0, decision()), Written)

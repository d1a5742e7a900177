"""What a replay brought that is not what was written: kept once, beside everything else."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pyarrow as pa
import pytest

from holdfast.sink import BatchInput, ReplayDiverged
from holdfast.sink.contract.key import Key
from holdfast.sink.transaction.divergence import Comparison
from tests.support.dispatch.entries import decision
from tests.support.job.driver import Driver
from tests.support.job.outbox import contents

MakeDriver = Callable[..., Driver]

KEPT = """
    SELECT side::text, key, subject, type, occurred_at, body FROM holdfast.divergence_row
    ORDER BY divergence_row.side, key
"""
SUMMARY = "SELECT row_count, quarantined_count, differing_count, run_id FROM holdfast.divergence"


def _diverged(spark: Driver, batch_id: int, *rows: dict[str, Any]) -> ReplayDiverged:
    with pytest.raises(ReplayDiverged) as raised:
        spark.batch(batch_id, *rows)
    return raised.value


def _key(row: dict[str, Any]) -> UUID:
    return Key.of(row["key"]).digest


def test_what_a_diverged_replay_brought_is_kept_row_by_row(
    driver: MakeDriver, db: psycopg.Connection
) -> None:
    spark = driver()
    gone, kept, changed = decision("m_1"), decision("m_2"), decision("m_3", minor=1)
    spark.batch(0, gone, kept, changed)
    before = contents(db)
    now, added = decision("m_3", minor=2), decision("m_4")
    _diverged(spark, 0, kept, now, added)

    assert contents(db) == before
    assert db.execute(SUMMARY).fetchall() == [(3, 0, 3, spark.run_id)]
    left, brought, other = db.execute(KEPT).fetchall()
    assert left == ("only_in_ledger", _key(gone), None, None, None, None)
    assert brought[:5] == (
        *("only_in_replay", _key(added), "m_4"),
        *(added["type"], added["occurred_at"]),
    )
    assert other[:3] == ("changed", _key(changed), "m_3")
    (then,) = db.execute(
        "SELECT convert_from(body, 'UTF8') FROM holdfast.entry WHERE key = %s", [_key(changed)]
    ).fetchone() or ("",)
    now_sent = then.replace('"exposure_minor":1,', '"exposure_minor":2,')
    assert other[5] == now_sent.replace('"sequence":1,', '"sequence":null,')


def test_replay_that_diverges_again_and_again_is_kept_once(
    driver: MakeDriver, db: psycopg.Connection
) -> None:
    spark = driver()
    spark.batch(0, decision("m_1"))
    for _ in range(2):
        _diverged(spark, 0, decision("m_2"))
    restarted = driver(query_id=spark.query_id)
    _diverged(restarted, 0, decision("m_2"))
    assert db.execute("SELECT count(*) FROM holdfast.divergence").fetchone() == (1,)
    _diverged(restarted, 0, decision("m_3"))
    assert db.execute("SELECT count(*) FROM holdfast.divergence").fetchone() == (2,)


def test_error_says_which_command_shows_the_rows(driver: MakeDriver) -> None:
    spark = driver(first_batch=3)
    spark.batch(3, decision("m_1"))
    assert "`holdfast batch diff payouts 3`" in str(_diverged(spark, 3, decision("m_2")))


def test_of_a_large_divergence_the_first_rows_of_each_side_are_kept_and_all_are_counted(
    driver: MakeDriver, db: psycopg.Connection
) -> None:
    spark = driver()
    spark.batch(0, decision("m_1"), decision("m_2", minor=1))
    added = [decision(f"n_{n}") for n in range(10_010)]
    error = _diverged(spark, 0, decision("m_2", minor=2), *added)
    assert error.divergence.only_in_replay.count == 10_010
    assert db.execute("SELECT differing_count FROM holdfast.divergence").fetchone() == (10_012,)
    sides = db.execute("SELECT side::text, count(*) FROM holdfast.divergence_row GROUP BY side")
    assert dict(sides.fetchall()) == {"only_in_ledger": 1, "only_in_replay": 9_998, "changed": 1}


def test_large_bodies_are_kept_up_to_a_limit(driver: MakeDriver) -> None:
    spark = driver()
    spark.batch(0)
    large = {"merchant_id": "x" * 200_000}
    rows = [decision(f"m_{n:03}", data=large) for n in range(200)]
    difference = _diverged(spark, 0, *rows).divergence
    assert isinstance(difference, Comparison)
    assert difference.only_in_replay.count == 200
    assert len(difference.only_in_replay.first) == 20
    size = sum(len(row.body or "") for row in difference.rows)
    assert 32 * 2**20 - 200_200 < size <= 32 * 2**20


def test_divergence_in_a_companion_alone_is_kept_without_rows(
    driver: MakeDriver, db: psycopg.Connection
) -> None:
    revision = 1

    def select(rows: pa.Table) -> BatchInput:
        return BatchInput(rows, companions={"windows": pa.table({"revision": [revision]})})

    spark = driver(select=select)
    spark.batch(0, decision())
    revision = 2
    _diverged(spark, 0, decision())
    assert db.execute("SELECT differing_count FROM holdfast.divergence").fetchall() == [(0,)]
    assert db.execute(KEPT).fetchall() == []


@pytest.mark.parametrize("table", ["divergence", "divergence_row"])
def test_record_that_cannot_be_kept_hides_nothing(
    driver: MakeDriver, db: psycopg.Connection, caplog: pytest.LogCaptureFixture, table: str
) -> None:
    spark = driver()
    spark.batch(0, decision("m_1"))
    db.execute(f"REVOKE INSERT ON holdfast.{table} FROM holdfast_sink".encode())
    _diverged(spark, 0, decision("m_2"))
    assert "`holdfast batch diff`" in caplog.text
    assert db.execute("SELECT count(*) FROM holdfast.divergence").fetchone() == (0,)

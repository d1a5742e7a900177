"""The test kit on real DataFrames: `check` names what a replay changes, and the fake writes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.sink import SchemaMismatch
from holdfast.testing import CheckFailed, FakeOutbox, check

ROWS = 6

SOUND = (
    "order AS subject",
    "'order.hold' AS type",
    "array('order/v1', order, id) AS key",
    "timestamp '2026-11-02 12:00:00' AS occurred_at",
    "named_struct('amount_minor', amount) AS data",
)

UNSOUND = {
    "data.made": (
        "named_struct('amount_minor', amount, 'made', current_timestamp()) AS data",
        'column \'data.made\' of the row with key \\["order/v1", "o_0", "e0"\\] is',
    ),
    "data.lucky": ("named_struct('lucky', rand() < 0.5) AS data", "column 'data.lucky' of the row"),
    "data.seeded": (
        "named_struct('seeded', cast(1e6 * rand(7) AS int)) AS data",
        "in reverse order, the same rows give other decisions: column 'data.seeded' of the row",
    ),
    "data.place": (
        "named_struct('place', row_number() OVER (PARTITION BY amount ORDER BY order)) AS data",
        "column 'data.place' of the row",
    ),
    "data.others": (
        "named_struct('others', collect_list(id) OVER (PARTITION BY amount)) AS data",
        "column 'data.others' of the row",
    ),
    "key": ("array('order/v1', uuid()) AS key", "column 'key': . rows? with "),
}


@pytest.fixture(scope="module")
def batch(spark: Any) -> Any:
    """Orders, of which two at a time have one id."""
    rows = [(f"e{n}", f"o_{n // 2}", 100) for n in range(ROWS)]
    return spark.createDataFrame(rows, "id string, order string, amount long").coalesce(1)


def deciding(**columns: str) -> Callable[[Any], Any]:
    """Decide by the columns, of which these take the place of others."""
    names = [each.rpartition(" ")[2] for each in SOUND]
    chosen = [columns.get(name, each) for name, each in zip(names, SOUND, strict=True)]
    return lambda orders: orders.selectExpr(*chosen)


def test_sound_decisions_pass_and_are_returned(batch: Any) -> None:
    decided = check(deciding(), batch)
    assert decided.num_rows == ROWS
    assert FakeOutbox().sink("orders")(decided, 0).counts.entries == ROWS


@pytest.mark.parametrize("place", UNSOUND)
def test_decision_that_a_replay_changes_is_named(place: str, batch: Any) -> None:
    column, words = UNSOUND[place]
    with pytest.raises(CheckFailed, match=words):
        check(deciding(**{place.partition(".")[0]: column}), batch)


def test_missing_column_is_the_error_of_the_sink(batch: Any) -> None:
    with pytest.raises(SchemaMismatch, match=r"column 'key' .* is missing: .*\. Correct the"):
        check(lambda orders: deciding()(orders).drop("key"), batch)


def test_bad_key_fails_and_a_rejected_row_does_not(batch: Any) -> None:
    with pytest.raises(CheckFailed, match=r"would refuse a row \(bad_key\): a key has"):
        check(deciding(key="cast(array() AS array<string>) AS key"), batch)
    rejected = check(
        lambda orders: deciding()(orders).selectExpr("*", "'no_such_order' AS rejected"), batch
    )
    assert rejected.num_rows == ROWS


def test_batch_without_a_decision_checks_nothing(batch: Any) -> None:
    with pytest.raises(CheckFailed, match="no row was decided"):
        check(lambda orders: deciding()(orders).where("false"), batch)


def test_fake_outbox_writes_the_batches_of_a_query(spark: Any, tmp_path: Path) -> None:
    folder = str(tmp_path / "orders")
    rows = [(f"e{n}", f"o_{n}", n) for n in range(ROWS)]
    orders = spark.createDataFrame(rows, "id string, order string, amount long")
    orders.coalesce(1).write.json(folder)
    outbox = FakeOutbox()
    stream = deciding()(spark.readStream.schema(orders.schema).json(folder))
    writer = stream.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.foreachBatch(outbox.sink("orders")).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert [entry.subject for entry in outbox.entries] == [f"o_{n}" for n in range(ROWS)]
    assert outbox.entries[1].data == {"amount_minor": 1}

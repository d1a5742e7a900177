"""The staged path on a real database: it leaves what the driver path leaves, whatever tasks do.

Doubled: Spark, by the function that its tasks run, called here with attempts of the test's choice.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import psycopg
import pyarrow as pa
import pytest

from holdfast.sink import Fenced, ReplayDiverged, Replayed, Written
from holdfast.sink.session import Identity
from holdfast.sink.transaction.database import execute, transaction
from holdfast.sink.transaction.login import Login
from holdfast.sink.transaction.staging import (
    Stage,
    StageLost,
    Summary,
    open_stage,
    stage_rows,
    take_over,
)
from tests.support.dispatch.sender import BLOCK, RELEASE, SCHEMA, alternating, decision, table
from tests.support.job.decisions import BAD_ROWS
from tests.support.job.driver import PATIENT, Driver, MakeDriver, in_tasks
from tests.support.job.job_stream import contents
from tests.support.world import World

pytestmark = pytest.mark.rest


Rows = list[dict[str, Any]]

QUERY_ID = uuid4()
FAR = datetime(9999, 12, 31, tzinfo=UTC)

MANY = [row for n in range(40) for row in alternating(f"m_{n:02}", range(n % 7))]
CASES: dict[str, list[Rows]] = {
    "nothing": [[]],
    "one row": [[decision()]],
    "rows of many subjects": [MANY],
    "the same rows again in another batch": [MANY, MANY],
    "bad rows of every kind": [[decision() | bad for bad, _ in BAD_ROWS.values()]],
    "nothing but nulls": [[dict.fromkeys(SCHEMA.names)] * 5],
    "duplicates": [[*MANY, *MANY[:9], *MANY[:9]]],
    "conflicts": [
        [decision("m_1", 1, minor=n) for n in (3, 1, 2, 1)]
        + [decision(subject, 1, key=["one", "key"]) for subject in ("é", "z", "Z", "\U0001f600")]
        + [decision("m_2", 1, type_, key=["k"]) for type_ in (RELEASE, BLOCK)]
    ],
    "order that only bytes have": [
        [
            decision(subject, window, key=[key])
            for window in (2, 1)
            for subject in ("a", "B", "é", "e\u0301", "\ufffd", "\U0001f600", "a b", "a-b")
            for key in (f"{subject}{window}", f"{subject}-{window}")
        ]
    ],
    "repeated and overtaken": [
        [decision("m_1", 4), decision("m_2", 4, RELEASE)],
        [
            decision("m_1", 2, RELEASE, traceparent=f"00-{1:032x}-{2:016x}-01"),
            decision("m_1", 5, priority=3),
            decision("m_1", 6, data={"merchant_id": 'é"\\', "exposure_minor": -1}),
            decision("m_2", 5),
            decision("m_2", 6),
        ]
        * 2,
    ],
    "dated beyond the clock": [
        [decision("m_1"), *(decision("m_1", n, RELEASE, occurred_at=FAR) for n in (2, 3))] * 2,
        [decision("m_1", 4, RELEASE), decision("m_2", occurred_at=FAR)],
    ],
    "rejected by rules": [
        [
            decision("m_1"),
            decision("m_1", rejected="no_such_order"),
            decision("", 2, rejected="too_old"),
            decision("m_3", 3, rejected="too_old", rejected_event="an event\0"),
            decision("m_2", rejected="No such order"),
            decision("m_3", 3),
            decision("m_3", 3, minor=1),
        ],
        [decision("m_2")],
    ],
    "all that an entry may have": [
        [
            decision(priority=3, traceparent=f"00-{1:032x}-{2:016x}-01"),
            decision("m_2", priority=None, traceparent="none"),
        ]
    ],
}
WIDE = SCHEMA.append(pa.field("priority", pa.int16())).append(pa.field("traceparent", pa.string()))
RULED = WIDE.append(pa.field("rejected", pa.string())).append(
    pa.field("rejected_event", pa.string())
)


def _table(rows: Rows) -> pa.Table:
    return pa.Table.from_pylist(rows, RULED if any("rejected" in row for row in rows) else WIDE)


@pytest.fixture
def both(
    make_database: Callable[[str | None], str], template_database: str
) -> Iterator[dict[bool, Driver]]:
    """A driver of each path, on a database of its own."""
    drivers = {
        staged: Driver(make_database(template_database), query_id=QUERY_ID, staged=staged)
        for staged in (False, True)
    }
    yield drivers
    for driver in drivers.values():
        driver.sink.close()


def _stages(db: psycopg.Connection) -> int:
    result = db.execute(
        "SELECT count(*) + (SELECT count(*) FROM holdfast.stage) FROM pg_class"
        " WHERE relname ~ '^stage_[0-9]+$'"
    ).fetchone()
    return result[0] if result else -1


@pytest.mark.parametrize("batches", CASES.values(), ids=CASES.keys())
def test_both_paths_leave_the_same_tables(both: dict[bool, Driver], batches: list[Rows]) -> None:
    left = {}
    for staged, driver in both.items():
        for number, rows in enumerate(batches):
            assert isinstance(driver.tables(number, _table(rows)), Written)
            assert isinstance(driver.tables(number, _table(rows[::-1])), Replayed)
        with psycopg.connect(driver.sink._dsn, autocommit=True) as db:
            left[staged] = contents(db)
            assert _stages(db) == 0
    assert left[True] == left[False]
    assert len(left[True]["batch"]) == len(batches)


def test_replay_that_another_rule_rejects_diverges(both: dict[bool, Driver]) -> None:
    for driver in both.values():
        rows = _table([decision("m_1"), decision("m_2", rejected="no_such_order")])
        assert driver.tables(0, rows).counts.quarantined == 1
        other = _table([decision("m_1"), decision("m_2", rejected="too_old")])
        with pytest.raises(ReplayDiverged, match="another column or table of the batch differs"):
            driver.tables(0, other)
        with pytest.raises(ReplayDiverged, match="1 key only in this replay"):
            driver.tables(0, _table([decision("m_1"), decision("m_2")]))


def test_either_path_finds_what_the_other_wrote(dsn: str, db: psycopg.Connection) -> None:
    one, other = (Driver(dsn, query_id=QUERY_ID, staged=staged) for staged in (False, True))
    assert isinstance(one.batch(0, *MANY), Written)
    before = contents(db)
    assert isinstance(other.batch(0, *MANY), Replayed)
    assert contents(db) == before
    one.sink.close()
    other.sink.close()


def test_diverged_replay_is_refused_on_the_staged_path(world: World) -> None:
    spark = world.driver(staged=True)
    spark.batch(0, decision("m_1"), decision("m_2"))
    before = contents(world.db)
    with pytest.raises(ReplayDiverged) as raised:
        spark.batch(0, decision("m_1", minor=1), decision("m_3"))
    divergence = raised.value.divergence
    assert divergence.only_in_ledger.count == divergence.only_in_replay.count == 1
    assert divergence.changed.count == 1
    assert contents(world.db) == before
    assert _stages(world.db) == 0


def test_attempts_without_a_vote_leave_nothing(driver: MakeDriver, db: psycopg.Connection) -> None:
    spark = driver(staged=True)
    rows = table(*MANY)

    def run_all(stage: Stage) -> list[Summary]:
        stage_rows(stage, 7, [rows])  # it failed after its rows were committed
        stage_rows(stage, 8, [rows.slice(0, 5)])  # it was killed half way
        summary = stage_rows(stage, 9, [rows])
        stage_rows(stage, 10, [rows])  # a zombie
        return [summary]

    written = spark.sink.apply_staged(
        rows.schema, run_all, Identity(spark.query_id, spark.run_id, 0)
    )
    assert isinstance(written, Written)
    assert (written.counts.rows, written.counts.entries) == (len(MANY), len(MANY))
    assert _stages(db) == 0


def test_other_rows_of_attempts_without_a_vote_do_not_count(world: World) -> None:
    """As of a source that gave the attempts different rows."""
    spark = world.driver(staged=True)
    rows, unusable = table(*MANY), table(decision("", 1), decision("m_of_a_zombie", 2))

    def run_all(stage: Stage) -> list[Summary]:
        stage_rows(stage, 7, [unusable])
        summary = stage_rows(stage, 8, [rows])
        stage_rows(stage, 9, [unusable])
        return [summary]

    identity = Identity(spark.query_id, spark.run_id, 0)
    written = spark.sink.apply_staged(rows.schema, run_all, identity)
    assert (written.counts.rows, written.counts.entries) == (len(MANY), len(MANY))
    left = contents(world.db)
    assert "m_of_a_zombie" not in str(left)
    assert left["quarantine"] == []
    again = world.driver(query_id=spark.query_id)
    assert isinstance(again.batch(0, *MANY), Replayed)


def test_attempt_that_comes_after_the_batch_finds_no_stage(world: World) -> None:
    spark = world.driver(staged=True)
    rows = table(*MANY)
    stages: list[Stage] = []

    def run_all(stage: Stage) -> list[Summary]:
        stages.append(stage)
        return [stage_rows(stage, 1, [rows])]

    spark.sink.apply_staged(rows.schema, run_all, Identity(spark.query_id, spark.run_id, 0))
    before = contents(world.db)
    with pytest.raises(StageLost, match="its table"):
        stage_rows(stages[0], 2, [rows])
    assert contents(world.db) == before


HASTY = replace(PATIENT, deadline_seconds=0)


def test_stage_with_a_late_writer_is_left_to_the_next_batch(world: World) -> None:
    spark = world.driver(staged=True)
    rows = table(*MANY)
    with psycopg.connect(world.dsn) as late:

        def run_all(stage: Stage) -> list[Summary]:
            late.execute(f"LOCK TABLE holdfast.stage_{stage.number} IN ROW EXCLUSIVE MODE")
            return [stage_rows(stage, 1, [rows])]

        identity = Identity(spark.query_id, spark.run_id, 0)
        assert isinstance(spark.sink.apply_staged(rows.schema, run_all, identity), Written)
        assert _stages(world.db) == 2
        # The next run does not wait for it either.
        newer = world.driver(query_id=spark.query_id, staged=True, timeouts=HASTY)
        newer.sink.start(newer.query_id, newer.run_id)
        assert _stages(world.db) == 2
    assert isinstance(newer.batch(1, decision("m_99")), Written)
    assert _stages(world.db) == 0


@pytest.mark.parametrize("loss", ["TRUNCATE", "DROP TABLE"])
def test_lost_stage_stops_its_batch_and_a_replay_writes_it(world: World, loss: str) -> None:
    spark = world.driver(staged=True)
    rows = table(*MANY)

    def run_all(stage: Stage) -> list[Summary]:
        summary = stage_rows(stage, 1, [rows])
        world.db.execute(f"{loss} holdfast.stage_{stage.number}")
        return [summary]

    identity = Identity(spark.query_id, spark.run_id, 0)
    with pytest.raises(StageLost, match=r"This run did not write the batch.*replays it"):
        spark.sink.apply_staged(rows.schema, run_all, identity)
    assert contents(world.db)["batch"] == []
    assert isinstance(spark.batch(0, *MANY), Written)


def test_run_whose_stage_a_newer_run_dropped_is_fenced(world: World) -> None:
    older, newer = world.driver(staged=True), world.driver(staged=True)
    newer.query_id = older.query_id
    rows = table(*MANY)

    def run_all(stage: Stage) -> list[Summary]:
        summary = stage_rows(stage, 1, [rows])
        assert isinstance(newer.batch(0, *MANY), Written)
        return [summary]

    with pytest.raises(Fenced):
        older.sink.apply_staged(rows.schema, run_all, Identity(older.query_id, older.run_id, 0))
    assert len(contents(world.db)["batch"]) == 1


@pytest.mark.parametrize("epochs_apart", [1, 0])
def test_older_run_leaves_the_stage_of_a_newer_one(world: World, epochs_apart: int) -> None:
    """A failover that lost the start of the older run gave its epoch out twice."""
    older, newer = world.driver(staged=True), world.driver(staged=True)
    newer.query_id = older.query_id
    rows = table(*MANY)
    older.batch(0)
    world.db.execute("UPDATE holdfast.stream SET epoch = %s", [epochs_apart])

    def run_all(stage: Stage) -> list[Summary]:
        summary = stage_rows(stage, 1, [rows])
        with pytest.raises(Fenced):
            older.batch(1, *MANY)
        return [summary]

    identity = Identity(newer.query_id, newer.run_id, 1)
    assert isinstance(newer.sink.apply_staged(rows.schema, run_all, identity), Written)
    assert _stages(world.db) == 0


def test_rows_of_a_fenced_run_in_a_stage_of_the_same_number_are_not_taken(world: World) -> None:
    """A failover lost the stage and its number; a fenced run that wakes up gets the number."""
    fenced, owner = world.driver(staged=True), world.driver(staged=True)
    owner.query_id = fenced.query_id
    rows, others = table(decision("m_1", minor=1)), table(decision("m_1", minor=2))
    fenced.batch(0)
    numbers = "pg_get_serial_sequence('holdfast.stage', 'id')"

    def run_all(stage: Stage) -> list[Summary]:
        summaries = in_tasks(rows)(stage)
        world.db.execute(f"DROP TABLE holdfast.stage_{stage.number}")
        world.db.execute("DELETE FROM holdfast.stage")
        world.db.execute(f"SELECT setval({numbers}, %s, false)", [stage.number])
        run = fenced.sink._take(fenced.query_id, fenced.run_id)
        again = open_stage(fenced.sink._stage, run, 1, table().schema)
        assert again.number == stage.number
        in_tasks(others)(again)
        return summaries

    identity = Identity(owner.query_id, owner.run_id, 1)
    with pytest.raises(StageLost):
        owner.sink.apply_staged(rows.schema, run_all, identity)
    assert contents(world.db)["entry"] == []


def test_keys_that_repeat_are_found_without_a_nested_loop(driver: MakeDriver) -> None:
    spark = driver(staged=True)
    rows = table(*(decision(f"m_{n % 3000}") for n in range(20_000)))
    plans: list[str] = []

    def run_all(stage: Stage) -> list[Summary]:
        summaries = in_tasks(rows)(stage)
        run = spark.sink._take(spark.query_id, spark.run_id)
        content = take_over(stage, summaries, rows.schema, run, 0)
        with stage.connect() as session, transaction(session, stage.timeouts):
            execute(session, "staging/create_staged")
            for name in ("staging/promote_stage", "staging/count_stage_conflicts"):
                plan_lines = session.execute(
                    b"EXPLAIN " + stage.statement(name), {"attempts": content.attempts}
                )
                plans.append("\n".join(line for (line,) in plan_lines))
        return summaries

    identity = Identity(spark.query_id, spark.run_id, 0)
    counts = spark.sink.apply_staged(rows.schema, run_all, identity).counts
    assert (counts.rows, counts.duplicates) == (20_000, 17_000)
    assert len(plans) == 2
    for plan in plans:
        assert "Nested Loop" not in plan, plan


def test_stage_never_shows_its_dsn() -> None:
    login = Login("postgresql://app:secret@db/holdfast")
    stage = Stage(login, "payouts", Driver("dbname=x").sink._stage.timeouts)
    assert "secret" not in repr(stage)

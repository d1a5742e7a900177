"""How a job ends: each failure in one line that says what to do, and a stop between two batches."""

import gzip
import json
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pyarrow as pa
import pyarrow.parquet
import pytest

from holdfast.sink.contract.exits import CommandError
from holdfast.sink.transaction.continuation import Repeated
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.input.formats import Format
from tests.support.job.jobs import Play, at, commits, event
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.spark_app.lifecycle.failure import Failure

FIRST = [event("e1", "12:01", 6_000_000)]
NEXT = [event("e2", "12:20", 1)]


def _complaint(play: Play, **changed: Any) -> str:
    return str(_error(play, CommandError, **changed))


def _failure(play: Play, **changed: Any) -> "Failure":
    from holdfast.spark_app.lifecycle.failure import QueryFailed

    error = _error(play, QueryFailed, **changed)
    assert isinstance(error, QueryFailed)
    assert str(error) == error.failure.message
    return error.failure


def _error(play: Play, kind: type[Exception], **changed: Any) -> Exception:
    with pytest.raises(kind) as raised:
        play.command(**changed)
    message = str(raised.value)
    assert "\n" not in message
    assert "Traceback" not in message
    return raised.value


@pytest.mark.rest
def test_batch_with_too_many_refused_lines_is_refused(play: Play, db: psycopg.Connection) -> None:
    play.put([*FIRST, *NEXT, b"{", b"[]"])
    play.refused_rows = 1
    refused = _failure(play)
    assert refused.said.startswith("TooManyRefused: ")
    assert "2 of its 2 rows were refused" in refused.said
    assert refused.permanent
    assert db.execute("SELECT count(*) FROM holdfast.quarantine").fetchone() == (0,)

    play.refused_rows = 2
    play.command()
    assert db.execute("SELECT count(*) FROM holdfast.quarantine").fetchone() == (2,)


@pytest.mark.rest
def test_run_claims_a_known_stream_before_its_first_batch(
    play: Play, db: psycopg.Connection
) -> None:
    (play.folder / "events").mkdir()
    play.command()
    assert db.execute("SELECT count(*) FROM holdfast.stream").fetchone() == (0,)
    play.put([event("e1", "12:01", 1)])
    play.command()
    taken = (
        "SELECT query_id::text, epoch, (SELECT count(*) FROM holdfast.batch) FROM holdfast.stream"
    )
    metadata = json.loads((play.checkpoint / "metadata").read_text())
    [(query_id, epoch, batches)] = db.execute(taken).fetchall()
    assert (query_id, epoch) == (metadata["id"], 1)
    play.command()
    assert db.execute(taken).fetchall() == [(metadata["id"], 2, batches)]


@pytest.mark.rest
def test_a_checkpoint_keeps_the_settings_of_its_first_batch(play: Play) -> None:
    from holdfast.spark_app.checkpoint.journal import claim

    play.put(FIRST)
    job = play.job(key_groups=2)
    with closing(play.sink(job)) as sink:
        claim(play.files(), job, sink)
    play.command()
    assert "--key-groups was 4, is 8" in _complaint(play, key_groups=8)
    play.command(key_groups=None)
    begun = json.loads((play.checkpoint / "holdfast.json").read_text())
    assert begun["key_groups"] == 4
    (play.checkpoint / "holdfast.json").unlink()
    assert "did not begin" in _complaint(play)


@pytest.mark.rest
def test_checkpoint_continues_only_in_its_own_place(play: Play, db: psycopg.Connection) -> None:
    """A start elsewhere would leave a folder in the old place, and a move back end inside it."""
    play = replace(play, folder=play.folder / "my files")
    play.folder.mkdir()
    play.put(FIRST)
    play.command()
    checkpoint, moved = play.checkpoint, play.folder / "moved"
    kept = json.loads((checkpoint / "holdfast.json").read_text())
    assert kept["location"] == f"file:{checkpoint}"
    checkpoint.rename(moved)
    play.put(NEXT, first=1)
    refused = f"{moved} was begun in another place, '{checkpoint}', and"
    assert refused in _complaint(play, checkpoint=str(moved))
    assert not checkpoint.exists()
    moved.rename(checkpoint)
    play.command()
    assert db.execute("SELECT count(*) FROM holdfast.entry").fetchone() == (1,)


@pytest.mark.rest
def test_a_parquet_file_of_other_types_is_named_with_its_column(play: Play) -> None:
    folder = play.folder / "events"
    folder.mkdir()
    table = pa.table({"event_id": ["e1"], "merchant_id": ["m_1"], "amount_minor": ["5"]})
    pyarrow.parquet.write_table(table, folder / "texts.parquet")
    broken = _failure(play, format=Format.PARQUET)
    assert "texts.parquet" in broken.said
    assert "[amount_minor]" in broken.said
    assert "Nothing is lost" in broken.message
    assert (broken.cause, broken.permanent) == ("file", False)


@pytest.mark.rest
def test_scaled_parquet_amount_is_refused(play: Play, db: psycopg.Connection) -> None:
    """Spark writes decimal(18,2) as an integer of hundredths, and would read it as one."""
    folder = play.folder / "events"
    folder.mkdir()
    columns = {name: [value] for name, value in json.loads(FIRST[0]).items()}
    columns["amount_minor"] = pa.array([Decimal("6000000.00")], pa.decimal128(18, 2))
    columns["occurred_at"] = pa.array([at("12:01")], pa.timestamp("us", "UTC"))
    path = folder / "hundredths.parquet"
    pyarrow.parquet.write_table(pa.table(columns), path, store_decimal_as_integer=True)
    broken = _failure(play, format=Format.PARQUET)
    assert "hundredths.parquet" in broken.said
    assert "[amount_minor]" in broken.said
    assert (broken.cause, broken.permanent) == ("file", False)
    assert db.execute("SELECT count(*) FROM holdfast.batch").fetchall() == [(0,)]


@pytest.mark.rest
def test_parquet_amounts_are_exact_at_the_64_bit_limits(
    spark: "SparkSession", tmp_path: Path
) -> None:
    from holdfast.spark_app.input.source import PARQUET_DDL, parquet_amounts
    from holdfast.spark_app.runtime.session import fix

    def read(name: str, amounts: pa.Array) -> list[int | None]:
        path = tmp_path / f"{name}.parquet"
        table = pa.table({"amount_minor": amounts})
        pyarrow.parquet.write_table(table, path, store_decimal_as_integer=True)
        rows = parquet_amounts(session.read.schema(PARQUET_DDL).parquet(str(path)))
        result_rows: list[int | None] = rows.select("amount_minor").toArrow()[0].to_pylist()
        return result_rows

    session = fix(spark.newSession())
    full = [None, -(2**63), -1, 2**63 - 1]
    assert read("int64", pa.array(full)) == full
    assert read("int32", pa.array([-5], pa.int32())) == [-5]
    assert read("decimal", pa.array([Decimal(-7)], pa.decimal128(18, 0))) == [-7]
    # Beyond 64 bits: the largest integer, which the validation refuses.
    assert read("uint64", pa.array([5, 2**64 - 1], pa.uint64())) == [5, 2**63 - 1]
    for name, kind in (("date", pa.date32()), ("time", pa.time64("us")), ("uint", pa.uint32())):
        with pytest.raises(Exception, match=r"\[amount_minor\]"):
            read(name, pa.array([1], pa.int64() if kind != pa.date32() else pa.int32()).cast(kind))


@pytest.mark.rest
def test_a_file_that_is_not_parquet_is_named(play: Play) -> None:
    play.put(FIRST)
    broken = _failure(play, format=Format.PARQUET)
    assert "000.json is not a Parquet file" in broken.said
    assert (broken.cause, broken.permanent) == ("file", False)


@pytest.mark.rest
def test_compressed_file_that_was_cut_is_named(play: Play) -> None:
    """The stream ends within the exchange with a Python worker, which did not die."""
    folder = play.folder / "events"
    folder.mkdir()
    whole = gzip.compress(b"\n".join(event(f"e{n}", "12:01", n) for n in range(200)))
    (folder / "cut.json.gz").write_bytes(whole[: len(whole) // 2])
    broken = _failure(play)
    assert (broken.cause, broken.permanent) == ("file", False)
    assert "cut.json.gz" in broken.said


@pytest.mark.rest
def test_error_in_the_step_keeps_its_message(play: Play) -> None:
    beyond_64_bits = [event(f"e{number}", "12:01", 10**15) for number in range(9_300)]
    play.put(beyond_64_bits)
    overflow = _failure(play)
    assert overflow.said.startswith("ExposureOverflow: The exposure of merchant m_1")
    assert overflow.permanent


@pytest.mark.rest
def test_a_directory_that_is_gone_is_named_and_may_come_back(play: Play) -> None:
    from holdfast.spark_app.lifecycle.failure import Cause

    (play.folder / "events").mkdir()
    missing = _failure(play, paths=(str(play.folder / "gone"),))
    assert "gone" in missing.said
    assert (missing.cause, missing.permanent) == (Cause.FILE, False)


@pytest.mark.rest
def test_events_before_the_first_policy_are_quarantined(play: Play, db: psycopg.Connection) -> None:
    limits = "limit_minor = 1\nrelease_level_minor = 1\neffective_from = 2024-11-04T12:15:00Z\n"
    policy = Policy.parse(f'version = "young"\n[[default]]\n{limits}')
    play.put([event("e0", "11:59", 5), *FIRST], NEXT)
    play.command(policy=policy)
    assert db.execute("SELECT reason::text, detail FROM holdfast.quarantine").fetchall() == [
        ("time_out_of_range", "no limit of policy young is in force when its window ends")
    ]
    assert db.execute("SELECT type FROM holdfast.entry").fetchall() == [("payout_hold.block",)]


class _Slow:
    """A sink that holds each batch until it is told to go on."""

    last = None

    def __init__(self) -> None:
        self.inside = Event()
        self.go_on = Event()
        self.written: list[int] = []

    def start(self, query_id: UUID, run_id: UUID, *, repeated: Repeated | None = None) -> None:
        """Begin no run: there is no database behind it."""

    def __call__(self, df: "DataFrame", batch_id: int) -> None:
        df.toArrow()
        self.inside.set()
        assert self.go_on.wait(120)
        self.written.append(batch_id)


def test_a_stop_lets_the_running_batch_finish_and_begins_no_other(play: Play) -> None:
    from holdfast.spark_app.lifecycle.attempt import watch
    from holdfast.spark_app.lifecycle.batches import Batches
    from holdfast.spark_app.operator.job import start
    from holdfast.spark_app.runtime import session

    play.put(*([event(f"e{number}", f"12:0{number}", 1)] for number in range(4)))
    sink, stop = _Slow(), Event()
    batches = Batches(sink)
    query = start(session.fix(play.spark.newSession()), play.job(), batches, interval_ms=0)
    batches.begin(UUID(query.id), UUID(query.runId))
    watching = Thread(target=watch, args=(query, batches, stop))
    watching.start()
    try:
        assert sink.inside.wait(120)
        stop.set()
        eventually(lambda: batches.closed)
        sink.go_on.set()
        watching.join(120)
        assert not watching.is_alive()
        assert not query.isActive
    finally:
        query.stop()
    assert commits(play.checkpoint) == [0]
    assert sink.written == [0]


def test_what_spark_cannot_plan_is_not_tried_again(spark: "SparkSession") -> None:
    from pyspark.errors import AnalysisException

    from holdfast.spark_app.lifecycle.failure import diagnose

    with pytest.raises(AnalysisException) as raised:
        spark.sql("SELECT * FROM nowhere")
    assert diagnose(raised.value).permanent

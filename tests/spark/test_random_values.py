"""Random schemas and rows through Spark's own foreachBatch: each row is written or quarantined.

The reference is `entry_of`, which reads the Python values that the rows were made of.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest

from holdfast.sink import BatchInput, OutboxSink, SchemaMismatch
from holdfast.sink.foreach_batch import WritePath
from holdfast.sink.rows.read_rows import Refused, Unreadable, entry_of
from tests.support.job.job_stream import contents

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BATCHES, ROWS, DEPTH = 6, 60, 4
MICROS_MIN, MICROS_MAX = -62_135_596_800_000_000, 253_402_300_799_999_999

TEXTS = [
    "",
    "m_482",
    'a"b\\c',
    "\n\t\r",
    "\x00",
    "\x1f\x7f",
    "\u00e9\u2028",
    "\U0001f600",
    "x" * 300,
]
NAMES = ["a", "b", "B", "\u00e9", "\U0001f600", 'quo"ted', "with blank"]
INTEGERS = {"byte": 2**7, "short": 2**15, "integer": 2**31, "long": 2**63}
SUBJECTS = [b"m_1", b"m_2", "m_\u00e9".encode(), b"", b"\x00", b"\xff", b"x" * 1025, None]
TYPES = ["payout_hold.block", "payout_hold.release", "a b", "", None]
TIMES = [0, 1_793_620_000_000_000, MICROS_MIN, MICROS_MIN - 1, MICROS_MAX + 1, 2**62, None]
PATHS: tuple[WritePath, ...] = ("driver", "staged")
PLACES = ("data.", "data.inner.", "data.list[].")
PRIORITIES = [0, 1, 32_767, 32_768, -1, None]

Run = Callable[[Callable[["DataFrame", int], None], int], None]


@pytest.fixture
def run(spark: "SparkSession", tmp_path: Path) -> Iterator[Run]:
    """Run a query of some batches; each has the ids 0 to ROWS - 1 as its rows."""
    started = []

    def batches(write: Callable[["DataFrame", int], None], count: int) -> None:
        folder = tmp_path / "ids"
        folder.mkdir()
        for number in range(count):
            (folder / f"{number:03}").write_text("\n".join(map(str, range(ROWS))))
        query = (
            spark.readStream.option("maxFilesPerTrigger", 1)
            .text(str(folder))
            .selectExpr("cast(value as int) AS id")
            .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .foreachBatch(write)
            .start()
        )
        started.append(query)
        query.processAllAvailable()

    yield batches
    for query in started:
        query.stop()


def _type(choose: random.Random, depth: int) -> "DataType":
    from pyspark.sql import types

    scalars = [
        types.StringType(),
        types.StringType("UTF8_LCASE"),
        types.BooleanType(),
        types.ByteType(),
        types.ShortType(),
        types.IntegerType(),
        types.LongType(),
        types.TimestampType(),
        types.NullType(),
    ]
    if depth == DEPTH or choose.random() < 0.4:
        return choose.choice(scalars)
    if choose.random() < 0.3:
        element = _type(choose, depth + 1)
        return types.ArrayType(element, _nullable(choose, element))
    return _struct(choose, depth)


def _struct(choose: random.Random, depth: int) -> "DataType":
    from pyspark.sql import types

    names = choose.sample(NAMES, choose.randint(0, 4))
    kinds = {name: _type(choose, depth + 1) for name in names}
    return types.StructType(
        [types.StructField(name, kind, _nullable(choose, kind)) for name, kind in kinds.items()]
    )


def _nullable(choose: random.Random, kind: "DataType") -> bool:
    return kind.typeName() == "void" or choose.random() < 0.5


def _value(choose: random.Random, kind: "DataType", nullable: bool) -> Any:
    from pyspark.sql import types

    if kind.typeName() == "void" or (nullable and choose.random() < 0.3):
        return None
    if isinstance(kind, types.StructType):
        return {f.name: _value(choose, f.dataType, f.nullable) for f in kind}
    if isinstance(kind, types.ArrayType):
        size = choose.choice([0, 1, 3])
        return [_value(choose, kind.elementType, kind.containsNull) for _ in range(size)]
    if isinstance(kind, types.StringType):
        return choose.choice(TEXTS)
    if isinstance(kind, types.BooleanType):
        return choose.random() < 0.5
    if isinstance(kind, types.TimestampType):
        micros = choose.choice([0, 1, 1_793_620_000_000_000, choose.randint(0, 2**52)])
        return EPOCH + timedelta(microseconds=micros)
    most = INTEGERS[kind.typeName()]
    return choose.choice([0, -1, most - 1, -most, choose.randint(-100, 100)])


def _rows(choose: random.Random, data: "DataType", batch: int) -> list[dict[str, Any]]:
    def mostly(value: Any, others: list[Any]) -> Any:
        return value if choose.random() < 0.9 else choose.choice(others)

    return [
        {
            "id": n,
            "subject": mostly(b"m_1", SUBJECTS),
            "type": mostly(TYPES[0], TYPES),
            "key": mostly(["k", f"{batch}/{n}"], [None, [], ["a", None], ["a", ""], ["\x00"]]),
            "micros": mostly(1_793_620_000_000_000 + n, TIMES),
            "data": _value(choose, data, nullable=True),
            "raw": mostly(b"m", SUBJECTS),
            "at": mostly(0, TIMES),
            "priority": choose.choice(PRIORITIES[:2]) if n % 10 else choose.choice(PRIORITIES),
        }
        for n in range(ROWS)
    ]


def _frame(spark: "SparkSession", rows: list[dict[str, Any]], data: "DataType") -> "DataFrame":
    from pyspark.sql import types

    columns = {
        "id": types.IntegerType(),
        "subject": types.BinaryType(),
        "type": types.StringType(),
        "key": types.ArrayType(types.StringType()),
        "micros": types.LongType(),
        "data": data,
        "raw": types.BinaryType(),
        "at": types.LongType(),
        "priority": types.IntegerType(),
    }
    schema = types.StructType([types.StructField(name, kind) for name, kind in columns.items()])
    values = [tuple(row[name] for name in columns) for row in rows]
    # Python's own values: Spark's check of them takes as long as the batch.
    return spark.createDataFrame(values, schema, verifySchema=False)


def _text(raw: bytes | None) -> Any:
    try:
        return raw and raw.decode()
    except UnicodeDecodeError as error:
        return Unreadable(str(error))


def _data(row: dict[str, Any]) -> Any:
    """Return `data` as the query widens it, by a text and a time that Python may not represent."""
    text, micros = _text(row["raw"]), row["at"]
    if row["data"] is None:
        return None
    if isinstance(text, Unreadable):
        return text
    try:
        at = micros if micros is None else EPOCH + timedelta(microseconds=micros)
    except OverflowError as error:
        return Unreadable(str(error))
    return row["data"] | {"raw": [{"x": text}], "at": at}


def _expected(rows: list[dict[str, Any]]) -> tuple[dict[str, str], Counter[str]]:
    """Return the tail of the body by the text of its key, and how many rows have which reason."""
    tails, reasons = {}, Counter[str]()
    for row in rows:
        named = (row[name] for name in ("type", "key", "micros"))
        try:
            entry = entry_of(_text(row["subject"]), *named, _data(row), row["priority"], None)
        except Refused as why:
            reasons[why.reason] += 1
        else:
            tails[entry.key_text] = entry.envelope.tail.decode()
    return tails, reasons


def test_random_rows_are_written_or_quarantined(
    run: Run,
    spark: "SparkSession",
    make_database: Callable[[str | None], str],
    template_database: str,
) -> None:
    from pyspark.sql import functions as F  # noqa: N812 (its name everywhere)

    choose = random.Random(38)  # noqa: S311 - the same rows in each run
    dsns = [make_database(template_database) for _ in range(2)]
    sinks = [
        OutboxSink(dsn, stream="payouts", path=path) for dsn, path in zip(dsns, PATHS, strict=True)
    ]
    batches: list[tuple[DataType, list[dict[str, Any]]]] = []

    def write(ids: "DataFrame", batch_id: int) -> None:
        data = _struct(choose, 0)
        rows = _rows(choose, data, batch_id)
        batches.append((data, rows))
        entries = ids.join(F.broadcast(_frame(spark, rows, data)), "id").select(
            F.col("subject").cast("string"),
            "type",
            "key",
            F.timestamp_micros("micros").alias("occurred_at"),
            F.col("data")
            .withField("raw", F.array(F.struct(F.col("raw").cast("string").alias("x"))))
            .withField("at", F.timestamp_micros("at"))
            .alias("data"),
            "priority",
        )
        for sink in sinks:
            sink(entries, batch_id)

    run(write, BATCHES)
    left = []
    for sink, dsn in zip(sinks, dsns, strict=True):
        sink.close()
        with psycopg.connect(dsn, autocommit=True) as db:
            left.append(contents(db))
    driver, staged = left
    assert driver == staged
    assert len(batches) == BATCHES
    for batch_id, (data, rows) in enumerate(batches):
        tails, reasons = _expected(rows)
        bodies = [row[-1] for row in driver["entry"] if row[6] == batch_id]
        kept = Counter(row[1] for row in driver["quarantine"] if row[0] == batch_id)
        assert kept == reasons, data
        written = sorted(body[body.index(',"key":"hf_') :] for body in bodies)
        assert written == sorted(tails.values()), data


def test_types_without_a_form_are_refused_by_name(
    run: Run, spark: "SparkSession", dsn: str
) -> None:
    from pyspark.sql import types

    without = {
        "float": types.FloatType(),
        "double": types.DoubleType(),
        "decimal": types.DecimalType(38, 10),
        "binary": types.BinaryType(),
        "date": types.DateType(),
        "time": types.TimeType(),
        "ntz": types.TimestampNTZType(),
        "days": types.DayTimeIntervalType(),
        "map": types.MapType(types.StringType(), types.StringType()),
        "variant": types.VariantType(),
        "geometry": types.GeometryType(4326),
        "geography": types.GeographyType(4326),
    }
    no_arrow = {"months": types.YearMonthIntervalType(), "interval": types.CalendarIntervalType()}
    refused: list[tuple[bool, str]] = []

    def write(_ids: "DataFrame", batch_id: int) -> None:
        for kinds in (without, no_arrow):
            one = types.StructType([types.StructField(n, t) for n, t in kinds.items()])
            data = types.StructType(
                [
                    *one.fields,
                    types.StructField("inner", one),
                    types.StructField("list", types.ArrayType(one)),
                ]
            )
            for sink in sinks:
                with pytest.raises(SchemaMismatch) as caught:
                    sink(_frame(spark, [], data), batch_id)
                paths = [f"{place}{name} is " for place in PLACES for name in kinds]
                refused.extend((path in str(caught.value), path) for path in paths)

    sinks = [OutboxSink(dsn, stream="payouts", path=path) for path in PATHS]
    run(write, 1)
    assert len(refused) == 2 * len(PLACES) * (len(without) + len(no_arrow))
    assert [path for is_named, path in refused if not is_named] == []
    for sink in sinks:
        sink.close()


def test_select_may_drop_a_null_of_any_type(run: Run, dsn: str, db: psycopg.Connection) -> None:
    """No `SchemaMismatch` protects these columns: they must reach `select` with their nulls."""
    values = [
        *("named_struct('a', 1)", "map('k', named_struct('a', 1))", "array(named_struct('a', 1))"),
        *("parse_json('{}')", "1.5BD", "X'00'", "DATE'2026-01-01'", "array()", "named_struct()"),
        *("TIMESTAMP_NTZ'2026-01-01 00:00:00'", "INTERVAL '1' DAY", "named_struct('a', array())"),
    ]
    odd = [f"if(id % 2 = 0, NULL, {value}) AS odd_{n}" for n, value in enumerate(values)]

    def select(rows: pa.Table) -> BatchInput:
        dropped = [name for name in rows.column_names if name.startswith("odd_")]
        assert {rows.column(name).null_count for name in dropped} == {ROWS // 2}
        return BatchInput(rows.drop_columns(dropped))

    sink = OutboxSink(dsn, stream="payouts", select=select)
    run(
        lambda ids, batch_id: sink(
            ids.selectExpr(
                "cast(id as string) AS subject",
                "'payout_hold.block' AS type",
                "array(cast(id as string)) AS key",
                "TIMESTAMP'2026-11-02 12:15:00' AS occurred_at",
                "named_struct('n', id) AS data",
                *odd,
            ),
            batch_id,
        ),
        1,
    )
    sink.close()
    assert db.execute("SELECT count(*) FROM holdfast.entry").fetchone() == (ROWS,)

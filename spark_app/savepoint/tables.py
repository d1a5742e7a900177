"""The state in a savepoint as three tables, and the rows of another number of key groups of them.

    windows    merchant_id, window_end_us, exposure_minor, revision, blocks, releases
    merchants  merchant_id, held, latest_end_us, hand_number, hand_decided_at_us, hand_until_us
    ids        merchant_id, window_end_us, event_id, position

Times are microseconds since 1970. `position` orders the ids of one window and one merchant, oldest
first. A merchant's key group is not stored: it depends on the number of groups.

The functions run in Spark's tasks, on one frame of `stored` or one key group at a time, so no
process holds the state of more than one group.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from holdfast.spark_app.exposure.schema import (
    STATE_ABSORBED,
    STATE_MERCHANTS,
    STATE_WINDOWS,
    TIMESTAMP,
)
from holdfast.spark_app.exposure.settings import Settings
from holdfast.spark_app.exposure.state import GroupState
from holdfast.spark_app.operator import initial_state, stored
from holdfast.spark_app.operator.stored import combined

WINDOWS: Final = "windows"
MERCHANTS: Final = "merchants"
IDS: Final = "ids"

SCHEMAS: Final = {
    WINDOWS: pa.schema(
        {
            "merchant_id": pa.string(),
            "window_end_us": pa.int64(),
            "exposure_minor": pa.int64(),
            "revision": pa.int32(),
            "blocks": pa.int32(),
            "releases": pa.int32(),
        }
    ),
    MERCHANTS: pa.schema(
        {
            "merchant_id": pa.string(),
            "held": pa.bool_(),
            "latest_end_us": pa.int64(),
            "hand_number": pa.int64(),
            "hand_decided_at_us": pa.int64(),
            "hand_until_us": pa.int64(),
        }
    ),
    IDS: pa.schema(
        {
            "merchant_id": pa.string(),
            "window_end_us": pa.int64(),
            "event_id": pa.string(),
            "position": pa.int64(),
        }
    ),
}

_TYPES: Final = {
    pa.string(): "string",
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.bool_(): "boolean",
}

DDL: Final = {
    name: ", ".join(f"{field.name} {_TYPES[field.type]}" for field in schema)
    for name, schema in SCHEMAS.items()
}

SOURCE: Final = {WINDOWS: stored.WINDOWS, MERCHANTS: stored.GROUP, IDS: stored.IDS}
"""The stored value from which each table is read."""

_POSITIONS_PER_SEGMENT = 1 << 32

_EVERY: Final = pa.unify_schemas(list(SCHEMAS.values()))
"""The columns of all three tables: a row of one has nulls in the others."""


def table_rows(name: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for `mapInArrow`: stored values in, rows of a table out.

    The input has the columns window_end, piece and content of `inspection.reader`.
    """
    return {WINDOWS: _windows, MERCHANTS: _merchants, IDS: _ids}[name]


def _windows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for value in _values(batches):
        state = stored.decode_group(None, None, {value["window_end"]: value["content"]}, {})
        yield from _as_rows(WINDOWS, state.windows)


def _merchants(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for value in _values(batches):
        state = stored.decode_group(None, value["content"], {}, {})
        yield from _as_rows(MERCHANTS, state.merchants)


def _ids(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for value in _values(batches):
        key = (value["window_end"], value["piece"])
        ids = stored.decode_group(None, None, {}, {key: value["content"]}).absorbed
        first = value["piece"] * _POSITIONS_PER_SEGMENT
        positions = pa.array(range(first, first + ids.num_rows), pa.int64())
        yield from _as_rows(IDS, ids.append_column("position", positions))


def _values(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        # One by one: as Python values, the frames of a whole batch would be in memory twice.
        for number in range(batch.num_rows):
            [value] = batch.slice(number, 1).to_pylist()
            yield value


def _as_rows(name: str, table: pa.Table) -> Iterator[pa.RecordBatch]:
    schema = SCHEMAS[name]
    columns = [table[field.name.removesuffix("_us")].cast(field.type) for field in schema]
    yield from pa.Table.from_arrays(columns, schema=schema).to_batches()


@dataclass(frozen=True)
class Regrouped:
    """The function for `applyInArrow`: all rows of a key group in, `initial_state.COLUMNS` out."""

    settled_until_us: int | None
    watermark_us: int | None
    settings: Settings

    def __call__(self, rows: pa.Table) -> pa.Table:
        number = rows["key_group"][0].as_py()
        state = group_state(rows, self.settled_until_us)
        return initial_state.rows(number, state, self.watermark_us, self.settings)


def group_state(rows: pa.Table, settled_until_us: int | None) -> GroupState:
    """Return the state of one key group; `rows` has the columns of all tables, in any order.

    Raises StateError for a merchant that is there twice.
    """
    is_id = pc.is_valid(rows["position"])
    is_window = pc.is_valid(rows["exposure_minor"])
    is_merchant = pc.is_valid(rows["held"])
    state = GroupState(
        windows=_as_state(STATE_WINDOWS, rows.filter(is_window)),
        merchants=_as_state(STATE_MERCHANTS, rows.filter(is_merchant)),
        absorbed=_as_state(STATE_ABSORBED, rows.filter(is_id).sort_by("position")),
        settled_until_us=settled_until_us,
    )
    return combined([state])


def _as_state(schema: pa.Schema, rows: pa.Table) -> pa.Table:
    columns = []
    for field in schema:
        if field.type == TIMESTAMP:
            columns.append(rows[f"{field.name}_us"].cast(TIMESTAMP))
        elif pa.types.is_dictionary(field.type):
            columns.append(rows[field.name].combine_chunks().dictionary_encode())
        else:
            columns.append(rows[field.name])
    return pa.Table.from_arrays(columns, schema=schema)


def regrouped(
    spark: SparkSession,
    tables: dict[str, DataFrame],
    numbers: tuple[int, ...],
    regroup: Regrouped,
) -> DataFrame:
    """Return the rows of `initial_state` of all key groups; `tables` are those of a savepoint.

    `numbers` are those of `groups.group_numbers`.
    """
    every = [
        table.select(
            _key_group(numbers).alias("key_group"),
            *(
                F.col(field.name) if field.name in SCHEMAS[name].names else _null(field)
                for field in _EVERY
            ),
        )
        for name, table in tables.items()
    ]
    # A group without rows may have the frontier.
    each = spark.createDataFrame([(number,) for number in numbers], "key_group int")
    rows = each.select("key_group", *map(_null, _EVERY))
    for table in every:
        rows = rows.unionByName(table)

    # PySpark counts the parameters of a method with `self`, and would pass it the key.
    def of_group(group: pa.Table) -> pa.Table:
        return regroup(group)

    return rows.groupBy("key_group").applyInArrow(of_group, initial_state.DDL)


def _null(field: pa.Field) -> Column:
    return F.lit(None).cast(_TYPES[field.type]).alias(field.name)


def _key_group(numbers: tuple[int, ...]) -> Column:
    """`groups.key_group` as a column: Spark's `crc32` is that of zlib."""
    place = F.crc32(F.col("merchant_id").cast("binary")) % len(numbers)
    return F.element_at(F.lit(list(numbers)), (place + 1).cast("int"))

"""`check`: what the sink needs of a job's decisions, tried on one batch."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.sink.contract.numbers import counted
from holdfast.sink.contract.states import QuarantineReason
from holdfast.sink.rows.batch import BatchInput, prepare
from holdfast.sink.rows.columns import check_entries
from holdfast.sink.rows.digest import digest
from holdfast.sink.rows.evidence import readable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    Decide = Callable[[DataFrame], DataFrame]

PARTITIONS = 3

_PLACE = "holdfast_place"

_NO_REPLAY = (
    " Spark repeats a batch after a crash, and the sink refuses one that comes back with other rows"
    " (`ReplayDiverged`). Let each decision depend on the rows of the batch alone: on no clock, no"
    " random number, and no order that two rows can share."
)


class CheckFailed(AssertionError):
    """The decisions are not what the sink needs; the text names the first row that shows it."""


def check(decide: "Decide", batch: "DataFrame") -> pa.Table:
    """Return what `decide` makes of a batch, if the sink could write it, also in a replay.

    `decide` is called three times: with the batch, with its rows in reverse order in one partition,
    and with its rows in three partitions. Columns, types, keys and values must be those of the
    sink, and all three results the same; a row that a rule of the job rejects is one of them.

    Raises `SchemaMismatch` for a column, and `CheckFailed` for a row. It cannot see what differs on
    another day only, as `current_date()`.
    """
    decided = _collected(decide(batch))
    if not decided.num_rows:
        raise CheckFailed(
            "no row was decided, so nothing was checked: give a batch of which something is decided"
        )
    _require_sound(decided)
    for how, again in _rearranged(batch):
        _require_same(decided, _collected(decide(again)), how)
    return decided


def _collected(df: "DataFrame") -> pa.Table:
    from holdfast.sink.session import collected  # noqa: PLC0415 - `holdfast.testing` needs no Spark
    from holdfast.sink.transaction.staging import arrow_schema  # noqa: PLC0415

    schema = arrow_schema(df)
    check_entries(schema.empty_table(), "Correct the columns, and check again.")
    return collected(df, schema)


def _rearranged(batch: "DataFrame") -> "Iterator[tuple[str, DataFrame]]":
    placed = batch.selectExpr("*", f"monotonically_increasing_id() AS {_PLACE}")
    yield "in reverse order", placed.orderBy(_PLACE, ascending=False).coalesce(1).drop(_PLACE)
    yield f"in {PARTITIONS} partitions", batch.repartition(PARTITIONS)


def _require_sound(decided: pa.Table) -> None:
    """Raise `CheckFailed` for a row that the sink would quarantine, unless a rule rejects it."""
    for row in prepare(BatchInput(decided)).quarantined.to_pylist():
        if row["reason"] != QuarantineReason.REJECTED:
            raise CheckFailed(
                f"the sink would refuse a row ({row['reason']}): {row['detail']}. Correct it, or"
                f" let a rule reject the row (column `rejected`). The row: {row['row']}"
            )


def _require_same(first: pa.Table, again: pa.Table, how: str) -> None:
    if digest({"entries": first}) != digest({"entries": again}):
        raise CheckFailed(
            f"decided again {how}, the same rows give other decisions:"
            f" {_first_difference(first, again)}.{_NO_REPLAY}"
        )


def _first_difference(first: pa.Table, again: pa.Table) -> str:
    if first.schema.names != again.schema.names:
        return f"the columns are {again.schema.names}, and were {first.schema.names}"
    then, now = _by_key(first), _by_key(again)
    for key in sorted(then.keys() | now.keys()):
        pairs = zip(then[key], now[key], strict=False)
        place, was, became = next(
            (each for row, other in pairs for each in _differences(row, other)), ("", None, None)
        )
        if place:
            return f"column {place!r} of the row with key {key} is {became}, and was {was}"
        if len(then[key]) != len(now[key]):
            rows = counted(len(now[key]), "row")
            return f"column 'key': {rows} with {key}, and there were {len(then[key])}"
    return "the types of its columns differ"


def _by_key(table: pa.Table) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each key, in one order."""
    rows = defaultdict(list)
    columns = {name: table[name].combine_chunks() for name in table.schema.names}
    for index in range(table.num_rows):
        row = {name: readable(column[index]) for name, column in columns.items()}
        rows[_text(row["key"])].append(row)
    for each in rows.values():
        each.sort(key=_text)
    return rows


def _differences(row: Any, other: Any, place: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield the columns, and the fields of `data`, in which two rows differ."""
    if isinstance(row, dict) and isinstance(other, dict):
        for name in sorted(row.keys() | other.keys()):
            inner = f"{place}.{name}" if place else name
            yield from _differences(row.get(name), other.get(name), inner)
    elif row != other:
        yield place, _text(row), _text(other)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)

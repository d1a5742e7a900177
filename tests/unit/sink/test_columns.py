"""A table with wrong columns is refused as a whole, with the column and the way to mend it."""

import pyarrow as pa
import pytest

from holdfast.sink.errors import SchemaMismatch
from holdfast.sink.rows.batch import BatchInput, prepare
from tests.support.dispatch.entries import SCHEMA, decision, table


def _refusal(entries: pa.Table, companions: dict[str, pa.Table] | None = None) -> str:
    with pytest.raises(SchemaMismatch) as raised:
        prepare(BatchInput(entries, None, companions or {}))
    assert "nothing was written" in str(raised.value)
    return str(raised.value)


def nested(levels: int) -> pa.DataType:
    type_: pa.DataType = pa.int64()
    for _ in range(levels):
        type_ = pa.struct({"x": type_})
    return type_


def test_missing_column_is_named() -> None:
    assert "column 'key' (array<string>) is missing" in _refusal(table().drop_columns("key"))


def test_column_in_another_case_is_not_taken_for_it() -> None:
    names = ["Subject" if name == "subject" else name for name in SCHEMA.names]
    words = _refusal(table().rename_columns(names))
    assert "column 'Subject' must be spelled 'subject'" in words
    assert "missing" not in words


def test_unknown_and_repeated_columns_are_named() -> None:
    assert "column 'amount' is not known here" in _refusal(
        table().append_column("amount", pa.array([], pa.int64()))
    )
    assert "column 'SUBJECT' is there twice" in _refusal(
        table().append_column("SUBJECT", pa.array([], pa.string()))
    )


def test_all_problems_come_in_one_error() -> None:
    entries = table(decision()).drop_columns(["type", "data"])
    words = _refusal(entries.append_column("priority", pa.array(["high"])))
    assert all(name in words for name in ("'type'", "'data'", "'priority' is string"))


@pytest.mark.parametrize(
    ("name", "type_", "fix"),
    [
        ("subject", pa.int64(), "cast it to string"),
        ("key", pa.string(), "F.array"),
        ("occurred_at", pa.timestamp("us"), "cast it to timestamp"),
        ("occurred_at", pa.timestamp("ns", "UTC"), "microseconds"),
        ("occurred_at", pa.date32(), "cast it to timestamp"),
        ("data", pa.map_(pa.string(), pa.string()), "F.struct"),
        ("data", pa.struct({"amount": pa.float64()}), "data.amount is double: floats round"),
        ("data", pa.struct({"a": pa.decimal128(9, 2)}), "data.a is decimal128(9, 2): send integer"),
        ("data", pa.struct({"a": pa.list_(pa.struct({"b": pa.binary()}))}), "data.a[].b is binary"),
        ("data", pa.struct({"a": pa.map_(pa.string(), pa.int64())}), "send a struct"),
        ("data", pa.struct({"a": pa.timestamp("us")}), "with a time zone"),
        ("data", pa.struct({"a": pa.date32()}), "cast it to string"),
        ("data", pa.struct([("a", pa.int64()), ("a", pa.int64())]), "data.a: two fields"),
        ("data", nested(60), "is nested in more than 60 levels"),
        ("data", pa.struct({"a\0b": pa.int64()}), r"'data.a\x00b': a field's name holds a NUL"),
        ("data", pa.struct({"a": pa.list_(pa.struct({"\0": pa.int64()}))}), r"'data.a[].\x00': a"),
    ],
)
def test_wrong_type_is_named_with_its_fix(name: str, type_: pa.DataType, fix: str) -> None:
    column = pa.array([], type_) if not pa.types.is_map(type_) else pa.nulls(0, type_)
    position = SCHEMA.get_field_index(name)
    words = _refusal(table().set_column(position, pa.field(name, type_), column))
    assert name in words
    assert fix in words


def test_optional_column_of_nulls_is_taken() -> None:
    entries = table(decision()).append_column("priority", pa.nulls(1))
    assert prepare(BatchInput(entries)).entries["priority"].to_pylist() == [0]


def test_companion_is_flat_and_has_no_floats() -> None:
    nested = pa.table({"a": pa.array([{"b": 1}])})
    floats = pa.table({"a": pa.array([1.5])})
    assert "a companion table is flat" in _refusal(table(), {"windows": nested})
    assert "companion table 'windows': column 'a' is double" in _refusal(
        table(), {"windows": floats}
    )

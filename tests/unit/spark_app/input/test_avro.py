"""Avro values: which types of a schema are read as an event, and what is wrong with the others."""

import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle

from holdfast.sink.contract.states import QuarantineReason as Reason
from holdfast.spark_app.input.avro import FRAME, AvroParser, Schema, prepare
from holdfast.spark_app.input.avro_bytes import NESTING_MAX, SchemaUnusable
from holdfast.spark_app.input.events import EVENT, Fault, Parsed
from holdfast.spark_app.input.lines import parse_lines

MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 20}
AT_MS = 1_793_620_800_123


def _record(**types: Any) -> dict[str, Any]:
    known: dict[str, Any] = {
        "event_id": "string",
        "merchant_id": "string",
        "type": "string",
        "amount_minor": "long",
        "currency": "string",
        "occurred_at": MILLIS,
    } | types
    fields = [{"name": name, "type": kind} for name, kind in known.items() if kind is not None]
    return {"type": "record", "name": "Event", "fields": fields}


EVENT_OF = {
    "event_id": "e1",
    "merchant_id": "m_1",
    "type": "payout_submitted",
    "amount_minor": -1_800_000,
    "currency": "USD",
    "occurred_at": AT_MS,
}


def _encoded(schema: dict[str, Any], **changed: Any) -> bytes:
    stream = io.BytesIO()
    # With the encoded values of logical types.
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), EVENT_OF | changed)
    return stream.getvalue()


def _parsed(schema: dict[str, Any], *values: bytes) -> Parsed:
    return AvroParser(prepare(json.dumps(schema)))(pa.array(values, pa.binary()))


def _row(schema: dict[str, Any], **changed: Any) -> dict[str, Any]:
    parsed = _parsed(schema, _encoded(schema, **changed))
    assert parsed.faults == {}
    [row] = parsed.events.to_pylist()
    return row | {"occurred_at": parsed.events["occurred_at"].cast(pa.int64())[0].as_py()}


def _fault(schema: dict[str, Any], **changed: Any) -> Fault:
    parsed = _parsed(schema, _encoded(schema, **changed))
    assert parsed.events.num_rows == 1
    return parsed.faults[0]


def test_record_is_read_as_the_same_event_as_its_json() -> None:
    schema = _record(
        note="string", event_id=["null", "string"], extra={"type": "map", "values": "int"}
    )
    value = _encoded(schema, note="of no interest", extra={"a": 1})
    line = json.dumps(EVENT_OF | {"occurred_at": "2026-11-02T12:00:00.123Z"}).encode()
    [event] = _parsed(schema, value).events.to_pylist()
    [same] = parse_lines(pa.array([line], pa.binary())).events.to_pylist()
    assert event == same


@pytest.mark.parametrize(
    ("kind", "written", "micros"),
    [
        (MILLIS, AT_MS, AT_MS * 1000),
        (MICROS, AT_MS * 1000 + 7, AT_MS * 1000 + 7),
        (["null", MILLIS], AT_MS, AT_MS * 1000),
        (["null", MILLIS], None, None),
        ("string", "2026-11-02T13:00:00.123456789+01:00", 1_793_620_800_123_456),
    ],
)
def test_time_is_of_a_timestamp_or_a_text(kind: Any, written: Any, micros: int | None) -> None:
    assert _row(_record(occurred_at=kind), occurred_at=written)["occurred_at"] == micros


@pytest.mark.parametrize(
    ("kind", "written", "amount"),
    [
        ("int", 5, 5),
        ("long", -(2**63), -(2**63)),
        (DECIMAL, Decimal(-1_800_000), -1_800_000),
        (DECIMAL | {"scale": 0}, Decimal(2**63 - 1), 2**63 - 1),
        ({"type": "fixed", "name": "F", "size": 9} | {"logicalType": "decimal", "precision": 20},
         Decimal(-7), -7),
        (["null", "long"], None, None),
    ],
)  # fmt: skip
def test_amount_is_a_whole_number(kind: Any, written: Any, amount: int | None) -> None:
    assert _row(_record(amount_minor=kind), amount_minor=written)["amount_minor"] == amount


def test_type_and_currency_may_be_enumerations() -> None:
    kind = {"type": "enum", "name": "Currency", "symbols": ["EUR", "USD"]}
    assert _row(_record(currency=kind))["currency"] == "USD"


@pytest.mark.parametrize(
    ("name", "kind", "written", "reason", "message"),
    [
        ("amount_minor", "double", 5.0, Reason.BAD_AMOUNT, "amount_minor is double in its schema"),
        ("amount_minor", "string", "5", Reason.BAD_AMOUNT, "expected int, long, or decimal"),
        ("amount_minor", MILLIS, 5, Reason.BAD_AMOUNT, "long of timestamp-millis"),
        ("amount_minor", DECIMAL | {"scale": 2}, Decimal("1.25"), Reason.BAD_AMOUNT, "scale 2"),
        ("amount_minor", ["null", "long", "string"], 5, Reason.BAD_AMOUNT, "union of several"),
        ("occurred_at", "long", AT_MS, Reason.BAD_TIME, "occurred_at is long in its schema"),
        ("occurred_at", {"type": "long", "logicalType": "local-timestamp-millis"}, AT_MS,
         Reason.BAD_TIME, "long of local-timestamp-millis"),
        ("occurred_at", {"type": "int", "logicalType": "date"}, 3, Reason.BAD_TIME, "int of date"),
        ("currency", "bytes", b"USD", Reason.WRONG_CURRENCY, "currency is bytes"),
        ("event_id", "long", 7, Reason.BAD_TEXT, "event_id is long in its schema, expected string"),
        ("merchant_id", {"type": "map", "values": "int"}, {}, Reason.BAD_TEXT, "is map"),
    ],
)  # fmt: skip
def test_field_of_another_type_is_refused_and_not_converted(
    name: str, kind: Any, written: Any, reason: Reason, message: str
) -> None:
    fault = _fault(_record(**{name: kind}), **{name: written})
    assert fault.reason is reason
    assert message in fault.detail


@pytest.mark.parametrize(
    ("kind", "name", "written", "reason"),
    [
        (MILLIS, "occurred_at", 2**62, Reason.TIME_OUT_OF_RANGE),
        ("string", "occurred_at", "2026-11-02 12:00", Reason.BAD_TIME),
        (DECIMAL, "amount_minor", Decimal(2**63), Reason.AMOUNT_OUT_OF_RANGE),
    ],
)
def test_too_large_value_is_refused(kind: Any, name: str, written: Any, reason: Reason) -> None:
    assert _fault(_record(**{name: kind}), **{name: written}).reason is reason


def test_missing_field_is_null_and_aliases_are_ignored() -> None:
    schema = _record(amount_minor=None, amount={"type": "long"})
    schema["fields"][-1]["aliases"] = ["amount_minor"]
    assert _row(schema, amount=5)["amount_minor"] is None


def test_bytes_outside_the_schema_refuse_only_their_record() -> None:
    schema = _record()
    good = _encoded(schema)
    parsed = _parsed(
        schema, good[:-1], good, good + b"\0", b"\xff" * 40, b"\x04\xff\xfe" + good[3:]
    )
    assert sorted(parsed.faults) == [0, 2, 3, 4]
    assert {fault.reason for fault in parsed.faults.values()} == {Reason.MALFORMED}
    assert "1 bytes are left over" in parsed.faults[2].detail
    assert "not UTF-8" in parsed.faults[4].detail
    assert parsed.text(2) == "0x" + (good + b"\0").hex()
    assert json.loads(parsed.text(1)) == EVENT_OF


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not an Avro schema"),
        ('"string"', "not that of a record"),
        ('{"type":"record"}', "not an Avro schema"),
        (
            '{"type":"record","name":"E","fields":[{"name":"a","type":"Other"}]}',
            "refers to .Other.",
        ),
        ("[" * 100_000, "not an Avro schema"),
        ('{"type":"enum","name":"E","symbols":["a"]}', "not that of a record"),
    ],
)
def test_schema_that_is_no_record_is_refused(text: str, message: str) -> None:
    with pytest.raises(SchemaUnusable, match=message):
        prepare(text)


def test_frame_names_the_schema_and_each_is_asked_for_once() -> None:
    asked: list[int] = []
    one, two = (prepare(json.dumps(_record(amount_minor=kind))) for kind in ("long", "int"))

    def by_id(number: int) -> Schema | Fault:
        asked.append(number)
        return {7: one, 8: two}.get(number, Fault(Reason.MALFORMED, "unknown"))

    long, short = _encoded(_record()), _encoded(_record(amount_minor="int"))
    values = [FRAME.pack(0, 7) + long, FRAME.pack(0, 8) + short, FRAME.pack(0, 7) + long]
    values += [FRAME.pack(0, 9) + long, FRAME.pack(1, 7) + long, b"\0\0", b""]
    parsed = AvroParser(by_id)(pa.array(values, pa.binary()))
    assert asked == [7, 8, 9]
    assert sorted(parsed.faults) == [3, 4, 5, 6]
    assert "expected a zero byte" in parsed.faults[4].detail
    assert parsed.events["amount_minor"].to_pylist()[:3] == [-1_800_000] * 3
    assert parsed.text(3) == "0x" + values[3].hex()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=4))
def test_any_bytes_are_events_or_faults(values: list[bytes]) -> None:
    schema = _record(more={"type": "array", "items": "string"}, event_id=["null", "string"])
    parsed = _parsed(schema, *values)
    assert parsed.events.schema == EVENT
    assert parsed.events.num_rows == len(values)
    for position in range(len(values)):
        assert parsed.text(position).encode()


def _prepared(*fields: Any) -> Schema:
    named = [{"name": f"f{at}", "type": kind} for at, kind in enumerate(fields)]
    return prepare(json.dumps({"type": "record", "name": "E", "fields": named}))


EMPTY = {"type": "record", "name": "Empty", "fields": []}
RECURSIVE = {"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([["null", "E"]], "recursive"),
        ([{"type": "map", "values": RECURSIVE}], "recursive"),
        ([RECURSIVE | {"fields": [{"name": "e", "type": {"type": "array", "items": "E"}}]}],
         "recursive"),
        ([{"type": "array", "items": "null"}], "items without bytes"),
        ([EMPTY, {"type": "array", "items": "Empty"}], "items without bytes"),
        ([{"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}], "without bytes"),
        ([EMPTY] + [
            {"type": "record", "name": f"R{at}",
             "fields": [{"name": "a", "type": f"R{at - 1}" if at else "Empty"}]}
            for at in range(5000)
        ], "nested too deeply"),
    ],
)  # fmt: skip
def test_schema_of_which_few_bytes_end_a_process_is_refused(
    fields: list[Any], message: str
) -> None:
    with pytest.raises(SchemaUnusable, match=message):
        _prepared(*fields)


def _doubled(leaf: Any, times: int) -> dict[str, Any]:
    """Return a schema of 2 to the power of `times` leaves, which is itself short."""
    kind = {"type": "record", "name": "R0", "fields": [{"name": "a", "type": leaf}]}
    for at in range(1, times + 1):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": f"R{at - 1}"}]
        kind = {"type": "record", "name": f"R{at}", "fields": fields}
    return kind


def test_schema_of_many_values_without_bytes_is_refused() -> None:
    for leaf in ("null", EMPTY, {"type": "fixed", "name": "F", "size": 0}):
        with pytest.raises(SchemaUnusable, match="values without bytes"):
            prepare(json.dumps(_doubled(leaf, 8)))
    # Values with bytes end with the bytes.
    for leaf in ("long", ["null", "long"]):
        prepared = prepare(json.dumps(_doubled(leaf, 20)))
        assert AvroParser(prepared)(pa.array([b"\0" * 9], pa.binary())).faults.keys() == {0}
    assert _prepared(*[["null", "string"]] * 500, *["null"] * 9).parsed


def test_types_named_twice_and_empty_maps_are_read() -> None:
    one = {"type": "record", "name": "One", "fields": [{"name": "a", "type": "int"}]}
    assert _prepared(one, "One", ["null", "One"], {"type": "map", "values": "null"}).parsed


@pytest.mark.parametrize(
    "changed",
    [
        {"fields": None},
        {"__fastavro_parsed__": True, "__named_schemas": {}},
        {"__fastavro_parsed": True, "__named_schemas": {}},
        {"fields": [{"name": "amount_minor", "type": "long"}] * 2},
        {"fields": [{"name": "a", "type": {"type": "fixed", "name": "F", "size": -1}}]},
        {"fields": [{"name": "a", "type": {"type": "fixed", "name": "F", "size": "1"}}]},
    ],
)
def test_schema_that_is_none_is_unusable_and_nothing_else(changed: dict[str, Any]) -> None:
    described = {"type": "record", "name": "E", "fields": []} | changed
    with pytest.raises(SchemaUnusable):
        prepare(json.dumps({name: value for name, value in described.items() if value is not None}))


@pytest.mark.parametrize("logical", [["x"], {"a": 1}, 7, True])
def test_logical_type_that_is_no_text_makes_another_type(logical: Any) -> None:
    for name, base in (("occurred_at", "long"), ("event_id", "string"), ("amount_minor", "long")):
        schema = _record(**{name: {"type": base, "logicalType": logical}})
        [fault] = prepare(json.dumps(schema)).faults
        assert fault.detail.startswith(f"{name} is {base} in its schema")


CURRENCY = {"type": "enum", "name": "Currency", "symbols": ["EUR", "USD"]}
LONGS = {"type": "array", "items": "long"}


@pytest.mark.parametrize(
    ("kind", "damaged", "good"),
    [
        ("long", b"\x8a" + b"\x80" * 9 + b"\x02", b"\x8a" + b"\x80" * 8 + b"\x00"),
        ("long", b"\xff" * 9 + b"\x7f", b"\xff" * 9 + b"\x01"),
        ("int", b"\x80" * 5 + b"\x10", b"\xff" * 4 + b"\x0f"),
        ("int", b"\x80" * 4 + b"\x10", b"\x80" * 4 + b"\x08"),
        (["null", "long"], b"\x01\x0a", b"\x02\x0a"),
        (CURRENCY, b"\x01", b"\x00"),
        ("string", b"\x01", b"\x02a"),
        ("boolean", b"\x02", b"\x01"),
        (LONGS, b"\x03\x06\x02\x02\x00", b"\x03\x04\x02\x02\x00"),
        (LONGS, b"\x02\x8a" + b"\x80" * 9 + b"\x02\x00", b"\x02\x0a\x02\x0a\x00"),
        ({"type": "map", "values": ["null", "long"]}, b"\x02\x02a\x01\x0a\x00",
         b"\x02\x02a\x02\x0a\x00"),
    ],
)  # fmt: skip
def test_bytes_that_are_no_avro_are_no_amount(kind: Any, damaged: bytes, good: bytes) -> None:
    schema = {"type": "record", "name": "E", "fields": [{"name": "a", "type": kind}]}
    parsed = _parsed(schema, damaged, good)
    assert [*parsed.faults] == [0]
    assert parsed.faults[0].reason is Reason.MALFORMED
    assert parsed.text(0) == f"0x{damaged.hex()}"


@pytest.mark.parametrize("kind", [DECIMAL, {"type": "fixed", "name": "F", "size": 0} | {
    "logicalType": "decimal"}])  # fmt: skip
def test_decimal_without_bytes_is_not_zero(kind: Any) -> None:
    schema = {"type": "record", "name": "E", "fields": [{"name": "amount_minor", "type": kind}]}
    parsed = _parsed(schema, b"\x00" if kind is DECIMAL else b"")
    assert parsed.faults[0].reason is Reason.BAD_AMOUNT


def test_deepest_schema_reaches_the_workers() -> None:
    kind: Any = "long"
    for _ in range(NESTING_MAX - 2):
        kind = {"type": "array", "items": kind}
    parser = AvroParser(_prepared(kind))
    again = cloudpickle.loads(cloudpickle.dumps(parser))
    assert again(pa.array([b"\0", b"\1"], pa.binary())).faults.keys() == {1}


_KINDS = st.recursive(
    st.sampled_from(["int", "long", "boolean", "bytes", "string", "float", "double", ["null"]]),
    lambda inner: st.one_of(
        inner.map(lambda kind: {"type": "array", "items": kind}),
        inner.map(lambda kind: {"type": "map", "values": kind}),
        inner.filter(lambda kind: not isinstance(kind, list)).map(lambda kind: ["null", kind]),
    ),
    max_leaves=4,
)


@settings(max_examples=200, deadline=None)
@given(_KINDS, st.data())
def test_output_of_fastavro_is_valid(kind: Any, data: st.DataObject) -> None:
    schema = {"type": "record", "name": "E", "fields": [{"name": "a", "type": kind}]}
    stream = io.BytesIO()
    written = {"a": data.draw(_values(kind))}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), written)
    assert _parsed(schema, stream.getvalue()).faults == {}


def _values(kind: Any) -> st.SearchStrategy[Any]:
    match kind:
        case ["null", *others]:
            return st.one_of(st.none(), *map(_values, others))
        case {"items": items}:
            return st.lists(_values(items), max_size=3)
        case {"values": values}:
            return st.dictionaries(st.text(max_size=3), _values(values), max_size=3)
    return {
        "int": st.integers(-(2**31), 2**31 - 1),
        "long": st.integers(-(2**63), 2**63 - 1),
        "boolean": st.booleans(),
        "bytes": st.binary(max_size=9),
        "string": st.text(max_size=9),
        "float": st.floats(width=32),
        "double": st.floats(),
    }[kind]

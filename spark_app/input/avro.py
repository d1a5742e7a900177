"""Avro values as events: bare Avro binary of one schema, or framed with the id of a schema.

A frame is that of Confluent's serializers: a zero byte, the id as four bytes (big endian), the Avro
binary. A record is read with the schema that wrote it, and its fields are taken by name: what is
not a field of an event is ignored, an alias is not followed, and nothing is converted. Money is a
whole number of minor units: int, long, or a decimal of scale 0.

The texts of faults are part of the batch's digest: they must not change.
"""

import hashlib
import io
import json
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType

from holdfast.sink.contract.states import QuarantineReason as Reason
from holdfast.spark_app.input.avro_bytes import End, SchemaUnusable, layout
from holdfast.spark_app.input.events import EVENT, Fault, Parsed
from holdfast.spark_app.input.lines import parse_time

FRAME: Final = struct.Struct(">bI")
"""Of a value with the id of its schema: a zero byte and the id."""

SCHEMA_BYTES_MAX: Final = 1 << 20

_INT64_MAX = 2**63 - 1
_SHOWN = 80

_WRONG: Final = {
    "amount_minor": (Reason.BAD_AMOUNT, "int, long, or decimal of scale 0"),
    "occurred_at": (Reason.BAD_TIME, "long of timestamp-millis or timestamp-micros, or string"),
    "currency": (Reason.WRONG_CURRENCY, "string"),
}
"""The reason and what is expected where a schema has another type; of other fields, a string."""

_UNREADABLE = (
    EOFError,
    IndexError,
    KeyError,
    MemoryError,
    OverflowError,
    RecursionError,
    StopIteration,
    TypeError,
    ValueError,
    struct.error,
)
"""What fastavro raises on bytes that are not of the schema."""

Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema that wrote records, prepared for reading them."""

    parsed: Any
    """For fastavro; without logical types, so that values arrive as they are encoded."""
    end: End
    """Where the bytes of a record end; raises where they are not of the schema."""
    fields: Mapping[str, Convert]
    """The fields of an event that records of it have."""
    faults: tuple[Fault, ...]
    """Of every record: a field of an event has a type that is not read."""
    fingerprint: str
    """SHA-256 of the schema, with its logical types."""


def prepare(text: str) -> Schema:
    """Return a schema from its JSON; raises SchemaUnusable."""
    try:
        described = json.loads(text)
        _require_no_marks(described)
        fastavro.parse_schema(described)
        plain = fastavro.parse_schema(_without_logical_types(described))
        if not isinstance(described, dict) or described.get("type") != "record":
            raise SchemaUnusable("its schema is not that of a record")
        end = layout(plain).end
        return _schema_of(described, plain, end)
    except UnknownType as error:
        raise SchemaUnusable(
            f"its schema refers to {str(error.name)[:_SHOWN]!r}, which is not in it"
        ) from error
    except (*_UNREADABLE, AttributeError, SchemaParseException) as error:
        raise SchemaUnusable("its schema is not an Avro schema") from error


def _schema_of(described: dict[str, Any], plain: Any, end: End) -> Schema:
    known = {field["name"]: field["type"] for field in described["fields"]}
    if len(known) < len(described["fields"]):
        raise SchemaUnusable("its schema has two fields of one name")
    fields: dict[str, Convert] = {}
    faults = []
    for name in EVENT.names:
        if name not in known:
            continue
        kind = _single(known[name])
        convert = _converter(name, kind)
        if convert is None:
            reason, expected = _WRONG.get(name, (Reason.BAD_TEXT, "string"))
            faults.append(
                Fault(reason, f"{name} is {_said(kind)} in its schema, expected {expected}")
            )
        else:
            fields[name] = convert
    canonical = json.dumps(described, sort_keys=True, separators=(",", ":"))
    fingerprint = hashlib.sha256(canonical.encode()).hexdigest()
    return Schema(plain, end, fields, tuple(faults), fingerprint)


@dataclass(frozen=True)
class AvroParser:
    """Reads a binary array of values: one event or fault for each."""

    schema: Schema | Callable[[int], Schema | Fault]
    """That of bare values; or returns the schema of an id, or why records of it are not read."""

    def __call__(self, values: pa.Array) -> Parsed:
        """Return the events; raises what `schema` raises."""
        columns: dict[str, list[Any]] = {name: [] for name in EVENT.names}
        faults: dict[int, Fault] = {}
        known: dict[int, Schema | Fault] = {}
        for position, value in enumerate(values.to_pylist()):
            fields, fault = self._one(value, known)
            for name, column in columns.items():
                column.append(fields.get(name))
            if fault is not None:
                faults[position] = fault
        events = pa.RecordBatch.from_pydict(columns, schema=EVENT)
        return Parsed(events, lambda at: self._text(values[at].as_py(), known), faults)

    def _one(
        self, value: bytes, known: dict[int, Schema | Fault]
    ) -> tuple[dict[str, Any], Fault | None]:
        found, body = self._schema(value, known)
        if isinstance(found, Fault):
            return {}, found
        record, fault = _decode(found, body)
        if fault is not None:
            return {}, fault
        fields: dict[str, Any] = {}
        fault = found.faults[0] if found.faults else None
        for name, convert in found.fields.items():
            item = convert(record.get(name))
            if isinstance(item, Fault):
                fault = fault or item
            else:
                fields[name] = item
        return fields, fault

    def _schema(
        self, value: bytes, known: dict[int, Schema | Fault]
    ) -> tuple[Schema | Fault, bytes]:
        if isinstance(self.schema, Schema):
            return self.schema, value
        if len(value) < FRAME.size or value[0] != 0:
            return _NOT_FRAMED, value
        number = FRAME.unpack_from(value)[1]
        if number not in known:
            known[number] = self.schema(number)
        return known[number], value[FRAME.size :]

    def _text(self, value: bytes, known: dict[int, Schema | Fault]) -> str:
        """Return a value as JSON, or in hexadecimal digits where it cannot be read."""
        found, body = self._schema(value, known)
        if isinstance(found, Schema):
            record, fault = _decode(found, body)
            if fault is None:
                with suppress(RecursionError):
                    return json.dumps(record, default=_shown)
        return f"0x{value.hex()}"


_NOT_FRAMED = Fault(
    Reason.MALFORMED, "not Avro with the id of a schema: expected a zero byte and four of the id"
)


def _decode(schema: Schema, body: bytes) -> tuple[dict[str, Any], Fault | None]:
    stream = io.BytesIO(body)
    try:
        record = fastavro.schemaless_reader(stream, schema.parsed, None)
    except UnicodeDecodeError:
        return {}, Fault(Reason.MALFORMED, "not of its Avro schema: a text is not UTF-8")
    except _UNREADABLE:
        return {}, Fault(Reason.MALFORMED, "not of its Avro schema")
    rest = len(body) - stream.tell()
    if rest:
        return {}, Fault(Reason.MALFORMED, f"not of its Avro schema: {rest} bytes are left over")
    try:
        schema.end(body, 0)
    except (IndexError, ValueError):
        return {}, Fault(Reason.MALFORMED, "not of its Avro schema")
    return dict(record), None  # type: ignore[arg-type] # the schema is that of a record


def _converter(name: str, kind: Any) -> Convert | None:
    """Return the function that takes a field's value; None for a type that is not read."""
    base = kind["type"] if isinstance(kind, dict) else kind
    logical = kind.get("logicalType") if isinstance(kind, dict) else None
    if name == "amount_minor":
        if base in ("int", "long") and logical is None:
            return _same
        if logical == "decimal" and base in ("bytes", "fixed") and kind.get("scale", 0) == 0:
            return _whole
        return None
    if name == "occurred_at":
        if base == "long" and isinstance(logical, str) and logical in _MICROS:
            return _since_1970(_MICROS[logical])
        return _time if base == "string" and logical is None else None
    if base == "enum" and name in ("type", "currency"):
        return _same
    return _same if base == "string" and logical in (None, "uuid") else None


_MICROS = {"timestamp-millis": 1000, "timestamp-micros": 1}


def _same(item: Any) -> Any:
    return item


def _whole(item: bytes | None) -> int | Fault | None:
    if item is None:
        return None
    if not item:
        return Fault(Reason.BAD_AMOUNT, "amount_minor is a decimal without bytes")
    amount = int.from_bytes(item, "big", signed=True)
    if not -_INT64_MAX - 1 <= amount <= _INT64_MAX:
        return Fault(Reason.AMOUNT_OUT_OF_RANGE, "amount_minor does not fit 64 bits")
    return amount


def _since_1970(micros: int) -> Convert:
    def convert(item: int | None) -> int | Fault | None:
        if item is None or abs(item * micros) <= _INT64_MAX:
            return None if item is None else item * micros
        return Fault(Reason.TIME_OUT_OF_RANGE, "occurred_at does not fit 64 bits")

    return convert


def _time(item: str | None) -> int | Fault | None:
    if item is None:
        return None
    found = parse_time(item)
    if found is None or abs(found) > _INT64_MAX:
        shown = item[:_SHOWN]
        return Fault(Reason.BAD_TIME, f"occurred_at is {shown!r}, expected RFC 3339 with a zone")
    return found


def _single(kind: Any) -> Any:
    """Return the type of a field without null; a union of several stays one."""
    if isinstance(kind, list):
        others = [each for each in kind if each != "null"]
        return others[0] if len(others) == 1 else kind
    # {"type": {"type": "long", ...}} is the inner type.
    while isinstance(kind, dict) and isinstance(kind.get("type"), dict):
        kind = kind["type"]
    return kind


def _said(kind: Any) -> str:
    match kind:
        case list():
            return "a union of several types"
        case {"logicalType": str(logical), "type": str(base)}:
            scale = f" of scale {kind.get('scale', 0)}" if logical == "decimal" else ""
            return f"{base} of {logical}{scale}"
        case {"type": str(base)}:
            return base
        case str():
            return kind
    return "of a complex type"


def _without_logical_types(described: Any) -> Any:
    if isinstance(described, list):
        return [_without_logical_types(each) for each in described]
    if isinstance(described, dict):
        return {
            name: value if name in ("default", "symbols") else _without_logical_types(value)
            for name, value in described.items()
            if name != "logicalType"
        }
    return described


def _require_no_marks(described: Any) -> None:
    """Refuse the keys by which fastavro knows a schema that it has parsed: it trusts them."""
    if isinstance(described, list):
        for each in described:
            _require_no_marks(each)
    elif isinstance(described, dict):
        for name, value in described.items():
            if name.startswith(("__fastavro", "__named_schemas")):
                raise SchemaUnusable("its schema has keys that fastavro keeps for itself")
            _require_no_marks(value)


def _shown(item: Any) -> Any:
    return item.hex() if isinstance(item, bytes) else str(item)

"""Kafka records as events: the value is the event, the key is checked where that is asked for.

Every record is an event or is refused, also one without a value: a producer that deletes by key
(a tombstone) has published something that the job cannot apply. The place of a refused record is
part of its text, and so of the batch's digest: it must not change.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.sink.contract.states import QuarantineReason as Reason
from holdfast.spark_app.input.events import EVENT, Fault, Parsed
from holdfast.spark_app.input.formats import KeyRule

COLUMNS = ("value", "key", "topic", "partition", "offset")
"""The columns of Kafka's source that `RecordParser` reads."""

_BLANK = b" \t\r\n"
_SHOWN = 80


@dataclass(frozen=True)
class RecordParser:
    """Reads batches with the columns `COLUMNS`."""

    values: Callable[[pa.Array], Parsed]
    """Reads values (binary, no nulls): one row of the result for each, or for each not blank."""
    key: KeyRule

    def __call__(self, records: pa.RecordBatch) -> Parsed:
        """Return the events of a batch, those of records without a value last."""
        full, empty, parsed = self._read(records)
        faults = dict(parsed.faults)
        if self.key is KeyRule.MERCHANT_ID:
            for position, fault in _wrong_keys(full["key"], parsed.events["merchant_id"]):
                faults.setdefault(position, fault)
        if not empty.num_rows:
            return Parsed(parsed.events, parsed.text, faults, _places(full))
        ordered = pa.concat_batches([full, empty])
        for position, value in enumerate(empty["value"], full.num_rows):
            faults[position] = _no_value(value)
        nothing = pa.RecordBatch.from_arrays(
            [pa.nulls(empty.num_rows, field.type) for field in EVENT], schema=EVENT
        )

        def text(position: int) -> str:
            if position < full.num_rows:
                return parsed.text(position)
            value: bytes | None = ordered["value"][position].as_py()
            return "null" if value is None else value.decode()

        events = pa.concat_batches([parsed.events, nothing])
        return Parsed(events, text, faults, _places(ordered))

    def _read(self, records: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch, Parsed]:
        """Return the records with a value, those without, and the first ones read."""
        has_value = records["value"].is_valid()
        full = records.filter(has_value) if records["value"].null_count else records
        parsed = self.values(full["value"])
        if parsed.events.num_rows < full.num_rows:
            has_value = pa.array([bool((v.as_py() or b"").strip(_BLANK)) for v in records["value"]])
            full = records.filter(has_value)
            parsed = self.values(full["value"])
        return full, records.filter(pc.invert(has_value)), parsed


def _no_value(value: pa.Scalar) -> Fault:
    said = "is empty" if value.is_valid else "is null (a tombstone)"
    return Fault(Reason.MALFORMED, f"the value of the record {said}")


def _wrong_keys(keys: pa.Array, merchants: pa.Array) -> list[tuple[int, Fault]]:
    same = pc.equal(keys, merchants.cast(pa.binary()))
    # Without a merchant id the row has a fault of its own.
    wrong = pc.and_(pc.invert(pc.fill_null(same, fill_value=False)), merchants.is_valid())
    return [
        (position, Fault(Reason.BAD_KEY, _key_text(keys[position], merchants[position].as_py())))
        for position in pc.indices_nonzero(wrong).to_pylist()
    ]


def _key_text(key: pa.Scalar, merchant: str) -> str:
    if not key.is_valid:
        found = "no key"
    else:
        found = f"the key {key.as_py().decode(errors='backslashreplace')[:_SHOWN]!r}"
    return f"the record has {found}, expected its merchant_id {merchant[:_SHOWN]!r}"


def _places(records: pa.RecordBatch) -> Callable[[int], str]:
    def place(position: int) -> str:
        topic, partition, offset = (
            records[name][position].as_py() for name in ("topic", "partition", "offset")
        )
        return f"{topic}, partition {partition}, offset {offset}"

    return place

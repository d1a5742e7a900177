"""Typed columns (Parquet) as events."""

import pyarrow as pa

from holdfast.sink.contract.states import QuarantineReason as Reason
from holdfast.sink.rows.evidence import row_text
from holdfast.spark_app.input.events import EVENT, Fault, Parsed


def parse_columns(batch: pa.RecordBatch) -> Parsed:
    """Return the columns of EVENT of a batch; text that is not UTF-8 becomes null and a fault."""
    faults: dict[int, Fault] = {}
    columns = []
    for field in EVENT:
        column = batch.column(field.name)
        if field.type == pa.string():
            column = _utf8(field.name, column, faults)
        columns.append(column)
    events = pa.RecordBatch.from_arrays(columns, schema=EVENT)

    def text(position: int) -> str:
        return row_text({name: batch.column(name)[position] for name in EVENT.names})

    return Parsed(events, text, faults)


def _utf8(name: str, column: pa.Array, faults: dict[int, Fault]) -> pa.Array:
    try:
        # Spark passes the bytes of the file unchecked.
        column.validate(full=True)
    except pa.ArrowInvalid:
        values: list[str | None] = []
        for position, raw in enumerate(column.cast(pa.binary()).to_pylist()):
            try:
                values.append(None if raw is None else raw.decode())
            except UnicodeDecodeError:
                values.append(None)
                shown = raw.decode(errors="backslashreplace")[:80]
                faults.setdefault(position, Fault(Reason.BAD_TEXT, f"{name} is not UTF-8: {shown}"))
        return pa.array(values, pa.string())
    return column

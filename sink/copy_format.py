"""Arrow tables as COPY reads and writes them."""

import io
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.csv

COPY_ROWS = 20_000

_WRITE = pa.csv.WriteOptions(include_header=False)


def csv(table: pa.Table) -> Iterator[memoryview]:
    """Return rows in pieces: a string is always quoted and a null never."""
    for first in range(0, table.num_rows, COPY_ROWS):
        sink = io.BytesIO()
        # In one chunk: PyArrow writes an empty one as NUL bytes.
        pa.csv.write_csv(table.slice(first, COPY_ROWS).combine_chunks(), sink, _WRITE)
        yield sink.getbuffer()


def read_csv(text: bytes, schema: pa.Schema) -> pa.Table:
    """Return what COPY wrote in the columns of `schema`."""
    if not text:
        return schema.empty_table()
    return pa.csv.read_csv(
        io.BytesIO(text),
        pa.csv.ReadOptions(column_names=schema.names),
        pa.csv.ParseOptions(newlines_in_values=True),
        pa.csv.ConvertOptions(
            column_types=schema,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )

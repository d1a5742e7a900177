"""Arrow tables as COPY reads and writes them."""

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

COPY_ROWS = 20_000

_TEXT = pa.large_string()

_Piece = TypeVar("_Piece")

_WRITE = pa.csv.WriteOptions(include_header=False)


def csv(table: pa.Table) -> Iterator[memoryview]:
    """Return rows in pieces: a string is always quoted and a null never."""
    for place, field in enumerate(table.schema):
        if has_zone(field.type):
            table = table.set_column(place, field.name, utc_texts(table.column(place)))
    for first in range(0, table.num_rows, COPY_ROWS):
        sink = io.BytesIO()
        # In one chunk: PyArrow writes an empty one as NUL bytes.
        pa.csv.write_csv(table.slice(first, COPY_ROWS).combine_chunks(), sink, _WRITE)
        yield sink.getbuffer()


def has_zone(type_: pa.DataType) -> bool:
    """Return whether values of this type are moments, and not times of some place."""
    return pa.types.is_timestamp(type_) and type_.tz is not None


def utc_texts(moments: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return moments as Postgres reads them in any session.

    PyArrow takes some thirty times as long for a text that names a zone.
    """
    texts = moments.cast(pa.timestamp(moments.type.unit)).cast(_TEXT)
    return pc.binary_join_element_wise(texts, pa.scalar("Z", _TEXT), pa.scalar("", _TEXT))


def ahead(pieces: Iterator[_Piece]) -> Iterator[_Piece]:
    """Return the pieces; the next one is made while the caller works on this one."""
    with ThreadPoolExecutor(1, "holdfast-ahead") as pool:
        coming = pool.submit(next, pieces, None)
        while (piece := coming.result()) is not None:
            coming = pool.submit(next, pieces, None)
            yield piece


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

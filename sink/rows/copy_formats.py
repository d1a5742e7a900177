"""Arrow columns for Postgres, as text or in the binary format of COPY."""

import io
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

COPY_ROWS = 20_000

_TEXT = pa.large_string()

_WRITE = pa.csv.WriteOptions(include_header=False)


def csv(table: pa.Table) -> Iterator[memoryview]:
    """Return rows in chunks of `COPY_ROWS`: a string is always quoted and a null never."""
    for place, field in enumerate(table.schema):
        if has_zone(field.type):
            table = table.set_column(place, field.name, utc_texts(table.column(place)))
    for first in range(0, table.num_rows, COPY_ROWS):
        sink = io.BytesIO()
        # In one chunk: PyArrow writes an empty chunk as NUL bytes.
        pa.csv.write_csv(table.slice(first, COPY_ROWS).combine_chunks(), sink, _WRITE)
        yield sink.getbuffer()


def has_zone(type_: pa.DataType) -> bool:
    """Return whether values of this type are instants, not local times."""
    return pa.types.is_timestamp(type_) and type_.tz is not None


def utc_texts(moments: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return instants as text that Postgres reads the same in any session.

    Appending `Z` is about thirty times faster than PyArrow's own text with a zone.
    """
    texts = moments.cast(pa.timestamp(moments.type.unit)).cast(_TEXT)
    return pc.binary_join_element_wise(texts, pa.scalar("Z", _TEXT), pa.scalar("", _TEXT))


def read_csv(text: bytes, schema: pa.Schema) -> pa.Table:
    """Return the output of COPY as a table with the columns of `schema`."""
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


def array_literal(column: pa.ChunkedArray) -> str:
    """Return `{"...",NULL,...}` for strings, integers and timestamps, in the column's order.

    One parameter of a statement then carries any number of rows.

    >>> array_literal(pa.chunked_array([["a", None, 'q"']]))
    '{"a",NULL,"q\\\\""}'
    """
    values = utc_texts(column) if has_zone(column.type) else column.cast(_TEXT)
    texts = values.combine_chunks()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        for character in ("\\", '"'):
            texts = pc.replace_substring(texts, character, f"\\{character}")
    quoted = pc.binary_join_element_wise(_scalar('"'), texts, _scalar('"'), _scalar(""))
    quoted = pc.fill_null(quoted, "NULL")
    offsets = pa.array([0, len(quoted)], pa.int64())
    joined = pc.binary_join(pa.LargeListArray.from_arrays(offsets, quoted), _scalar(","))
    return f"{{{joined[0].as_py()}}}"


def _scalar(text: str) -> pa.Scalar:
    return pa.scalar(text, _TEXT)


# Arrow and NumPy columns in COPY's binary format, by column: the server parses no text.
#
# A row is the number of its fields, then each field as its length and its bytes; all integers are
# big-endian (PostgreSQL documentation, "COPY", Binary Format). Between two fields of variable
# length all offsets are fixed, so each such run of fields is written as one structured array.

Fixed: TypeAlias = "np.ndarray[tuple[int], np.dtype[Any]]"

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"

_BYTES = pa.large_binary()
_NULL = -1
_LENGTH = np.dtype(">i4")
_EPOCH_2000_US = 946_684_800_000_000
_BYTE_OF_DIGITS = np.zeros(1 << 16, np.uint8)
_BYTE_OF_DIGITS[np.frombuffer(bytes(range(256)).hex().encode(), np.uint16)] = np.arange(256)
"""The byte for two hex digits, read as one uint16."""


Column: TypeAlias = "Fixed | pa.Array | list[pa.Array]"


def rows(columns: "Sequence[Column]") -> memoryview:
    """Return at least one row, from columns of equal length; the first one is a NumPy column.

    A NumPy column has big-endian values of one size, an Arrow one has texts, bytes or null. A list
    of Arrow columns is one column: each value is the concatenation of theirs.
    """
    parts: list[pa.Array | pa.Scalar] = []
    fixed: list[Fixed] = [np.full(len(columns[0]), len(columns), ">i2")]
    for column in columns:
        if isinstance(column, np.ndarray):
            fixed += [np.full(len(column), column.dtype.itemsize, _LENGTH), column]
            continue
        texts = [part.cast(_BYTES) for part in (column if isinstance(column, list) else [column])]
        lengths = reduce(pc.add, map(pc.binary_length, texts))
        fixed.append(np.asarray(pc.fill_null(lengths, _NULL)).astype(_LENGTH))
        parts += [_fixed_run(fixed), *(pc.fill_null(text, b"") for text in texts)]
        fixed = []
    if not parts:
        return memoryview(_packed(fixed).tobytes())
    if fixed:
        parts.append(_fixed_run(fixed))
    joined = pc.binary_join_element_wise(*parts, pa.scalar(b"", _BYTES))
    return memoryview(joined.buffers()[2])


def uuids(digits: pa.Array) -> Fixed:
    """Return texts of 32 hex digits as values of type uuid."""
    data = np.frombuffer(digits.cast(pa.large_string()).buffers()[2], np.uint16)
    offset = digits.offset * 16
    return _BYTE_OF_DIGITS[data[offset : offset + len(digits) * 16]].view("V16")


def moments(times: pa.Array) -> Fixed:
    """Return microseconds in UTC as values of type timestamptz."""
    return (np.asarray(times.cast(pa.int64())) - _EPOCH_2000_US).astype(">i8")


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; free when it already is one."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _packed(fixed: list[Fixed]) -> Fixed:
    """Return fixed fields concatenated by row."""
    packed = np.empty(len(fixed[0]), [(f"f{n}", each.dtype) for n, each in enumerate(fixed)])
    for n, each in enumerate(fixed):
        packed[f"f{n}"] = each
    return packed


def _fixed_run(fixed: list[Fixed]) -> pa.Array:
    """Return fixed fields concatenated by row, as bytes."""
    packed = _packed(fixed)
    size = packed.dtype.itemsize
    offsets = pa.py_buffer(np.arange(0, (len(packed) + 1) * size, size, dtype=np.int64))
    return pa.Array.from_buffers(_BYTES, len(packed), [None, offsets, pa.py_buffer(packed)])

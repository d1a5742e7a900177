"""Arrow and NumPy columns in COPY's binary format, by column: the server parses no text.

A row is the number of its fields, then each field as its length and its bytes; all integers are
big-endian (PostgreSQL documentation, "COPY", Binary Format). Between two fields of variable length
all offsets are fixed, so each such run of fields is written as one structured array.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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

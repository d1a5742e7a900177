"""The digest of a batch: equal for the same rows in any order, different for any other rows.

Every value is encoded as self-delimiting bytes: `N` for null, `<length>:<bytes>` for a scalar, `{`
and the fields for a struct, `[<count>:` and the elements for a list. A row is the bytes of its
columns in the order of their names, and is hashed with SHA-256. The sorted hashes of a table's rows
are hashed once more, and the result under a header that names the table, its columns, their types
and the number of rows. So the digest does not need all rows in one process.

A stored digest is compared for as long as a checkpoint may replay its batch, so a change of this
encoding needs a new `VERSION`; `tests/contract/vectors/digest.json` freezes it.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.sink.errors import SchemaMismatch

VERSION = b"holdfast-digest/2\n"

ROWS_AT_A_TIME = 50_000

_BYTES = pa.large_binary()
_HASH_BYTES = hashlib.sha256().digest_size


def digest(tables: Mapping[str, pa.Table]) -> bytes:
    """Return 32 bytes for the named tables of one batch; a table without rows counts as absent.

    Raises `SchemaMismatch` for a column type without one text form, such as a float.
    """
    return digest_of_parts(
        {
            name: (header(name, table.schema, table.num_rows), combined(row_hashes(table)))
            for name, table in tables.items()
            if table.num_rows
        }
    )


def digest_of_parts(parts: Mapping[str, tuple[bytes, bytes]]) -> bytes:
    """Return the digest of tables, each given by its `header` and `combined` hash."""
    total = hashlib.sha256(VERSION)
    for name in sorted(parts):
        for part in parts[name]:
            total.update(part)
    return total.digest()


def header(name: str, schema: pa.Schema, rows: int) -> bytes:
    """Return the header that is hashed before a table. Raises `SchemaMismatch`."""
    columns = [(column, kind(schema.field(column).type)) for column in sorted(schema.names)]
    return json.dumps([name, rows, columns], separators=(",", ":")).encode() + b"\n"


def row_hashes(table: pa.Table) -> list[bytes]:
    """Return the SHA-256 of each row, in the order of the table."""
    columns = table.select(sorted(table.column_names))
    empty, hashes = hashlib.sha256(), []
    for batch in columns.to_batches(max_chunksize=ROWS_AT_A_TIME):
        for row in _joined([part for each in batch.columns for part in _pieces(each)]).to_pylist():
            # Copying a hash object costs less than creating one.
            hashed = empty.copy()
            hashed.update(row)
            hashes.append(hashed.digest())
    return hashes


def combined(hashes: Sequence[bytes]) -> bytes:
    """Return the hash of row hashes, independent of their order."""
    digests = np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, _HASH_BYTES)
    # Sorts by the first 64 bits: a tie is a duplicate row, or next to impossible.
    first = digests.view(">u8")[:, 0].astype(np.uint64)
    order = np.argsort(first)
    if (np.diff(first[order]) == 0).any():
        return hashlib.sha256(b"".join(sorted(hashes))).digest()
    return hashlib.sha256(digests[order].data).digest()


def kind(type_: pa.DataType) -> str:
    """Return the name under which a type is hashed, independent of width and storage form.

    >>> kind(pa.struct([("b", pa.int16()), ("a", pa.list_(pa.large_string()))]))
    '{a:[string],b:int}'
    """
    types = pa.types
    if types.is_struct(type_):
        fields = sorted(f"{field.name}:{kind(field.type)}" for field in type_)
        return f"{{{','.join(fields)}}}"
    if _is_list(type_):
        return f"[{kind(type_.value_type)}]"
    for name, holds in (
        ("string", types.is_string(type_) or types.is_large_string(type_)),
        ("int", types.is_integer(type_)),
        ("bool", types.is_boolean(type_)),
        ("time", types.is_timestamp(type_) and type_.unit == "us"),
        ("date", types.is_date32(type_)),
        ("null", types.is_null(type_)),
    ):
        if holds:
            return name
    raise SchemaMismatch(
        f"a column of type {type_} cannot be part of a batch: its values have no one text form."
        " Nothing was written now. Cast it to an integer (minor units), a string, or a timestamp."
    )


def _texts(values: pa.Array) -> pa.Array:
    """Return each value as self-delimiting bytes."""
    return _joined(_pieces(values))


def _pieces(values: pa.Array) -> list[pa.Array | pa.Scalar]:
    """As `_texts`, in parts that `_joined` concatenates, so that each byte is copied once."""
    type_ = values.type
    if pa.types.is_null(type_):
        return [_fill(_scalar(b"N"), len(values))]
    if pa.types.is_struct(type_):
        pieces = _struct_pieces(values)
    elif _is_list(type_):
        pieces = _list_pieces(values)
    else:
        pieces = _scalar_pieces(values)
    if not values.null_count:
        return pieces
    return [pc.if_else(pc.is_null(values), _scalar(b"N"), _joined(pieces))]


def _scalar_pieces(values: pa.Array) -> list[pa.Array | pa.Scalar]:
    match kind(values.type):
        case "string":
            # As bytes: invalid UTF-8 is a fault of its row, not of the batch.
            text = values.cast(_BYTES)
        case "time":
            text = _decimal(values.cast(pa.int64()))
        case "date":
            text = _decimal(values.cast(pa.int32()))
        case _:
            text = _decimal(values)
    return [_decimal(pc.binary_length(text)), _scalar(b":"), text]


def _struct_pieces(values: pa.Array) -> list[pa.Array | pa.Scalar]:
    fields = dict(zip((field.name for field in values.type), values.flatten(), strict=True))
    inner = [part for name in sorted(fields) for part in _pieces(fields[name])]
    return [_scalar(b"{"), *inner] if inner else [_fill(_scalar(b"{"), len(values))]


def _list_pieces(values: pa.Array) -> list[pa.Array | pa.Scalar]:
    counts = pc.fill_null(pc.list_value_length(values), 0).cast(pa.int64())
    ends = pc.cumulative_sum(counts)
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    lists = pa.LargeListArray.from_arrays(offsets, _texts(values.flatten()))
    inner = pc.binary_join(lists, _scalar(b""))
    return [_scalar(b"["), _decimal(counts), _scalar(b":"), inner]


def _joined(pieces: list[pa.Array | pa.Scalar]) -> pa.Array:
    """Return the concatenation of parts, of which at least one is an array."""
    return pc.binary_join_element_wise(*pieces, _scalar(b""))


def _decimal(values: pa.Array) -> pa.Array:
    return values.cast(pa.large_string()).cast(_BYTES)


def _fill(value: pa.Scalar, count: int) -> pa.Array:
    return pa.repeat(value, count)


@cache  # made at the first call: PyArrow then imports pandas, which takes longer than all else here
def _scalar(value: bytes) -> pa.Scalar:
    return pa.scalar(value, _BYTES)


def _is_list(type_: pa.DataType) -> Any:
    return pa.types.is_list(type_) or pa.types.is_large_list(type_)

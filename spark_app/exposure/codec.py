"""One part of a key group's state as bytes: a frame around an Arrow IPC stream.

    frame   = "HFS1" + CRC-32 of the stream (4 bytes) + length of the stream (8 bytes) + stream
    stream  = Arrow IPC; its schema metadata names the part and the version of its columns

Arrow reads a stream that was cut between two messages as a shorter table, and a flipped bit as
another amount; the frame turns both into errors. Each part has its own frame, so that parts are
stored separately and only changed ones are rewritten.

Frames of windows and of absorbed ids have no window end: it is the key of the frame.
"""

import struct
import zlib
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from holdfast.spark_app.exposure.errors import StateError, StateTooNew
from holdfast.spark_app.exposure.schema import (
    BY_HAND_COLUMNS,
    STATE_ABSORBED,
    STATE_MERCHANTS,
    STATE_WINDOWS,
)

VERSION: Final = 3
"""Version of the columns. Raise it with every change of a schema in `PARTS` that this code does not
read as well, together with `shape.LAYOUT`: a checkpoint with another layout is refused before its
state is read."""

WITHOUT_HANDS: Final = 2
"""What a part is written as of which no merchant is decided by hand: the Holdfast before reads it.
"""

WINDOW_END: Final = "window_end"

_HAND: Final = BY_HAND_COLUMNS[0]

_MAGIC: Final = b"HFS1"
_HEADER: Final = struct.Struct("<4sIQ")
_PART: Final = b"holdfast.exposure.part"
_VERSION: Final = b"holdfast.exposure.version"

# The JVM pickles bytes for Python one by one, which costs far more than decompression.
# Random ids are hexadecimal digits: zstd halves them, lz4 does not.
_PLAIN: Final = pa.ipc.IpcWriteOptions()
_ONE_THREAD: Final = pa.ipc.IpcReadOptions(use_threads=False)
"""Frames are small and many: handing each to another thread takes longer than reading it."""
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1))
_WORTH_COMPRESSING: Final = 4096

_ADVICE: Final = (
    "Nothing was written. Restore the checkpoint from a copy, or start from a new one and adopt it."
)


def _without_end(schema: pa.Schema) -> pa.Schema:
    return schema.remove(schema.get_field_index(WINDOW_END))


PARTS: Final[Mapping[str, pa.Schema]] = {
    "windows": _without_end(STATE_WINDOWS),
    "merchants": STATE_MERCHANTS,
    "absorbed": _without_end(STATE_ABSORBED),
}
"""The columns of each part. Frames of windows and of ids belong to one window end, their key."""


def version_of(table: pa.Table) -> int:
    """Return the version as which a part of the state is written."""
    if _HAND not in table.column_names or table[_HAND].null_count == table.num_rows:
        return WITHOUT_HANDS
    return VERSION


def _schema(name: str, version: int) -> pa.Schema:
    """Return the columns of a part in a version."""
    if version == WITHOUT_HANDS and name == "merchants":
        kept = [field for field in PARTS[name] if field.name not in BY_HAND_COLUMNS]
        return pa.schema(kept)
    return PARTS[name]


def encode_part(name: str, table: pa.Table) -> bytes:
    """Return a part of the state (columns of `PARTS`) as one frame."""
    version = version_of(table)
    schema = _schema(name, version)
    table = table.select(schema.names)
    schema = schema.with_metadata({_PART: name, _VERSION: str(version)})
    options = _PLAIN if table.nbytes < _WORTH_COMPRESSING else _COMPRESSED
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        writer.write_table(table.combine_chunks())
    stream = sink.getvalue()
    return b"".join((_HEADER.pack(_MAGIC, zlib.crc32(stream), stream.size), stream))


def decode_part(name: str, frame: bytes) -> pa.Table:
    """Read the output of `encode_part` in this version; the table shares the memory of `frame`.

    Raises StateTooNew when a newer version wrote it, StateError when it is not one whole frame of
    this part.
    """
    data = memoryview(frame)
    if len(data) < _HEADER.size:
        raise StateError(f"The stored state ends before its part {name}. {_ADVICE}")
    magic, checksum, length = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise StateError(f"The stored bytes are not a part of a key group's state. {_ADVICE}")
    stream = data[_HEADER.size :]
    if len(stream) < length:
        raise StateError(
            f"Part {name} of the stored state is cut: {len(stream)} of {length} bytes. {_ADVICE}"
        )
    if len(stream) > length:
        raise StateError(
            f"Part {name} of the stored state is followed by {len(stream) - length} bytes of "
            f"something else. {_ADVICE}"
        )
    if zlib.crc32(stream) != checksum:
        raise StateError(f"Part {name} of the stored state is damaged (checksum). {_ADVICE}")
    try:
        return _table(name, pa.py_buffer(stream))
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        if isinstance(error, StateError):
            raise
        raise StateError(
            f"Part {name} of the stored state is unreadable: {error}. {_ADVICE}"
        ) from error


def _table(name: str, stream: pa.Buffer) -> pa.Table:
    with pa.ipc.open_stream(stream, options=_ONE_THREAD) as reader:
        metadata = reader.schema.metadata or {}
        table = reader.read_all().replace_schema_metadata(None)
    part, version = metadata.get(_PART, b"").decode(), int(metadata.get(_VERSION, b"0"))
    if version > VERSION:
        raise StateTooNew(
            f"The stored state has version {version} and this Holdfast reads up to "
            f"{VERSION}. Nothing was written; run the newer version again."
        )
    known = part == name and version in (WITHOUT_HANDS, VERSION)
    if not known or not table.schema.equals(_schema(name, version)):
        raise StateError(
            f"Expected part {name} of version {WITHOUT_HANDS} or {VERSION} of the state, found "
            f"part {part or '?'} of version {version}. {_ADVICE}"
        )
    for field in list(PARTS[name])[table.num_columns :]:
        table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return table

"""One part of a key group's state as bytes: a frame around an Arrow IPC stream.

    frame   = "HFS1" + CRC-32 of the stream (4 bytes) + length of the stream (8 bytes) + stream
    stream  = Arrow IPC; its schema metadata names the part and the version of its columns

Arrow reads a stream that was cut between two messages as a shorter table, and a flipped bit as
another amount; the frame turns both into errors. Parts are framed one by one, so that they may be
stored apart and only the changed ones be written again.
"""

import struct
import zlib
from typing import Final

import pyarrow as pa

from spark_app.exposure.errors import StateError, StateTooNew

VERSION: Final = 1
"""Of the columns. Raise it with every change of a `STATE_*` schema, and go on reading the old."""

_MAGIC: Final = b"HFS1"
_HEADER: Final = struct.Struct("<4sIQ")
_PART: Final = b"holdfast.exposure.part"
_VERSION: Final = b"holdfast.exposure.version"

_ADVICE: Final = (
    "Nothing was written. Restore the checkpoint from a copy, or start from a new one and adopt it."
)


def encode_part(name: str, table: pa.Table) -> bytes:
    """A part of the state as one frame; equal tables give equal bytes."""
    schema = table.schema.with_metadata({_PART: name, _VERSION: str(VERSION)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(table.combine_chunks())
    stream = sink.getvalue()
    return b"".join((_HEADER.pack(_MAGIC, zlib.crc32(stream), stream.size), stream))


def decode_part(name: str, schema: pa.Schema, data: memoryview) -> tuple[pa.Table, memoryview]:
    """Read one frame from the front of `data`; returns its table and what follows it.

    Raises StateTooNew when a newer version wrote it, StateError when it is not a whole frame of
    this part.
    """
    if len(data) < _HEADER.size:
        raise StateError(f"The stored state ends before its part {name}. {_ADVICE}")
    magic, checksum, length = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise StateError(f"The stored bytes are not a part of a key group's state. {_ADVICE}")
    stream, rest = data[_HEADER.size :][:length], data[_HEADER.size :][length:]
    if len(stream) < length:
        raise StateError(
            f"Part {name} of the stored state is cut: {len(stream)} of {length} bytes. {_ADVICE}"
        )
    if zlib.crc32(stream) != checksum:
        raise StateError(f"Part {name} of the stored state is damaged (checksum). {_ADVICE}")
    return _table(name, schema, pa.py_buffer(stream)), rest


def _table(name: str, schema: pa.Schema, stream: pa.Buffer) -> pa.Table:
    try:
        with pa.ipc.open_stream(stream) as reader:
            metadata = reader.schema.metadata or {}
            found, version = metadata.get(_PART, b"").decode(), int(metadata.get(_VERSION, b"0"))
            if version > VERSION:
                raise StateTooNew(
                    f"The stored state has version {version} and this Holdfast reads up to "
                    f"{VERSION}. Nothing was written; run the newer version again."
                )
            if found != name or version != VERSION or not reader.schema.equals(schema):
                raise StateError(
                    f"Expected part {name} of version {VERSION} of the state, found part "
                    f"{found or '?'} of version {version}. {_ADVICE}"
                )
            return reader.read_all().replace_schema_metadata(None)
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, StateError):
            raise
        raise StateError(
            f"Part {name} of the stored state is unreadable: {error}. {_ADVICE}"
        ) from error

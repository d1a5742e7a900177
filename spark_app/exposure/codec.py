"""One part of a key group's state as bytes: a frame around an Arrow IPC stream.

    frame   = "HFS1" + CRC-32 of the stream (4 bytes) + length of the stream (8 bytes) + stream
    stream  = Arrow IPC; its schema metadata names the part and the version of its columns

Arrow reads a stream that was cut between two messages as a shorter table, and a flipped bit as
another amount; the frame turns both into errors. Parts are framed one by one, so that they are
stored apart and only the changed ones are written again.

    version  absorbed                              windows
    1        merchant_id, window_end, event_id     with window_end
    2        merchant_id (dictionary), event_id    without: the window end is the key of the frame
"""

import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_app.exposure.errors import StateError, StateTooNew
from spark_app.exposure.schema import STATE_ABSORBED, STATE_MERCHANTS, STATE_WINDOWS

VERSION: Final = 2
"""Of the columns. Raise it with every change of a schema in `PARTS`, and add to `UPGRADES`."""

WINDOW_END: Final = "window_end"

_MAGIC: Final = b"HFS1"
_HEADER: Final = struct.Struct("<4sIQ")
_PART: Final = b"holdfast.exposure.part"
_VERSION: Final = b"holdfast.exposure.version"

# The JVM pickles bytes for Python one at a time, which costs many times what decompressing does.
# Random ids are hexadecimal digits: zstd halves them, lz4 does not.
_PLAIN: Final = pa.ipc.IpcWriteOptions()
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


def _of_one_end(table: pa.Table) -> pa.Table:
    ends = table[WINDOW_END]
    if len(ends) and pc.count_distinct(ends).as_py() > 1:
        raise StateError(
            "A part of the stored state holds several windows, and was stored as that of one. "
            f"{_ADVICE}"
        )
    return table.drop_columns(WINDOW_END)


def _with_dictionary(table: pa.Table) -> pa.Table:
    merchants = table["merchant_id"].dictionary_encode()
    return table.set_column(0, PARTS["absorbed"].field(0), merchants)


UPGRADES: Final[Mapping[tuple[str, int], Callable[[pa.Table], pa.Table]]] = {
    ("windows", 1): _of_one_end,
    ("absorbed", 1): lambda table: _with_dictionary(_of_one_end(table)),
}
"""By part and version: makes a table of the next version of it. A part that is not named did not
change with that version."""


def encode_part(name: str, table: pa.Table) -> bytes:
    """A part of the state (columns of `PARTS`) as one frame."""
    schema = PARTS[name].with_metadata({_PART: name, _VERSION: str(VERSION)})
    options = _PLAIN if table.nbytes < _WORTH_COMPRESSING else _COMPRESSED
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        writer.write_table(table.combine_chunks())
    stream = sink.getvalue()
    return b"".join((_HEADER.pack(_MAGIC, zlib.crc32(stream), stream.size), stream))


def decode_part(name: str, frame: bytes) -> pa.Table:
    """Read what `encode_part` wrote, now or in an older version; the table lies in `frame`.

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
    with pa.ipc.open_stream(stream) as reader:
        metadata = reader.schema.metadata or {}
        table = reader.read_all().replace_schema_metadata(None)
    found, version = metadata.get(_PART, b"").decode(), int(metadata.get(_VERSION, b"0"))
    if version > VERSION:
        raise StateTooNew(
            f"The stored state has version {version} and this Holdfast reads up to "
            f"{VERSION}. Nothing was written; run the newer version again."
        )
    if found == name:
        for older in range(version, VERSION):
            upgrade = UPGRADES.get((name, older))
            table = table if upgrade is None else upgrade(table)
    if found != name or version < 1 or not table.schema.equals(PARTS[name]):
        raise StateError(
            f"Expected part {name} of version 1 to {VERSION} of the state, found part "
            f"{found or '?'} of version {version}. {_ADVICE}"
        )
    return table

"""Spark's files in a checkpoint, read without Spark. Pure: bytes or text in, values out.

The formats are those of Spark 4.0 to 4.3 with state in RocksDB, changelog files and state format 2,
which the job fixes. What does not fit raises ValueError.
"""

import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

NOTHING = "-"
"""Spark's line for a source from which nothing was read yet."""

INITIAL_HEAD = "\0v1\n"
"""Before the JSON in the file in which Spark keeps where a topic began (`sources/I/0`)."""

_STATE_FILE = re.compile(r"([0-9]+)_([0-9a-f-]{36})\.(changelog|zip)", re.ASCII)
_MAGIC = b"LZ4Block"
_RAW, _LZ4 = 0x10, 0x20
_BLOCK_HEAD = len(_MAGIC) + 13

_PUT, _MERGE, _DELETE, _END = 0x01, 0x11, 0x10, 0x00


class Link(NamedTuple):
    """A version of a partition's state: batch N makes version N + 1, and each attempt an id."""

    version: int
    unique_id: str


@dataclass(frozen=True, slots=True)
class Plan:
    """`offsets/N`: what batch N reads, written before it runs."""

    watermark_ms: int
    """0 before the first one."""
    timestamp_ms: int
    conf: dict[str, str]
    sources: tuple[str, ...]
    """The end of each source, as JSON; `-` for none."""


@dataclass(frozen=True, slots=True)
class Committed:
    """`commits/N`: batch N is done."""

    next_watermark_ms: int
    state_ids: dict[int, tuple[str, ...]]
    """Of each stateful operator: the unique id of each partition."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a snapshot (`.zip`) refers to."""

    sst_files: tuple[str, ...]
    """Names in the folder `SSTs`, which snapshots share."""
    column_families: dict[int, str]


def plan(text: str) -> Plan:
    """Read `offsets/N`."""
    version, described, *sources = text.splitlines() or [""]
    found = _object(described) if version.startswith("v") and sources else None
    if found is None:
        raise ValueError("it is not a plan of a batch")
    try:
        return Plan(
            int(found["batchWatermarkMs"]),
            int(found.get("batchTimestampMs", 0)),
            dict(found.get("conf") or {}),
            tuple(sources),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"{error} is missing in it") from error


def committed(text: str) -> Committed:
    """Read `commits/N`."""
    version, _, described = text.partition("\n")
    if not version.startswith("v"):
        raise ValueError("it is not the commit of a batch")
    found = _object(described)
    try:
        ids = {
            int(operator): tuple(one for (one,) in partitions)
            for operator, partitions in (found.get("stateUniqueIds") or {}).items()
        }
        return Committed(int(found["nextBatchWatermarkMs"]), ids)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{error} in it is not as expected") from error


def log_offset(source: str) -> int | None:
    """Return the newest entry of a file source's log for a line of a plan; None for none.

    >>> log_offset('{"logOffset":3}'), log_offset("-")
    (3, None)
    """
    if source == NOTHING:
        return None
    try:
        offset = int(_object(source)["logOffset"])
    except (KeyError, TypeError) as error:
        raise ValueError("it is not the position of a file source") from error
    return offset if offset >= 0 else None


def operator(text: str) -> tuple[int, tuple[str, ...]]:
    """Read `state/OP/_metadata/v2/N`: the number of partitions, and the paths of the schemas."""
    version, _, described = text.partition("\n")
    if not version.startswith("v"):
        raise ValueError("it is not the metadata of an operator")
    try:
        [store] = _object(described)["stateStoreInfo"]
        return int(store["numPartitions"]), tuple(store["stateSchemaFilePaths"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"{error} is missing in it") from error


def state_file(name: str) -> tuple[Link, str] | None:
    """Return the version and the kind (`changelog` or `zip`) of a state file's name."""
    match = _STATE_FILE.fullmatch(name)
    return None if match is None else (Link(int(match[1]), match[2]), match[3])


def snapshot(content: bytes) -> Snapshot:
    """Read a snapshot (`.zip`), with the checksum of each of its members."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            damaged = archive.testzip()
            if damaged is not None:
                raise ValueError(f"the checksum of {damaged} in it does not match")
            found = _object(archive.read("metadata").decode().partition("\n")[2])
        families = {int(n): name for name, n in (found.get("columnFamilyMapping") or {}).items()}
        ssts = tuple(each["dfsSstFileName"] for each in found["sstFiles"])
    except (zipfile.BadZipFile, KeyError, TypeError, EOFError, RuntimeError) as error:
        raise ValueError(f"it is not a snapshot: {error}") from error
    return Snapshot(ssts, families)


class Changelog:
    """A changelog (`.changelog`): what one batch changed, and the versions before it."""

    def __init__(self, content: bytes) -> None:
        self._content = _decompressed(content)
        version, at = _text(self._content, 0)
        if version != "v4":
            raise ValueError(f"its format is {version!r}, expected v4")
        lineage, self._at = _text(self._content, at)
        try:
            self.before = tuple(
                Link(int(each["version"]), str(each["checkpointUniqueId"]))
                for each in json.loads(lineage)
            )
            """The versions before this one, the oldest first, back to a snapshot."""
        except (KeyError, TypeError) as error:
            raise ValueError("its list of earlier versions is not as expected") from error

    def sizes(self) -> Counter[int]:
        """Return the bytes of keys and values, uncompressed, by column family."""
        found: Counter[int] = Counter()
        for key, value in self._records():
            found[int.from_bytes(key[:2], "little")] += len(key) + len(value)
        return found

    def _records(self) -> Iterator[tuple[bytes, bytes]]:
        content, at = self._content, self._at
        while True:
            kind = content[at : at + 1]
            if kind == bytes([_END]):
                return
            if kind not in (bytes([_PUT]), bytes([_MERGE]), bytes([_DELETE])):
                raise ValueError("it ends in the middle, or has a record of an unknown kind")
            key, at = _sized(content, at + 1)
            value, at = _sized(content, at)
            yield key, value


def _sized(content: bytes, at: int) -> tuple[bytes, int]:
    size = int.from_bytes(content[at : at + 4], "big", signed=True)
    start = at + 4
    end = start + max(size, 0)
    if end > len(content):
        raise ValueError("it ends in the middle of a record")
    return content[start:end], end


def _text(content: bytes, at: int) -> tuple[str, int]:
    end = at + 2 + int.from_bytes(content[at : at + 2], "big")
    if len(content) < end:
        raise ValueError("it ends in its head")
    return content[at + 2 : end].decode(), end


def _decompressed(content: bytes) -> bytes:
    """Decompress the block format of lz4-java, which ends with an empty block."""
    codec, at = pa.Codec("lz4_raw"), 0
    parts: list[bytes] = []
    while True:
        head = content[at : at + _BLOCK_HEAD]
        if len(head) < _BLOCK_HEAD or not head.startswith(_MAGIC):
            raise ValueError("it ends in the middle, or is not a changelog")
        method = head[8] & 0xF0
        size, original = (int.from_bytes(head[i : i + 4], "little") for i in (9, 13))
        at += _BLOCK_HEAD
        if not original:
            return b"".join(parts)
        block = content[at : at + size]
        at += size
        if len(block) < size or method not in (_RAW, _LZ4):
            raise ValueError("it ends in the middle of a block")
        try:
            parts.append(
                block if method == _RAW else codec.decompress(block, original, asbytes=True)
            )
        except (pa.ArrowException, OSError) as error:
            raise ValueError("a block of it cannot be decompressed") from error


def _object(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - the content of a file, not an argument
    return found

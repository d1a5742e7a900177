"""Spark's files in a checkpoint, read without Spark. Pure: bytes or text in, values out.

The formats are those of Spark 4.0 to 4.3 with state in RocksDB, changelog files and state format 2,
which the job fixes. What does not fit raises ValueError.
"""

import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
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
    described_plan = _object(described) if version.startswith("v") and sources else None
    if described_plan is None:
        raise ValueError("it is not a plan of a batch")
    try:
        return Plan(
            int(described_plan["batchWatermarkMs"]),
            int(described_plan.get("batchTimestampMs", 0)),
            dict(described_plan.get("conf") or {}),
            tuple(sources),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"{error} is missing in it") from error


def committed(text: str) -> Committed:
    """Read `commits/N`."""
    version, _, described = text.partition("\n")
    if not version.startswith("v"):
        raise ValueError("it is not the commit of a batch")
    commit = _object(described)
    try:
        ids = {
            int(operator): tuple(one for (one,) in partitions)
            for operator, partitions in (commit.get("stateUniqueIds") or {}).items()
        }
        return Committed(int(commit["nextBatchWatermarkMs"]), ids)
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
            metadata = _object(archive.read("metadata").decode().partition("\n")[2])
        families = {int(n): name for name, n in (metadata.get("columnFamilyMapping") or {}).items()}
        ssts = tuple(each["dfsSstFileName"] for each in metadata["sstFiles"])
    except (zipfile.BadZipFile, KeyError, TypeError, EOFError, RuntimeError) as error:
        raise ValueError(f"it is not a snapshot: {error}") from error
    return Snapshot(ssts, families)


class Changelog:
    """A changelog (`.changelog`): what one batch changed, and the versions before it."""

    def __init__(self, content: bytes) -> None:
        content = _decompressed(content)
        version, at = _text(content, 0)
        if version != "v4":
            raise ValueError(f"its format is {version!r}, expected v4")
        lineage, at = _text(content, at)
        try:
            self.before = tuple(
                Link(int(each["version"]), str(each["checkpointUniqueId"]))
                for each in json.loads(lineage)
            )
            """The versions before this one, the oldest first, back to a snapshot."""
        except (KeyError, TypeError) as error:
            raise ValueError("its list of earlier versions is not as expected") from error
        self.sizes: Counter[int] = Counter()
        """The bytes of keys and values, uncompressed, by column family."""
        for key, value in _records(content, at):
            self.sizes[int.from_bytes(key[:2], "little")] += len(key) + len(value)


def _records(content: bytes, at: int) -> Iterator[tuple[bytes, bytes]]:
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
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - the content of a file, not an argument
    return value


# The log in which Spark's file source keeps which files it has read (`sources/I/N`). Pure.
#
# Every tenth entry is a compact one (`9.compact`): it repeats all entries before it, and Spark
# removes those that no kept batch needs. An entry that is damaged is made again from a later one.

_NAME = re.compile(r"([0-9]+)(\.compact)?", re.ASCII)


class Entry(NamedTuple):
    """One file that was read."""

    number: int
    """The entry of the log that first had it."""
    line: str


class Name(NamedTuple):
    """The name of an entry's file."""

    number: int
    compact: bool

    @property
    def text(self) -> str:
        return f"{self.number}.compact" if self.compact else str(self.number)


def name(text: str) -> Name | None:
    """Read the name of a file of the log; None for another file."""
    match = _NAME.fullmatch(text)
    return None if match is None else Name(int(match[1]), bool(match[2]))


def entries(text: str) -> list[Entry]:
    """Read an entry; raises ValueError."""
    version, *lines = text.splitlines() or [""]
    if not version.startswith("v"):
        raise ValueError("it is not an entry of a source's log")
    try:
        return [Entry(int(json.loads(line)["batchId"]), line) for line in lines if line]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{error} is missing in it") from error


def read_for(position: int, names: Iterable[Name]) -> list[Name]:
    """Return the files that Spark reads to know the log up to an entry, whether they exist or not.

    >>> [one.text for one in read_for(11, [Name(9, True), Name(19, True)])]
    ['9.compact', '10', '11']
    """
    start = max((n.number for n in names if n.compact and n.number <= position), default=-1)
    compact = [] if start < 0 else [Name(start, compact=True)]
    return compact + [Name(number, compact=False) for number in range(start + 1, position + 1)]


def rebuilt(
    position: int, names: Iterable[Name], log: Mapping[Name, str]
) -> dict[Name, str] | None:
    """Return the files to write so that the log ends at an entry; none where all are there.

    `names` are those of all files, and `log` has the text of each readable one. None where the log
    cannot be made.
    """
    readers = read_for(position, names)
    if all(one in log for one in readers):
        return {}
    later = [one for one in log if one.compact and one.number > position]
    if not later:
        return None
    version = log[min(later)].partition("\n")[0]
    known = entries(log[min(later)])
    return {
        one: "\n".join(
            [
                version,
                *(
                    each.line
                    for each in known
                    if (each.number <= one.number if one.compact else each.number == one.number)
                ),
            ]
        )
        for one in readers
        if one not in log
    }


COMPACT_INTERVAL = 10
"""Spark's own default."""


class Log:
    """A log that is continued, with the entries as Spark expects them."""

    def __init__(self, position: int, names: Iterable[Name], texts: Mapping[Name, str]) -> None:
        """`names` are those of all files, up to and after the position, `texts` of readable ones.

        Later texts win where two have the same entry.
        """
        self.known: dict[int, list[str]] = {}
        """The rows of each entry."""
        self._version = next((text.partition("\n")[0] for text in texts.values()), "v1")
        for name in sorted(texts):
            own: dict[int, dict[str, None]] = {}
            for each in entries(texts[name]):
                own.setdefault(each.number, {})[each.line] = None
            self.known |= {number: list(lines) for number, lines in own.items()}
        compact = sorted(name.number for name in names if name.compact)
        self._default = min([COMPACT_INTERVAL, *(number + 1 for number in compact)])
        self._compact = [number for number in compact if number <= position]

    def add(self, number: int, lines: list[str]) -> tuple[Name, str] | None:
        """Add the next entry; return the name and text of its file.

        None where it is a compact one, and an earlier entry is not known.
        """
        self.known[number] = lines
        name = Name(number, compact=not (number + 1) % self._interval())
        if name.compact:
            if any(earlier not in self.known for earlier in range(number)):
                return None
            lines = [line for earlier in range(number + 1) for line in self.known[earlier]]
            self._compact.append(number)
        return name, "\n".join([self._version, *lines])

    def _interval(self) -> int:
        """Return how many entries a compact one ends, as Spark derives it from those there are."""
        match self._compact[-2:]:
            case []:
                return self._default
            case [one]:
                count = one + 1
                if self._default < count / 2:
                    divisors = range(self._default, count // 2 + 1)
                    return next((n for n in divisors if not count % n), count)
                return count
            case [before, last]:
                return last - before
        raise AssertionError("unreachable")

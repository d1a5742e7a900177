"""The source offsets of a batch, as Spark records them before it runs the batch. Pure.

Spark's file (`offsets/N`) has a line with its version, one of metadata, and one for each source:
JSON that says how far the source is read after the batch, or `-` for a source that had no data yet.
What a batch read is the difference between its offsets and those of the batch before it.

The text is from another program and may be anything: what is not understood is returned unread.

The ledger keeps it with the files that the batch read from each file source, at the end of the line
of metadata (`with_files`): Spark has their names only in a log of the checkpoint.
"""

import json
import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NoReturn

from holdfast.sink.contract.compatibility import UTC
from holdfast.sink.contract.numbers import is_whole

NOTHING = "-"
"""Spark's line for a source that had no data yet."""

DEPTH_MAX = 20
"""Deeper JSON is not Spark's, and whoever writes it again might fail on it."""

OFFSET_MAX = 2**63 - 1

FIRST_READ = "its start is in the checkpoint alone"
NEW_PARTITION = "a partition that is new to the query: read from its first record"
_OTHER_BEFORE = "the batch before it had a source of another kind in this place"

Document = dict[str, Any]
Files = Mapping[int, list[Document]]
"""The rows of the log of each file source (`path`, `timestamp` and `batchId`, the log's entry)."""

_FILES = ',"files":{'
"""In text that another program has written, this stands in no string: quotes in one are escaped."""

_Position = Mapping[tuple[str, int], int]


def readable_offsets(text: str | None) -> Document | None:
    """Return `batch_time` and `watermark` (aware datetimes or None) and `sources`, one each.

    A source is the JSON value of its line, None if it had no data yet. Text in another format is
    returned as `{"text": ...}`; None for None.

    >>> readable_offsets('v1\\n{"batchWatermarkMs":0,"batchTimestampMs":1000}\\n{"logOffset":3}')
    ... # doctest: +NORMALIZE_WHITESPACE
    {'batch_time': datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.timezone.utc),
     'watermark': None, 'sources': [{'logOffset': 3}]}
    """
    if text is None:
        return None
    version, *lines = text.splitlines() or [""]
    try:
        return _read(lines) if version.startswith("v") else {"text": text}
    except (ValueError, AttributeError, TypeError, OverflowError, IndexError, RecursionError):
        return {"text": text}


def ranges(before: str | None, after: str | None, batch_id: int) -> list[Document]:
    """Return what a batch read from each source: from its offsets and those of batch_id - 1.

    `before` is None where they are not known; batch 0 needs none before it. Each source has
    `source` (its line, from 0), `kind` and `note` (None, or why something is not known), and:

    - `kafka`: `partitions`, those that were read or have a note: `topic`, `partition`, `from`
      (inclusive), `until` (exclusive), `count` (until - from; records are fewer in a compacted
      topic or one with transactions), `note`; `count` over all, None if one is not known; `unread`
      is the number of the other partitions.
    - `log`, a file source, also the ticks: `first_entry` and `last_entry` of its log, inclusive;
      None where nothing was read, or the first one is not known.
    - `nothing`: it had no data yet.
    - `other`: a source of another kind; `offset` is its line.

    The list is empty where the offsets of the batch are not known.

    >>> [source] = ranges('v1\\n{}\\n{"t":{"0":5}}', 'v1\\n{}\\n{"t":{"0":7}}', 9)
    >>> source["count"], source["partitions"][0]["from"], source["partitions"][0]["until"]
    (2, 5, 7)
    """
    now = _sources(after)
    if now is None:
        return []
    then: list[Any] | None = [] if before is None and batch_id == 0 else _sources(before)
    unknown = (
        f"the offsets of batch {batch_id - 1} are not in the ledger: {FIRST_READ}"
        if then is None
        else None
    )
    return [
        {
            "source": number,
            **_source(then[number] if then and number < len(then) else None, line, unknown),
        }
        for number, line in enumerate(now)
    ]


def with_files(text: str, files: Files) -> str:
    """Return the offsets of a batch with the files that it read.

    >>> text = with_files('v1\\n{"a":1}\\n{"logOffset":3}', {0: [{"path": "f", "batchId": 3}]})
    >>> without_files(text)
    ('v1\\n{"a":1}\\n{"logOffset":3}', {0: [{'path': 'f', 'batchId': 3}]})
    """
    version, _, rest = text.partition("\n")
    metadata, line_end, sources = rest.partition("\n")
    if not files or not metadata.endswith("}") or _FILES in metadata:
        return text
    added = json.dumps(files, separators=(",", ":"))
    return f"{version}\n{metadata[:-1]}{_FILES}{added[1:]}}}{line_end}{sources}"


def without_files(text: str) -> tuple[str, dict[int, list[Document]]]:
    """Return the offsets as Spark has written them, and the files that `with_files` has added."""
    version, _, rest = text.partition("\n")
    metadata, line_end, sources = rest.partition("\n")
    before, separator, added = metadata.partition(_FILES)
    if not separator:
        return text, {}
    try:
        files = {int(source): list(rows) for source, rows in json.loads(f"{{{added[:-1]}").items()}
    except (ValueError, TypeError):
        return text, {}
    return f"{version}\n{before}}}{line_end}{sources}", files


def range_lines(source: Document, log: str | None = None) -> Iterator[str]:
    """Yield a source of `ranges` as text; a partition is a line of its own, indented.

    `log` says what the entries of a log are.
    """
    lines = [f"source {source['source']}: {_summary(source, log or 'files or ticks')}"]
    if source["note"] is not None:
        lines.append(source["note"])
    yield "; ".join(lines)
    for each in source.get("partitions", ()):
        yield f"  {_partition_line(each)}"


def _summary(source: Document, log: str) -> str:
    match source["kind"]:
        case "kafka":
            count = source["count"]
            summary = "an unknown number of offsets" if count is None else _offsets(count)
            unread = source["unread"]
            partitions = "1 partition" if unread == 1 else f"{unread} partitions"
            rest = f", {partitions} with nothing new" if unread else ""
            return f"Kafka, {summary}{rest}"
        case "log":
            first, last = source["first_entry"], source["last_entry"]
            if last is None:
                return f"{log}, nothing new"
            if first is None:
                return f"{log}, log entries up to {last}"
            entries = f"entry {last}" if first == last else f"entries {first} to {last}"
            return f"{log}, log {entries}"
        case "nothing":
            return "no data yet"
        case _:
            return f"up to {json.dumps(source['offset'])}"


def _offsets(count: int) -> str:
    return "1 offset" if count == 1 else f"{count:,} offsets"


def _partition_line(each: Document) -> str:
    start, end = ("?" if each[name] is None else each[name] for name in ("from", "until"))
    count = "" if each["count"] is None else f", {_offsets(each['count'])}"
    note = "" if each["note"] is None else f" ({each['note']})"
    return f"{each['topic']} partition {each['partition']}: from {start} until {end}{count}{note}"


def _sources(text: str | None) -> list[Any] | None:
    offsets = readable_offsets(text) or {}
    sources: list[Any] | None = offsets.get("sources")
    return sources


def _source(then: Any, now: Any, unknown: str | None) -> Document:
    entry, position = _entry(now), _position(now)
    if now is None:
        lost = None if then is None else "the batch before it had read from it"
        return {"kind": "nothing", "note": lost}
    if entry is not None:
        return _log(then, entry, unknown)
    if position:
        return _kafka(then, position, unknown)
    if now == {} and _position(then):
        return _kafka(then, {}, unknown)
    return {"kind": "other", "offset": now, "note": None}


def _log(then: Any, entry: int, unknown: str | None) -> Document:
    # Spark begins a log with entry 0, and -1 means that there is none yet.
    start = -1 if then is None else _entry(then)
    first, last, note = None, None if entry < 0 else entry, None
    if start is None:
        note = _OTHER_BEFORE
    elif entry < start:
        last, note = None, f"the log went back from entry {start} to {entry}: it was changed"
    elif entry == start:
        last = None
    elif unknown is not None:
        note = unknown
    else:
        first = start + 1
    return {"kind": "log", "first_entry": first, "last_entry": last, "note": note}


def _kafka(then: Any, now: _Position, unknown: str | None) -> Document:
    start = _position(then)
    note = unknown
    if then is None and note is None:
        note = f"the first batch that read from it: {FIRST_READ}"
    elif then is not None and start is None:
        note = _OTHER_BEFORE
    known = {} if start is None else start
    partitions = [
        _partition(key, known.get(key), now.get(key), whole=note is None)
        for key in sorted(now.keys() | known.keys())
    ]
    listed = [each for each in partitions if each["count"] != 0 or each["note"] is not None]
    counts = [each["count"] for each in listed]
    return {
        "kind": "kafka",
        "partitions": listed,
        "count": None if None in counts else sum(counts),
        "unread": len(partitions) - len(listed),
        "note": note,
    }


def _partition(
    key: tuple[str, int], start: int | None, end: int | None, *, whole: bool
) -> Document:
    note = None
    if end is None:
        note = "it is not in the offsets any more: the topic was deleted, or made again"
    elif start is None:
        note = NEW_PARTITION if whole else None
    elif end < start:
        note = "it ends before it begins: the topic was made again, or records were removed"
    counts = start is not None and end is not None and end >= start
    return {
        "topic": key[0],
        "partition": key[1],
        "from": start,
        "until": end,
        "count": end - start if counts and start is not None and end is not None else None,
        "note": note,
    }


def _entry(source: Any) -> int | None:
    """Return the position of a file source; None for another kind."""
    if not isinstance(source, dict) or source.keys() != {"logOffset"}:
        return None
    entry = source["logOffset"]
    return entry if type(entry) is int and -1 <= entry <= OFFSET_MAX else None


def _position(source: Any) -> dict[tuple[str, int], int] | None:
    """Return the offset of each topic and partition of Kafka; None for another kind."""
    if not isinstance(source, dict) or not source:
        return None
    position = {}
    for topic, partitions in source.items():
        if not topic or not isinstance(partitions, dict):
            return None
        for name, offset in partitions.items():
            number = int(name) if is_whole(name) else -1
            if str(number) != name or type(offset) is not int or not 0 <= offset <= OFFSET_MAX:
                return None
            position[topic, number] = offset
    return position


def _read(lines: list[str]) -> Document:
    metadata = _value(lines[0])
    return {
        "batch_time": _moment(metadata.get("batchTimestampMs")),
        "watermark": _moment(metadata.get("batchWatermarkMs")),
        "sources": [None if line == NOTHING else _value(line) for line in lines[1:]],
    }


def _value(line: str) -> Any:
    """Parse JSON that can be written again, in UTF-8 and by any writer; raises ValueError."""
    value = json.loads(line, parse_constant=_refuse, parse_float=_finite)
    waiting = [(value, 0)]
    while waiting:
        each, depth = waiting.pop()
        if depth > DEPTH_MAX:
            raise ValueError("it is nested too deep")
        if isinstance(each, dict):
            waiting += [(part, depth + 1) for pair in each.items() for part in pair]
        elif isinstance(each, list):
            waiting += [(part, depth + 1) for part in each]
        elif isinstance(each, str):
            each.encode()
    return value


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number of JSON")


def _moment(milliseconds: int | None) -> datetime | None:
    # Spark writes 0 for "none yet".
    if not milliseconds:
        return None
    seconds, rest = divmod(milliseconds, 1000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest * 1000)

"""The source offsets of a batch, as Spark records them before it runs the batch. Pure.

Spark's file has a line with its version, one of metadata, and one for each source: JSON, or `-`
for a source from which the batch reads nothing.
"""

import json
from datetime import UTC, datetime
from typing import Any

_NOTHING = "-"


def readable_offsets(text: str | None) -> dict[str, Any] | None:
    """Return `batch_time` and `watermark` (aware datetimes or None) and `sources`, one each.

    A source is the JSON value of its line, None if the batch reads nothing from it. Text in another
    format is returned as `{"text": ...}`; None for None.

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
    except (ValueError, AttributeError, TypeError, OverflowError, IndexError):
        return {"text": text}


def _read(lines: list[str]) -> dict[str, Any]:
    metadata = json.loads(lines[0])
    return {
        "batch_time": _moment(metadata.get("batchTimestampMs")),
        "watermark": _moment(metadata.get("batchWatermarkMs")),
        "sources": [None if line == _NOTHING else json.loads(line) for line in lines[1:]],
    }


def _moment(milliseconds: int | None) -> datetime | None:
    # Spark writes 0 for "none yet".
    if not milliseconds:
        return None
    seconds, rest = divmod(milliseconds, 1000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest * 1000)

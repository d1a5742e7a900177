"""The files that a batch reads, kept in the ledger with its source offsets.

Spark's plan of a batch (`offsets/N`) has the number of an entry in the log of a file source, and
the log (`sources/I/K`) has the names. Without that entry nobody knows what the batch has read, and
it cannot be repeated. Every tenth entry is a compact one, which repeats all before it.
"""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.sink.contract.source_offsets import readable_offsets, with_files

_log = logging.getLogger(__name__)

BYTES_MAX = 1 << 20
"""Of the rows of one batch. A batch of more files (some thousands) is kept without them."""

_BLOCK = 1 << 16


def with_read_files(folder: Path, batch_id: int, text: str) -> str:
    """Return the offsets of a batch with its files; without them where they cannot be read."""
    try:
        return with_files(text, dict(_read(folder, batch_id, text)))
    except FileNotFoundError:
        return text  # another kind of source numbers its positions in the same way
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.warning("the names of the files of batch %d are not stored: %s", batch_id, error)
        return text


def _read(folder: Path, batch_id: int, text: str) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    now = _entries(text)
    if not any(entry >= 0 for entry in now) or (batch_id and not _plan(folder, batch_id).exists()):
        return
    before = _entries(_plan(folder, batch_id).read_text("utf-8")) if batch_id else []
    size = 0
    for source, entry in enumerate(now):
        if entry <= (before[source] if source < len(before) else -1):
            continue
        lines = _lines(folder / "sources" / str(source), entry)
        size += sum(map(len, lines))
        if size > BYTES_MAX:
            raise ValueError(f"they are more than {BYTES_MAX:,} bytes")
        yield source, [json.loads(line) for line in lines]


def _plan(folder: Path, batch_id: int) -> Path:
    """Return the place of the plan before that of a batch."""
    return folder / "offsets" / str(batch_id - 1)


def _entries(text: str) -> list[int]:
    """Return the newest log entry of each source, -1 where it is not a file source or has none."""
    sources = (readable_offsets(text) or {}).get("sources") or []
    return [
        source["logOffset"] if isinstance(source, dict) and source.keys() == {"logOffset"} else -1
        for source in sources
    ]


def _lines(log: Path, entry: int) -> list[bytes]:
    """Return the rows of an entry as Spark wrote them; raises OSError where it is not there."""
    plain = log / str(entry)
    if plain.exists():
        return plain.read_bytes().splitlines()[1:]
    # Those of this entry are the last ones, and the others may be millions.
    with (log / f"{entry}.compact").open("rb") as opened:
        end = opened.seek(0, 2)
        size = _BLOCK
        while True:
            start = max(end - size, 0)
            opened.seek(start)
            # The first line may be cut, or be that of the version.
            lines = opened.read(end - start).splitlines()[1:]
            own = [line for line in lines if json.loads(line)["batchId"] == entry]
            if not start or len(own) < len(lines):
                return own
            size *= 4

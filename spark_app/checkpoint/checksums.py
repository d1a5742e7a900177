"""The two checksums beside a file of a checkpoint. Pure.

.NAME.crc   Hadoop's, on file systems without checksums of their own, as a local disk: CRC-32 of
            each 512 bytes
NAME.crc    Spark's, of a state file: CRC-32C of the whole file, as JSON (from Spark 4.1)
"""

import json
import zlib
from itertools import pairwise
from typing import Final

from google_crc32c import value as crc32c

BYTES_PER_SUM: Final = 512
"""Of Hadoop's checksums, unless it is configured."""

DAMAGED: Final = "its checksum file is damaged"

_HADOOP = b"crc\0"
_ALL_ONES = 0xFFFFFFFF


def hadoop_sums(content: bytes, size: int = BYTES_PER_SUM) -> bytes:
    """Return Hadoop's checksum file of a file, with a sum of every `size` bytes."""
    blocks = range(0, len(content), size)
    sums = (zlib.crc32(content[at : at + size]).to_bytes(4, "big") for at in blocks)
    return _HADOOP + size.to_bytes(4, "big") + b"".join(sums)


def hadoop_problem(content: bytes, sums: bytes) -> str | None:
    """Compare a file with Hadoop's checksum file; None where they match."""
    size = _size(sums)
    if size is None or len(sums) % 4:
        return DAMAGED
    expected = [sums[at : at + 4] for at in range(8, len(sums), 4)]
    if len(expected) != -(-len(content) // size):
        return f"it has {len(content)} bytes, which is not the length of its checksum file"
    starts = range(0, len(content) + size, size)
    for number, (start, end) in enumerate(pairwise(starts)):
        if number < len(expected) and (
            zlib.crc32(content[start:end]).to_bytes(4, "big") != expected[number]
        ):
            return f"its checksum does not match (bytes {start} to {min(end, len(content)) - 1})"
    return None


def are_sums_damaged(content: bytes, sums: bytes) -> bool:
    """Return whether Hadoop's checksum file is damaged, and says nothing against its file.

    Its head is damaged, or it is cut, and the sums that are left match.
    """
    size = _size(sums)
    if size is None:
        return True
    right = hadoop_sums(content, size)
    return len(sums) < len(right) and right.startswith(sums)


def spark_problem(content: bytes, sidecar: bytes) -> str | None:
    """Compare a state file with Spark's checksum of it; None where they match."""
    try:
        found = json.loads(sidecar)
        algorithm, value, size = found["algorithm"], int(found["value"]), found["mainFileSize"]
    except (ValueError, KeyError, TypeError):
        return DAMAGED
    if size != len(content):
        return f"it has {len(content)} bytes, and {size} were written"
    if algorithm == "CRC32C" and crc32c(content) != value & _ALL_ONES:
        return "its checksum does not match"
    return None


def spark_sidecar(content: bytes, now_ms: int) -> bytes:
    """Return Spark's checksum of a state file, as Spark writes it."""
    value = crc32c(content)
    return json.dumps(
        {
            "algorithm": "CRC32C",
            "value": value - (1 << 32) if value >> 31 else value,
            "mainFileSize": len(content),
            "timestampMs": now_ms,
            "creator": {"executorId": "driver", "taskInfo": "holdfast"},
        },
        separators=(",", ":"),
    ).encode()


def _size(sums: bytes) -> int | None:
    """Return how many bytes each sum of Hadoop's covers; None where the head is damaged."""
    size = int.from_bytes(sums[4:8], "big")
    return size if sums[:4] == _HADOOP and len(sums) >= 8 and size else None

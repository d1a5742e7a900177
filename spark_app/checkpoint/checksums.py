"""The two checksums beside a file of a checkpoint. Pure.

.NAME.crc   Hadoop's, on file systems without checksums of their own, as a local disk: CRC-32 of
            each 512 bytes
NAME.crc    Spark's, of a state file: CRC-32C of the whole file, as JSON (from Spark 4.1)
"""

import json
import os
import time
import zlib
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
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
        recorded = json.loads(sidecar)
        algorithm, value, size = (
            recorded["algorithm"],
            int(recorded["value"]),
            recorded["mainFileSize"],
        )
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


# The checksum files of a checkpoint on a local path; a damaged one is written again.
#
# Where one is damaged and its file is not, nothing is lost. Hadoop ignores one with a damaged head,
# and refuses the file of one that is cut; Spark refuses a state file whose own checksum is damaged.

_HEAD: Final = hadoop_sums(b"")


def hadoop_file(file: Path) -> Path:
    """Return the place of Hadoop's checksum file of a file."""
    return file.with_name(f".{file.name}.crc")


def spark_file(file: Path) -> Path:
    """Return the place of Spark's checksum file of a state file."""
    return file.with_name(f"{file.name}.crc")


def damaged_beside(file: Path, content: bytes) -> dict[Path, bytes]:
    """Return the checksum files of an intact file that are damaged, with what they should hold.

    Empty where the content may be what is damaged, and for a file without checksum files. Raises
    OSError.
    """
    sums, sidecar = _read(hadoop_file(file)), _read(spark_file(file))
    if sums is None:
        return {}
    if are_sums_damaged(content, sums):
        # Spark's own checksum speaks for the content, where there is one.
        is_intact = sidecar is None or spark_problem(content, sidecar) is None
        return {hadoop_file(file): hadoop_sums(content)} if is_intact else {}
    if hadoop_problem(content, sums) is None and sidecar is not None and _is_damaged(file, sidecar):
        right = spark_sidecar(content, time.time_ns() // 1_000_000)
        return {spark_file(file): right, hadoop_file(spark_file(file)): hadoop_sums(right)}
    return {}


def mend(checkpoint: Path) -> list[Path]:
    """Write the damaged checksum files of intact files again; return their places.

    Reads the files that seem to have one, and no others. Raises OSError.
    """
    mended: list[Path] = []
    for folder, _, names in os.walk(checkpoint):
        present = set(names)
        for name in names:
            # Spark may have removed it since.
            with suppress(FileNotFoundError):
                if not name.startswith(".") and _is_suspect(folder, name, present):
                    file = Path(folder, name)
                    for place, content in damaged_beside(file, file.read_bytes()).items():
                        place.write_bytes(content)
                        mended.append(place)
    return mended


def _is_suspect(folder: str, name: str, present: set[str]) -> bool:
    """Return whether a checksum file of a file is damaged by its looks.

    A damaged head of the right length changes nothing for Hadoop.
    """
    sums, sidecar = f".{name}.crc", f"{name}.crc"
    if sums not in present:
        return False
    # Every file of a checkpoint is asked, at each start: a `Path` takes much longer.
    size, length = (os.stat(f"{folder}/{each}").st_size for each in (name, sums))  # noqa: PTH116
    if length != len(_HEAD) + 4 * -(-size // BYTES_PER_SUM):
        return True
    file = Path(folder, name)
    return sidecar in present and _is_damaged(file, spark_file(file).read_bytes())


def _is_damaged(file: Path, sidecar: bytes) -> bool:
    """Return whether Spark's checksum file is damaged itself, whatever its file holds."""
    sums = _read(hadoop_file(spark_file(file)))
    if sums is not None and not are_sums_damaged(sidecar, sums):
        return hadoop_problem(sidecar, sums) is not None
    # A readable one that does not match may be right.
    return spark_problem(b"", sidecar) == DAMAGED


def _read(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None

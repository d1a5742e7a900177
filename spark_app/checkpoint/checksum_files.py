"""The checksum files of a checkpoint on a local path; a damaged one is written again.

Where one is damaged and its file is not, nothing is lost. Hadoop ignores one with a damaged head,
and refuses the file of one that is cut; Spark refuses a state file whose own checksum is damaged.
"""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.spark_app.checkpoint.checksums import (
    BYTES_PER_SUM,
    DAMAGED,
    are_sums_damaged,
    hadoop_problem,
    hadoop_sums,
    spark_problem,
    spark_sidecar,
)

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

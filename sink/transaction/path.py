"""Which way the rows of a batch take: through the driver, or from the tasks to Postgres.

Both leave the same rows in the same tables. The driver path is one connection and one COPY; the
staged path costs a table and a connection a task, and the driver holds no rows.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Path = Literal["auto", "driver", "staged"]

STAGED_BYTES = 64 << 20
"""From this size on, `auto` stages a batch."""

UNKNOWN_BYTES = 1 << 50
"""A plan whose source does not know its size says 2^63, scaled by the widths of rows."""


class PathChoice:
    """Chooses for one batch after another. It decides about cost alone, never about content."""

    def __init__(self, path: Path, *, rows_in_driver: bool) -> None:
        """`rows_in_driver`: somebody wants to see them there. Raises `ValueError`."""
        if path not in get_args(Path):
            raise ValueError(f"path {path!r} is not known: use one of {', '.join(get_args(Path))}")
        if path == "staged" and rows_in_driver:
            raise ValueError(
                "path='staged' keeps the rows out of the driver, where `select` and `also` need"
                " them: shape the DataFrame in Spark and leave both out, or use path='driver'"
            )
        self._path: Path = "driver" if rows_in_driver else path
        self._last_bytes = 0

    def is_staged(self, estimated: Callable[[], int]) -> bool:
        """Choose for the next batch; `estimated` is what its plan says of its bytes."""
        if self._path != "auto":
            return self._path == "staged"
        size = estimated()
        return (self._last_bytes if size >= UNKNOWN_BYTES else size) >= STAGED_BYTES

    def record(self, size: int) -> None:
        """Note the bytes in Arrow of a batch that came, for a next one of unknown size."""
        self._last_bytes = size


def plan_bytes(df: "DataFrame") -> int:
    """Return the size that Spark's optimizer expects of a DataFrame; runs nothing.

    Of a source of files it is their size, scaled by the widths of rows: filters do not count.
    """
    plan = df._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - PySpark has no public way
    return int(str(plan.stats().sizeInBytes()))

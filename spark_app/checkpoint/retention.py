"""How many batches a checkpoint keeps, as Spark's settings; recorded in it by each start.

Spark keeps the plans and commits of that many batches, and the state files from which the state
after each of them can be read. It has no limit by age: a duration is mapped to the number of
batches that can begin in it.
"""

import json
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from holdfast.spark_app.checkpoint.files import CheckpointFiles

FILE: Final = "holdfast-retention.json"
VERSION: Final = 1

KEEP_BATCHES: Final = 100
"""Spark's own default."""

KEEP_MIN: Final = 2
"""Spark reads the plan of the batch before the newest one at each start."""

_KEEP: Final = "spark.sql.streaming.minBatchesToRetain"
SHOWN: Final = (
    _KEEP,
    "spark.sql.streaming.stateStore.minDeltasForSnapshot",
    "spark.sql.streaming.stateStore.maintenanceInterval",
)
"""The settings of Spark that decide what is kept: maintenance removes older files, and writes the
snapshot of a partition with at least that many changelogs."""


@dataclass(frozen=True, slots=True)
class Retention:
    """The number of batches that a checkpoint keeps."""

    batches: int = KEEP_BATCHES

    @classmethod
    def covering(cls, batches: int, keep_for_ms: int | None, interval_ms: int) -> "Retention":
        """Return at least `batches`, and as many as can begin in `keep_for_ms`.

        A batch begins at most once in each interval, so the time that is covered is never less.

        >>> Retention.covering(100, 7_200_000, 1_000)
        Retention(batches=7201)
        """
        if keep_for_ms is None:
            return cls(batches)
        return cls(max(batches, -(-keep_for_ms // max(interval_ms, 1)) + 1))

    def keep(self, spark: SparkSession, files: CheckpointFiles) -> None:
        """Set Spark's setting for the next query, and record the settings where they are new."""
        spark.conf.set(_KEEP, str(self.batches))
        kept = {
            "version": VERSION,
            "keep_batches": self.batches,
            "spark": {name: spark.conf.get(name) for name in SHOWN},
        }
        text = json.dumps(kept, indent=2) + "\n"
        if files.read(FILE) != text:
            files.write(FILE, text)

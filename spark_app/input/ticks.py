"""The idle clock as a source: small files that record a time without events.

The driver writes a tick when no source had an event for the idle timeout (`lifecycle.idle_clock`).
In the batch that reads it, a tick advances the watermark of the next batch to the timestamp of this
one, less the timeout and the watermark delay. The tick has the timeout in it, and Spark stores the
batch's timestamp and its files: a replay computes the same, whatever the options of its run are.

A tick also says when the sources were last known to be read to their end. Where a batch reads it
later than the timeout after that, as after a restart, it counts for nothing: what arrived in
between must not be late because of it. So no watermark of a tick passes that moment.
"""

import json
import re
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

FOLDER: Final = "holdfast-ticks"
"""In the checkpoint."""

_DDL = "known_ms long, timeout_ms long"

_AGE_MAX = "1h"
"""Spark forgets the names of ticks that are older than the newest one by more than this."""


_NAME: Final = re.compile(r"([0-9]+)-([0-9]+)\.json", re.ASCII)


def file_name(known_ms: int, timeout_ms: int) -> str:
    """Return the name of a tick's file in a checkpoint; it has the content of the file in it."""
    return f"{FOLDER}/{known_ms}-{timeout_ms}.json"


def from_name(name: str) -> str | None:
    """Return the content of a tick's file by its name without the folder; None for another name.

    Spark's log keeps the names of files that were read and removed.
    """
    match = _NAME.fullmatch(name)
    return None if match is None else to_json(int(match[1]), int(match[2]))


def to_json(known_ms: int, timeout_ms: int) -> str:
    """Return the content of a tick's file.

    `known_ms`: when the sources were last known to be read to their end, since 1970.
    """
    return json.dumps({"known_ms": known_ms, "timeout_ms": timeout_ms})


def read(spark: SparkSession, checkpoint: str, key_group: int) -> DataFrame:
    """Return a streaming DataFrame with a row without events (`pack.PACKED`) for each tick.

    Spark deletes a tick's file when the batch that read it is recorded.
    """
    ticks = (
        spark.readStream.schema(_DDL)
        .option("maxFileAge", _AGE_MAX)
        .option("cleanSource", "delete")
        .json(f"{checkpoint}/{FOLDER}")
    )
    return packed(ticks, key_group)


def packed(ticks: DataFrame, key_group: int) -> DataFrame:
    """Return the rows of `read` for the content of ticks."""
    # The timestamp of the batch, the same in a replay.
    now_ms = F.unix_millis(F.current_timestamp())
    in_time = now_ms - F.col("known_ms") <= F.col("timeout_ms")
    return ticks.select(
        F.lit(key_group).alias("key_group"),
        F.when(in_time, F.timestamp_millis(now_ms - F.col("timeout_ms"))).alias("plausible_at"),
        F.lit(None).cast("binary").alias("events"),
        F.lit(None).cast("binary").alias("refused"),
    )

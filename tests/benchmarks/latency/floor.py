"""Spark's own operators over the same files, nothing written: `... .floor SETTINGS FOLDER`.

The chain of `operator.builtin`. SETTINGS is `job`, the session of the product with its file
manager, or `plain`, Spark's defaults with as many partitions. The last line of stdout is Spark's
report of each batch, as JSON.
"""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from holdfast.deploy.local.java import spark_environment
from holdfast.spark_app.operator.groups import STATE_PARTITIONS
from holdfast.spark_app.operator.job import LOCAL_MANAGER, MANAGER
from holdfast.spark_app.runtime import session
from tests.benchmarks.operator import builtin, plain

_ENCODING = "spark.sql.streaming.stateStore.encodingFormat"
_REPORTS = "spark.sql.streaming.numRecentProgressUpdates"


def _job() -> SparkSession:
    spark = session.create("holdfast bench")
    spark.conf.set("spark.sql.shuffle.partitions", str(STATE_PARTITIONS))
    spark.conf.set(MANAGER, LOCAL_MANAGER)
    # Spark's aggregation knows no other encoding.
    spark.conf.set(_ENCODING, "unsaferow")
    return spark


SETTINGS = {"job": _job, "plain": plain.create}


def nothing(df: DataFrame, batch_id: int) -> None:  # noqa: ARG001 - Spark's call
    """Read the batch, and write nothing."""
    df.write.format("noop").mode("append").save()


def main() -> None:
    """Run over all files, one a batch, and print the reports."""
    settings, folder = sys.argv[1], Path(sys.argv[2])
    os.environ.update(spark_environment())
    spark = SETTINGS[settings]()
    spark.conf.set(_REPORTS, "100000")
    query = builtin.run(spark, str(folder / "events"), str(folder / "checkpoint"), nothing)
    query.awaitTermination()
    reports = [json.loads(progress.json) for progress in query.recentProgress]
    spark.stop()
    print(json.dumps(reports))


if __name__ == "__main__":
    main()

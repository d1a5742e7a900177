"""A user's own job as a process: a file a batch, two partitions a batch, written by the sink.

It needs Spark and the sink alone, of whatever version is installed where it runs. Run as
`python sink_job.py DSN FOLDER PATH [NAME=VALUE ...]`, with the sink's write path and settings of
Spark; it ends when all files are written. Without a master a task has four tries, as on a cluster.
With `spark.remote=sc://...` it is a client of Spark Connect.
`FOLDER/events` has the files, `FOLDER/checkpoint` is the query's.
"""

import sys

from pyspark.sql import SparkSession

from holdfast.sink import OutboxSink
from holdfast.sink.transaction.database import Timeouts

CONF = {
    "spark.master": "local[2,4]",
    # As the job: short queries gain nothing from the second compiler.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}

SCHEMA = (
    "subject string, type string, key array<string>, occurred_at timestamp,"
    " data struct<merchant_id string, exposure_minor bigint, tags array<string>,"
    " seen array<struct<at timestamp, by string>>, is_new boolean, small smallint>"
)

PATIENT = Timeouts(
    connect_seconds=10,
    lock_seconds=20,
    statement_seconds=30,
    idle_seconds=30,
    transaction_seconds=60,
    deadline_seconds=60,
)


def main(dsn: str, folder: str, path: str, *settings: str) -> None:
    """Write the files that the checkpoint does not know."""
    chosen = dict(setting.split("=", 1) for setting in settings)
    builder = SparkSession.builder
    # Behind Spark Connect the server has its own settings.
    for name, value in (chosen if "spark.remote" in chosen else CONF | chosen).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    checkpoint = f"{folder}/checkpoint"
    sink = OutboxSink(
        dsn,
        stream="payouts",
        checkpoint=checkpoint,
        path=path,
        timeouts=PATIENT,
        suppress_repeats=True,
    )
    source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    query = (
        source.json(f"{folder}/events")
        .repartition(2)
        .writeStream.option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .foreachBatch(sink)
        .start()
    )
    query.awaitTermination()
    outcome = sink.outcome()
    sys.stderr.write(f"outcome of batch {outcome.batch_id}: {outcome.counts}\n")
    sink.close()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A Spark driver as a process, on the staged path: a file a batch, two partitions a batch.

Run as
`python -m tests.support.job.staged_spark DSN FOLDER [NAME=VALUE ...]` with settings of Spark; it
ends when all files are written. Without a master a task has four tries, as on a cluster.
`FOLDER/events` has the files, `FOLDER/checkpoint` is the query's.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg

from holdfast.sink import OutboxSink
from tests.support.dispatch.sender import SCHEMA
from tests.support.job.driver import PATIENT, Driver
from tests.support.job.job_stream import contents
from tests.support.job.sink_program import BATCHES, rows

CONF = {
    "spark.master": "local[2,4]",
    # As the job: short queries gain nothing from the second compiler.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}


def write_events(folder: Path, number: int, lines: list[dict[str, Any]]) -> None:
    """Write the decisions of batch `number`."""
    path = folder / "events" / f"{number:03}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(json.dumps(row, default=lambda at: at.isoformat()) for row in lines))
    # The source takes files in the order of their times.
    os.utime(path, (1_793_620_000 + number,) * 2)


def check_as_on_the_driver_path(dsn: str, undisturbed: str, folder: Path) -> None:
    """Check that the staged path left what the driver path leaves of the same rows, and no stage.

    `undisturbed` is an empty outbox, which gets what the driver path leaves.
    """
    query_id = json.loads((folder / "checkpoint" / "metadata").read_text())["id"]
    driver = Driver(undisturbed, query_id=UUID(query_id))
    for number in range(BATCHES):
        driver.batch(number, *rows(number))
    driver.sink.close()
    with (
        psycopg.connect(dsn, autocommit=True) as db,
        psycopg.connect(undisturbed, autocommit=True) as other,
    ):
        assert contents(db) == contents(other)
        assert db.execute("SELECT count(*) FROM holdfast.stage").fetchone() == (0,)


def main(dsn: str, folder: Path, *settings: str) -> None:
    """Write the files that the checkpoint does not know."""
    from pyspark.sql import SparkSession
    from pyspark.sql.pandas.types import from_arrow_schema

    conf = CONF | dict(setting.split("=", 1) for setting in settings)
    spark = SparkSession.builder.config(map=conf).getOrCreate()
    checkpoint = str(folder / "checkpoint")
    sink = OutboxSink(dsn, stream="payouts", checkpoint=checkpoint, path="staged", timeouts=PATIENT)
    source = spark.readStream.schema(from_arrow_schema(SCHEMA)).option("maxFilesPerTrigger", 1)
    query = (
        source.json(str(folder / "events"))
        .repartition(2)
        .writeStream.option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .foreachBatch(sink)
        .start()
    )
    query.awaitTermination()
    sink.close()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])

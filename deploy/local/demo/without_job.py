"""The job without an outbox: `foreachBatch` sends each decision by a request from the executors.

This is the usual way to call a REST service from Spark. It computes the decisions of the demo's job
and sends them as they come; a request that fails fails the batch, so Spark runs it again. Run as
`python -m holdfast.deploy.local.demo.without_job EVENTS CHECKPOINT POLICY URL`.
"""

import json
import sys
from collections.abc import Iterable
from typing import Any
from urllib.request import Request, urlopen

from pyspark.sql import DataFrame, Row

from holdfast.sink.contract.failpoints import failpoint
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.input.formats import Format
from holdfast.spark_app.operator.blobs import SCHEMAS, Kind, from_blob
from holdfast.spark_app.operator.job import Job, start
from holdfast.spark_app.runtime.session import create


class Send:
    """The function for foreachBatch."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, blobs: DataFrame, batch_id: int) -> None:
        """Send the decisions of a batch, each merchant's in its order."""
        del batch_id
        url = self._url
        blobs.where(blobs.kind == Kind.DECISIONS).foreachPartition(lambda rows: _post(url, rows))
        failpoint("S9")


def _post(url: str, rows: Iterable[Row]) -> None:
    for row in rows:
        for decision in from_blob(row.blob, SCHEMAS[Kind.DECISIONS]).to_pylist():
            body = json.dumps(decision, default=_text).encode()
            # Raises for an answer other than 2xx.
            urlopen(Request(url, body), timeout=60).close()  # noqa: S310 - the demo's own service


def _text(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def main(events: str, checkpoint: str, policy: str, url: str) -> None:
    """Read the files that the checkpoint does not know, one a batch, and send their decisions."""
    spark = create("without")
    job = Job(
        paths=(events,),
        format=Format("json"),
        checkpoint=checkpoint,
        stream="without",
        policy=Policy.load(policy),
        key_groups=4,
        max_files_per_trigger=1,
    )
    start(spark, job, Send(url), available_now=True).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

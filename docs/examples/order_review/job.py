"""The job: holds each order above a limit for review, and releases it.

    python job.py --available-now

Runs on Spark 3.5 to 4.3; with SPARK_REMOTE=sc://HOST:PORT behind Spark Connect.
"""

import argparse
import json
import os
import signal
from pathlib import Path
from threading import Event
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from holdfast.sink import OutboxSink

JOB = "order_review"
"""Types begin with it. Endpoints and the receiver name them: do not change it afterwards."""

KEYS = f"{JOB}/v1"
"""Keys begin with it. Under another one each decision of the past is a new one."""

SINK: dict[str, Any] = {"stream": JOB, "suppress_repeats": True}
"""To hold an order that is held changes nothing: such a decision is suppressed."""

HERE = Path(__file__).resolve().parent

EVENT = """event_id string, order_id string, type string, amount_minor long, currency string,
    occurred_at timestamp, unreadable string"""

ACTION = """CASE
    WHEN type IN ('placed', 'amended') AND amount_minor > policy.limit_minor THEN 'hold'
    WHEN type IN ('amended', 'approved') THEN 'release'
END"""
"""What an event decides; null: nothing."""

REJECTED = """CASE
    WHEN unreadable IS NOT NULL THEN 'unreadable'
    WHEN order_id IS NULL OR event_id IS NULL THEN 'no_id'
    WHEN currency IS DISTINCT FROM 'USD' THEN 'other_currency'
    WHEN coalesce(amount_minor, 0) <= 0 THEN 'no_amount'
    WHEN policy IS NULL THEN 'no_policy'
END"""
"""The rule that refuses an event: it is kept, and `holdfast quarantine list` shows it."""


def events(reader: Any, path: str) -> DataFrame:
    """The events of JSON files, by `spark.read` or `spark.readStream`; a bad line is kept."""
    return reader.schema(EVENT).option("columnNameOfCorruptRecord", "unreadable").json(path)


def in_force(policy: list[dict[str, Any]]) -> Column:
    """The limit at the time of the event: a replay under a newer policy decides the same."""
    newest_first = sorted(policy, key=lambda each: each["effective_from"], reverse=True)
    return F.coalesce(
        *(
            F.when(
                F.col("occurred_at") >= F.lit(each["effective_from"]).cast("timestamp"),
                F.struct(
                    F.lit(each["limit_minor"]).cast("long").alias("limit_minor"),
                    F.lit(each["version"]).alias("version"),
                ),
            )
            for each in newest_first
        )
    )


def decisions(orders: DataFrame, policy: list[dict[str, Any]], keys: str = KEYS) -> DataFrame:
    """The columns of the sink: a row for each decision, and for each event that is refused."""
    judged = orders.withColumn("policy", in_force(policy)).selectExpr(
        "*", f"{ACTION} AS action", f"{REJECTED} AS rejected"
    )
    event = f"to_json(struct({', '.join(orders.columns)}))"
    return judged.where("action IS NOT NULL OR rejected IS NOT NULL").selectExpr(
        "order_id AS subject",
        f"'{JOB}.' || action AS type",
        f"array('{keys}', order_id, action, event_id) AS key",
        "occurred_at",
        """named_struct('order_id', order_id, 'action', action, 'amount_minor', amount_minor,
            'limit_minor', policy.limit_minor, 'policy_version', policy.version) AS data""",
        "rejected",
        f"CASE WHEN rejected IS NOT NULL THEN coalesce(unreadable, {event}) END AS rejected_event",
    )


def outbox(checkpoint: str, stream: str = JOB) -> OutboxSink:
    return OutboxSink(
        os.environ["HOLDFAST_DSN"], checkpoint=checkpoint, **{**SINK, "stream": stream}
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Hold orders for review, and release them.")
    parser.add_argument("--events", default=str(HERE / "events"))
    parser.add_argument("--checkpoint", default=str(HERE / "checkpoint"))
    parser.add_argument("--policy", type=Path, default=HERE / "policy.json")
    parser.add_argument("--available-now", action="store_true", help="end when all is read")
    parser.add_argument("--stream", default=JOB, help="another one to recompute history")
    parser.add_argument("--keys", default=KEYS, help="how keys begin; for another stream others")
    options = parser.parse_args()

    stopping = Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    sink = outbox(options.checkpoint, options.stream)
    sink.check()  # a wrong DSN or schema is an error here, and not in the first batch
    spark = SparkSession.builder.appName(JOB).getOrCreate()
    orders = events(spark.readStream.option("maxFilesPerTrigger", 1), options.events)
    policy = json.loads(options.policy.read_text())
    writer = decisions(orders, policy, options.keys).writeStream
    if options.available_now:
        writer = writer.trigger(availableNow=True)
    query = writer.option("checkpointLocation", options.checkpoint).foreachBatch(sink).start()
    while not query.awaitTermination(1):  # raises the query's error
        if stopping.is_set():
            sink.stop(query)  # the running batch ends first; the next one does not begin
            break
    print(sink.outcome())


if __name__ == "__main__":
    main()

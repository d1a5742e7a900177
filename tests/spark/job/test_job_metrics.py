"""What a job measures, against what it wrote: scraped over HTTP while it runs."""

from datetime import timedelta
from typing import Any
from urllib.request import urlopen

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.deploy.local.ports import free_port
from holdfast.sink.contract.exits import CommandError
from tests.support.job.jobs import Play, at, event, forget_commit, patiently, put

PHASES = ("plan", "load", "state", "upload", "commit", "total")
"""Of a checkpoint."""

Samples = dict[str, float]
"""By name and labels but the stream: `late_rows_total late`."""


def _scrape(port: int) -> Samples:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels["stream"] == "payouts"
            labels = [sample.labels[name] for name in sorted(sample.labels) if name != "stream"]
            found[" ".join([sample.name.removeprefix("holdfast_job_"), *labels])] = sample.value
    return found


def _measured(play: Play) -> Samples:
    """Run the job once as the command does, and scrape it before the process would end."""
    from holdfast.spark_app.reporting.batch_counts import BatchCounter
    from holdfast.spark_app.reporting.metrics import Metrics, served

    metrics, port = Metrics("payouts"), free_port()
    counter = BatchCounter(metrics.done)
    with (
        play.attempt(sink={"select": counter.select}, state_memory_mb=77) as run,
        served(metrics, "127.0.0.1", port),
    ):
        patiently(lambda: run(counter=counter, metrics=metrics))
        return _scrape(port)


def _counted(db: psycopg.Connection, query: str) -> Any:
    return dict(db.execute(query).fetchall())  # type: ignore[arg-type]  # two columns


def test_metrics_say_what_was_written(
    play: Play, db: psycopg.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    events = play.folder / "events"
    put(events, 0, [event("e1", "12:01", 6_000_000), event("e2", "12:02", 1), b"no event"])
    put(events, 1, [event("e1", "12:01", 6_000_000), event("e3", "12:40", 1)])
    put(
        events,
        2,
        [event("e4", "12:03", 1), event("e5", "12:41", 1), event("e6", "12:41", 1, "m_2")],
    )
    put(events, 3, [event("e7", "12:42", 1, occurred_at="2099-01-01T00:00:00Z"), b"", b"{}"])
    contents = _measured(play)

    assert contents["batches_total written"] == 4
    assert contents["rows_total"] == 3 + 2 + 3 + 3
    late = _counted(db, "SELECT reason::text, count(*) FROM holdfast.late_event GROUP BY 1")
    assert late == {"late": 1, "duplicate": 1, "future_dated": 1}
    assert late == {reason: contents[f"late_rows_total {reason}"] for reason in late}
    refused = _counted(db, "SELECT reason::text, count(*) FROM holdfast.quarantine GROUP BY 1")
    assert sum(refused.values()) == 2
    assert refused == {reason: contents[f"quarantined_rows_total {reason}"] for reason in refused}
    [[entries, windows]] = db.execute(
        "SELECT (SELECT count(*) FROM holdfast.entry),"
        " (SELECT sum(revision) FROM holdfast.exposure_window)"
    ).fetchall()
    assert (contents["entries_total"], contents["windows_total"]) == (entries, windows)

    reached = at("12:41") - timedelta(seconds=30)
    assert contents["watermark_timestamp_seconds"] == reached.timestamp()
    began = contents["last_batch_timestamp_seconds"]
    assert contents["watermark_lag_seconds"] == pytest.approx(began - reached.timestamp())
    assert contents["batch_duration_seconds_count triggerExecution"] == 4
    assert contents["state_memory_bytes"] > 0
    assert contents["state_file_bytes"] > 0
    assert 0 < contents["last_commit_age_seconds"] < 60
    name = "checkpoint_duration_seconds"
    counts = {phase: contents[f"{name}_count {phase}"] for phase in PHASES}
    assert counts == dict.fromkeys(PHASES, 4)
    spent = {phase: contents[f"{name}_sum {phase}"] for phase in PHASES}
    assert all(spent.values())
    assert spent["total"] == pytest.approx(spent["plan"] + spent["state"] + spent["commit"])
    assert spent["upload"] <= spent["state"]
    assert spent["total"] < contents["batch_duration_seconds_sum triggerExecution"]
    assert contents["spark_dropped_rows"] == 0
    assert contents["state running"] == 1
    assert "late=1 future_dated=0 repeated=0 settled=0 " in capsys.readouterr().err


@pytest.mark.rest
def test_a_replayed_batch_is_not_counted_a_second_time(play: Play) -> None:
    play.put([event("e1", "12:01", 6_000_000)], [event("e2", "12:20", 1)])
    first = _measured(play)
    assert (first["batches_total written"], first["entries_total"]) == (3, 1)
    forget_commit(play.checkpoint, 2)
    again = _measured(play)
    assert again["batches_total replayed"] == 1
    assert (again["entries_total"], again["windows_total"]) == (0, 0)


@pytest.mark.rest
def test_the_bound_of_the_state_reaches_rocksdb(play: Play) -> None:
    from holdfast.spark_app.runtime import session

    play.put([event("e1", "12:01", 1)])
    assert _measured(play)["state_memory_bytes"] > 0
    jvm: Any = play.spark._jvm
    package = jvm.org.apache.spark.sql.execution.streaming.state
    # What Spark makes of the settings, and that its stores live under that bound.
    spark: Any = session.bound(play.spark.newSession(), 77)
    no_options = getattr(package.StateStoreConf, "$lessinit$greater$default$2")()
    settings = package.StateStoreConf(spark._jsparkSession.sessionState().conf(), no_options)
    read = package.RocksDBConf.apply(settings)
    assert (read.boundedMemoryUsage(), read.totalMemoryUsageMB()) == (True, 77)
    assert package.RocksDBMemoryManager.getNumRocksDBInstances(True) >= 2


@pytest.mark.rest
def test_rows_that_spark_drops_itself_end_the_job_in_words(play: Play) -> None:
    """A query that does what the job avoids: its watermark column reaches a stateful operator."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

    from holdfast.spark_app.reporting.progress import refuse_dropped_rows

    play.put(
        [event("e1", "12:30", 1)],
        [event("e2", "12:30", 1)],
        [event("e3", "12:01", 1), event("e4", "12:01", 1)],
    )
    query = (
        play.spark.readStream.option("maxFilesPerTrigger", 1)
        .schema("event_id string, occurred_at timestamp")
        .json(str(play.folder / "events"))
        .withWatermark("occurred_at", "1 minute")
        .groupBy(F.window("occurred_at", "1 minute"))
        .count()
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(play.checkpoint))
        .foreachBatch(lambda df, _: df.toArrow())
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(240)
    finally:
        query.stop()
    progress = next(each for each in query.recentProgress if each.numInputRows == 2)
    refuse_dropped_rows(query.recentProgress[0])
    with pytest.raises(CommandError, match=r"^Spark dropped \d rows of batch"):
        refuse_dropped_rows(progress)

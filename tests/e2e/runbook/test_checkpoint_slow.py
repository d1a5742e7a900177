"""A slow checkpoint: the page, followed beside the metrics that a job serves."""

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.deploy.local.ports import free_port
from holdfast.spark_app.reporting.metrics import Metrics, served
from tests.support.documents.runbook import Reader, Site, decided, rows
from tests.support.job.driver import Driver

pytestmark = pytest.mark.rest


def report(seconds: float) -> Any:
    """What Spark reports of a batch whose state took so long to commit, in two partitions."""
    operator = SimpleNamespace(
        commitTimeMs=2_000 * seconds,
        numShufflePartitions=2,
        memoryUsedBytes=100_000_000,
        numRowsDroppedByWatermark=0,
        customMetrics={
            "rocksdbCommitFileSyncLatencyMs": 1_900 * seconds,
            "rocksdbSstFileSize": 600_000_000,
        },
    )
    return SimpleNamespace(
        timestamp="2026-11-25T03:00:00.000Z",
        numInputRows=4_000,
        durationMs={"walCommit": 40, "commitOffsets": 60, "addBatch": 1_000 * seconds},
        eventTime={"watermark": "2026-11-25T02:40:00.000Z"},
        stateOperators=[operator],
        sources=[],
    )


def test_slow_phase_is_found_and_nothing_is_lost(site: Site, reader: Reader) -> None:
    site.serve()
    site.endpoint()
    site.dispatch()
    spark = Driver(site.dsn)
    spark.tables(0, rows(decided("m_482", 1, "block")))
    metrics, port = Metrics("payouts"), free_port()
    metrics.recorded(report(70))
    reader.known |= {"METRICS": f"127.0.0.1:{port}"}

    def faster() -> None:
        metrics.recorded(report(1))
        spark.tables(1, rows(decided("m_482", 2, "release")))
        spark.sink.close()
        site.delivered()

    cause = "the cause is removed, and the job is started again if its options changed"
    with served(metrics, "127.0.0.1", port):
        reader.follow("checkpoint-slow", {cause: faster})
    shown = "".join(reader.shown)
    assert 'checkpoint_duration_seconds_sum{phase="total",stream="payouts"} 70.1' in shown
    assert 'checkpoint_duration_seconds_sum{phase="upload",stream="payouts"} 66.5' in shown
    assert site.applied() == [("m_482", "block", "applied"), ("m_482", "release", "applied")]

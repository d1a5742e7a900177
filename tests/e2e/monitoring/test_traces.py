"""A decision's spans reach a real OTLP receiver: from the batch to the service that applies it.

Real: Spark, Postgres, the dispatcher, the payouts service, OTLP over HTTP.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.documents.runbook import running_site
from tests.support.job.job_process import QUICK, job_process
from tests.support.job.jobs import event, put
from tests.support.monitoring.otlp import collecting

pytestmark = [pytest.mark.rest, pytest.mark.spark]


def test_batch_and_receiver_share_a_trace_that_the_attempt_links_to(
    dsn: str,
    make_database: Callable[[str | None], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with collecting() as collector:
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.port}")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
        with running_site(dsn, make_database(None), tmp_path) as site:
            site.serve()
            site.endpoint()
            site.dispatch()
            put(tmp_path / "events", 0, [event("e1", "12:01", 9_000_000, "m_482")])
            put(tmp_path / "events", 1, [event("e2", "12:40", 1, "m_482")])
            with job_process(tmp_path, dsn, *QUICK) as job:
                job.until(lambda: collector.named("holdfast.receive"))
                job.until(lambda: collector.named("holdfast.deliver"))
                (received, *_) = collector.named("holdfast.receive")
                job.until(lambda: any(each.span == received.parent for each in collector.spans))
                sent = [each for each in collector.spans if each.span == received.parent]
                job.until(lambda: any(each.span == sent[0].parent for each in collector.spans))
    ((transaction,), (attempt, *_)) = sent, collector.named("holdfast.deliver")
    (batch,) = [each for each in collector.spans if each.span == transaction.parent]
    assert [each.name for each in (batch, transaction)] == ["holdfast.batch", "send payouts"]
    assert batch.trace == transaction.trace == received.trace
    assert batch.parent == ""
    assert attempt.links == ((transaction.trace, transaction.span),)
    assert attempt.trace != transaction.trace
    assert [each.service for each in (batch, transaction, attempt, received)] == [
        "holdfast-job",
        "holdfast-job",
        "holdfast-dispatcher",
        "holdfast-payouts",
    ]
    assert attempt.attributes["holdfast.outcome"] == "delivered"
    assert not any(b"m_482" in body or dsn.encode() in body for body in collector.bodies)

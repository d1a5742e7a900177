"""Metrics and their page, log lines, and spans."""

import io
import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import structlog
from opentelemetry import trace as api
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from holdfast.deploy.grafana import catalogue
from holdfast.deploy.payouts.metrics import Measures as PayoutsMeasures
from holdfast.deploy.release.pages import pages
from holdfast.dispatcher.api.metrics import ApiMeasures
from holdfast.dispatcher.delivery.rules.lifecycle import Move
from holdfast.dispatcher.delivery.rules.values import Attempt, Entry, Settled, Settlement
from holdfast.dispatcher.delivery.store.session import Pools
from holdfast.dispatcher.delivery.telemetry import log as subject
from holdfast.dispatcher.delivery.telemetry.log import Line, Telemetry, configure
from holdfast.dispatcher.delivery.telemetry.metrics import DispatcherCollector, Measures
from holdfast.dispatcher.delivery.telemetry.server_state import ServerState, TableState
from holdfast.dispatcher.delivery.telemetry.tracing import attempt_span, attempt_spans
from holdfast.dispatcher.operators.common.pool import PoolCounts
from holdfast.dispatcher.outbound.endpoint import Endpoint
from holdfast.dispatcher.shared.metrics import Histogram
from holdfast.sink.contract.states import OrderPolicy, Outcome
from tests.support.dispatch.dispatching import tracing
from tests.support.documents.pages import ROOT
from tests.support.monitoring.rules import RULES

_TABLE = re.compile(r"^\| `(holdfast_(?!job_)\w+)` \| (\w+) \| (.*?) \|", re.MULTILINE)


def _registry(measures: Measures) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(
        DispatcherCollector(
            measures,
            counts={"crashed": 2},
            in_flight=lambda: 7,
            pool=lambda: Pools(connections=3, waits=1, waited_seconds=0.5),
        )
    )
    return registry


def _api_registry() -> CollectorRegistry:
    measures = ApiMeasures(lambda: PoolCounts(2, 1, 0, 0.5))
    for status in (200, 401):
        measures.answered("GET", "/api/v1/status", status, 0.01)
    return measures.registry


class _Served(Collector):
    """What the payouts service answers at /metrics."""

    def collect(self) -> Iterable[Metric]:
        return text_string_to_metric_families(PayoutsMeasures().text(held=3).decode())


def _payouts_registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(_Served())
    return registry


def _full() -> Measures:
    """One value in each family, so that each shows its labels."""
    measures, by = Measures(), ("payouts",)
    measures.attempts["payouts", "delivered"] += 3
    for _, _, counter in measures.counters():
        counter[by] += 1
    measures.attempt_seconds.observe(0.003, ("payouts", "delivered"))
    measures.end_to_end_seconds.observe(4, by)
    for histogram in (measures.claim_seconds, measures.claim_lanes, measures.settle_seconds):
        histogram.observe(1)
    measures.due, measures.oldest_due_age_seconds = {"payouts": 5}, {"payouts": 61.5}
    measures.oldest_undelivered_age_seconds = {"payouts": 901.5}
    measures.on_hold = {"payouts": 2}
    measures.breakers = {"payouts": "half_open"}
    measures.clock_skew_seconds, measures.partition_days_ahead = -0.25, 7
    measures.server = ServerState(
        snapshot_ages={"other": 12},
        frozen_ages={"transaction": 900},
        frozen_ages_max={"transaction": 200_000_000},
        size_bytes=8_000_000,
        connections=9,
        connections_max=97,
        tables=(TableState("lane", 40, 2.5), TableState("batch", 0, None)),
    )
    return measures


def test_every_metric_is_documented_and_every_documented_metric_exists() -> None:
    text = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    documented = {
        name: (kind, set(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in _TABLE.findall(text)
    }
    made = {
        f"{family.name}_total" if family.type == "counter" else family.name: (
            family.type,
            {label for sample in family.samples for label in sample.labels} - {"le"},
        )
        for registry in (_registry(_full()), _api_registry(), _payouts_registry())
        for family in registry.collect()
    }
    assert documented == made


def test_values_are_shown_as_they_stand() -> None:
    registry = _registry(_full())
    value = registry.get_sample_value
    by = {"endpoint": "payouts"}
    assert value("holdfast_attempts_total", by | {"outcome": "delivered"}) == 3
    assert value("holdfast_oldest_due_age_seconds", by) == 61.5
    assert value("holdfast_oldest_undelivered_age_seconds", by) == 901.5
    assert value("holdfast_subjects_on_hold", by) == 2
    assert value("holdfast_breaker_state", by | {"state": "half_open"}) == 1
    assert value("holdfast_breaker_state", by | {"state": "closed"}) == 0
    assert value("holdfast_crashes_total") == 2
    assert value("holdfast_inflight") == 7
    assert value("holdfast_db_pool_wait_seconds_total") == 0.5
    assert value("holdfast_clock_skew_seconds") == -0.25
    assert value("holdfast_postgres_snapshot_age_transactions", {"holder": "other"}) == 12
    assert value("holdfast_postgres_dead_rows", {"table": "lane"}) == 40
    assert value("holdfast_postgres_connections_max") == 97


def test_what_is_not_known_yet_is_absent_and_not_zero() -> None:
    registry = _registry(Measures())
    assert registry.get_sample_value("holdfast_clock_skew_seconds") is None
    assert registry.get_sample_value("holdfast_partition_days_ahead") is None
    assert registry.get_sample_value("holdfast_postgres_size_bytes") is None
    assert registry.get_sample_value("holdfast_crashes_total") == 2


def test_table_that_was_never_vacuumed_has_no_age() -> None:
    value = _registry(_full()).get_sample_value
    assert value("holdfast_postgres_vacuum_age_seconds", {"table": "lane"}) == 2.5
    assert value("holdfast_postgres_vacuum_age_seconds", {"table": "batch"}) is None


def test_counters_of_an_endpoint_begin_at_zero_and_keep_what_they_have() -> None:
    measures, by = Measures(), {"endpoint": "payouts"}
    measures.dead["ledger",] += 2
    measures.initialise(["payouts", "ledger"])
    value_of = _registry(measures).get_sample_value
    names = ("unknown_outcomes", "fenced_writes", "leases_expired", "dead", "other_keys")
    for name in (*names, "stale_answers", "addresses_refused", "key_windows_shrunk"):
        assert value_of(f"holdfast_{name}_total", by) == 0
    for outcome in Outcome:
        assert value_of("holdfast_attempts_total", by | {"outcome": outcome.value}) == 0
    assert value_of("holdfast_dead_total", {"endpoint": "ledger"}) == 2


def test_api_refusal_counter_starts_at_zero() -> None:
    registry = ApiMeasures(lambda: PoolCounts(2, 1, 0, 0.5)).registry
    for missing in ("token", "role"):
        value = registry.get_sample_value("holdfast_api_auth_failures_total", {"missing": missing})
        assert value == 0


def test_bucket_holds_what_is_at_most_its_bound_and_everything_below() -> None:
    measures = Measures()
    measures.claim_seconds = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7):
        measures.claim_seconds.observe(value)
    value_of = _registry(measures).get_sample_value
    buckets = [
        value_of("holdfast_claim_seconds_bucket", {"le": bound}) for bound in ("0.1", "1.0", "+Inf")
    ]
    assert buckets == [2, 3, 4]
    assert value_of("holdfast_claim_seconds_count") == 4
    assert value_of("holdfast_claim_seconds_sum") == 7.65


KEY = UUID("0189cafe-0000-7000-8000-000000000001")
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    configure(stream)
    yield stream
    structlog.reset_defaults()


def attempt(sequence: int, outcome: Outcome = Outcome.DELIVERED, status: int = 200) -> Attempt:
    return Attempt(sequence, 1, KEY, outcome, status, 12, None, None, None)


def settled(*attempts: Attempt, move: Move = Move.ADVANCE) -> Settled:
    return Settled(Settlement(1, 7, KEY, move, 2, 0, 0, attempts, 0.0), None)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    data = [json.loads(line) for line in stream.getvalue().splitlines()]
    stream.seek(0)
    stream.truncate()
    assert all(line.pop("time").endswith("Z") for line in data)
    return data


@pytest.mark.parametrize("name", ["payouts", 'a "quoted" \\ näme', SECRET])
def test_delivered_attempts_are_the_same_as_line_by_line(
    stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    telemetry = Telemetry()
    results = [(name, settled(attempt(1), attempt(2, status=204))), (name, settled(attempt(3)))]
    telemetry.settled_all(results)
    at_once = lines(stream)
    monkeypatch.setattr(subject, "json_logger", lambda: None)
    telemetry.settled_all(results)
    assert at_once == lines(stream)
    assert len(at_once) == 3
    assert telemetry.counts == {"delivered": 6}


def test_lines_keep_the_order_of_the_results(stream: io.StringIO) -> None:
    telemetry = Telemetry()
    telemetry.settled_all(
        [
            ("a", settled(attempt(1))),
            ("b", settled(attempt(2), attempt(3, Outcome.FAILED, 500), move=Move.RETRY)),
            ("c", settled(attempt(4))),
        ]
    )
    records = lines(stream)
    assert [line["sequence"] for line in records] == [1, 2, 3, 4]
    assert [line["level"] for line in records] == ["info", "info", "warning", "info"]
    assert telemetry.counts == {"delivered": 3, "failed": 1}


def test_terminal_gets_them_as_key_value_pairs() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    configure(stream)
    Telemetry().settled_all([("payouts", settled(attempt(1)))])
    structlog.reset_defaults()
    assert "what=attempt" in stream.getvalue()
    assert "outcome=delivered" in stream.getvalue()


def test_line_is_one_json_object(stream: io.StringIO) -> None:
    Telemetry().info(Line.STOPPED, delivered=3)
    line = json.loads(stream.getvalue())
    assert (line["what"], line["level"], line["delivered"]) == ("dispatcher.stopped", "info", 3)
    assert line["time"].endswith("Z")


def test_secret_in_a_line_is_masked(stream: io.StringIO) -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    Telemetry().warn(Line.ENDPOINT_WAITING, reason=f"cannot use {secret}")
    Telemetry().crashed("claim", ValueError(secret))
    assert "MfKQ9r8" not in stream.getvalue()
    assert "ValueError" in stream.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_terminal_gets_key_value_pairs() -> None:
    stream = Terminal()
    configure(stream)
    Telemetry().info(Line.STOPPED, delivered=3)
    structlog.reset_defaults()
    assert "what=dispatcher.stopped" in stream.getvalue()
    assert "delivered=3" in stream.getvalue()


TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CANARIES = ("canary-url", "canary-body", "0189cafe", "canary-response", "canary-error")
ENDPOINT = Endpoint(
    id=1,
    name="payouts",
    url="https://canary-url.example/hook",
    allowed=(),
    connect_timeout=1,
    total_timeout=2,
    concurrency=3,
    schedule_seconds=(5,),
    order_policy=OrderPolicy.STOP,
)


def _entry(traceparent: str | None = TRACEPARENT) -> Entry:
    at = datetime(2026, 11, 2, 12, tzinfo=UTC)
    return Entry(4, 2, KEY, at, traceparent, b'{"data":"canary-body"}')


def _attempt(outcome: Outcome, status: int | None) -> Attempt:
    return Attempt(4, 2, KEY, outcome, status, 12, "canary-error", "canary-response", None)


_LINE_NAMED = re.compile(r"(?:log (?:has a )?line|log repeats|logs|[Aa] line) `([a-z_.]+)`")


def test_line_that_a_document_or_an_alert_names_exists() -> None:
    texts = [page.read_text() for page in pages()]
    texts += [path.read_text() for path in (RULES, Path(catalogue.__file__))]
    named = {name for text in texts for name in _LINE_NAMED.findall(" ".join(text.split()))}
    assert "store.away" in named
    assert named - {each.value for each in Line} == set()


def test_attempt_is_a_trace_of_its_own_linked_to_the_batch() -> None:
    with tracing() as spans:
        outer = api.get_tracer("test").start_as_current_span("around")
        with outer, attempt_span(ENDPOINT, _entry()) as span:
            span.judged(_attempt(Outcome.DELIVERED, 200))
        result = spans.ended[0]
    assert (result.name, result.kind, result.parent) == (
        "holdfast.deliver",
        api.SpanKind.CLIENT,
        None,
    )
    (link,) = result.links
    assert f"{link.context.trace_id:032x}-{link.context.span_id:016x}" == TRACEPARENT[3:-3]
    assert dict(result.attributes or {}) == {
        "messaging.system": "holdfast",
        "messaging.operation.name": "deliver",
        "messaging.operation.type": "send",
        "messaging.destination.name": "payouts",
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "holdfast.attempt": 2,
        "holdfast.outcome": "delivered",
    }
    assert result.status.status_code is api.StatusCode.UNSET


@pytest.mark.parametrize(
    ("outcome", "status"), [(Outcome.FAILED, 500), (Outcome.UNKNOWN, None), (Outcome.REFUSED, None)]
)
def test_undelivered_attempt_is_an_error(outcome: Outcome, status: int | None) -> None:
    with tracing() as spans, attempt_span(ENDPOINT, _entry()) as span:
        span.judged(_attempt(outcome, status))
    result = spans.one
    assert result.status.status_code is api.StatusCode.ERROR
    assert result.status.description is None
    assert (result.attributes or {})["error.type"] == outcome.value
    assert not any(canary in result.to_json() for canary in CANARIES)


@pytest.mark.parametrize("traceparent", [None, "", "00-nonsense", "00-" + "0" * 32 + "-01"])
def test_entry_without_a_trace_has_no_link(traceparent: str | None) -> None:
    with tracing() as spans, attempt_span(ENDPOINT, _entry(traceparent)):
        pass
    assert spans.one.links == ()


def test_what_the_block_raises_is_raised_and_not_kept() -> None:
    error = ValueError("canary-body")
    with tracing() as spans, pytest.raises(ValueError, match="canary") as raised:  # noqa: SIM117 - raised inside
        with attempt_span(ENDPOINT, _entry()):
            raise error
    assert raised.value is error
    assert list(spans.one.events) == []
    assert not any(canary in spans.one.to_json() for canary in CANARIES)


def test_span_that_is_not_sampled_is_not_exported() -> None:
    with tracing(ALWAYS_OFF) as spans, attempt_span(ENDPOINT, _entry()) as span:
        span.judged(_attempt(Outcome.DELIVERED, 200))
    assert spans.ended == []


def test_without_an_sdk_nothing_is_traced() -> None:
    before = api.get_current_span()
    with attempt_span(ENDPOINT, _entry()) as span:
        span.judged(_attempt(Outcome.DELIVERED, 200))
    assert api.get_current_span() is before


def test_dispatcher_that_starts_without_tracing_makes_no_spans() -> None:
    assert attempt_spans() is None
    with tracing():
        assert attempt_spans() is attempt_span

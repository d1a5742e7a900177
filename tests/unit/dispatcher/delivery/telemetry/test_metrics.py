"""The metrics, and that the page of metrics documents all of them."""

import re
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from holdfast.deploy.payouts.metrics import Measures as PayoutsMeasures
from holdfast.dispatcher.api.metrics import ApiMeasures
from holdfast.dispatcher.delivery.store.session import Pools
from holdfast.dispatcher.delivery.telemetry.metrics import DispatcherCollector, Measures
from holdfast.dispatcher.delivery.telemetry.server_state import ServerState, TableState
from holdfast.dispatcher.operators.common.pool import PoolCounts
from holdfast.dispatcher.shared.metrics import Histogram
from holdfast.sink.contract.states import Outcome
from tests.support.pages import ROOT

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
    for counter in (measures.unknown, measures.fenced, measures.rescued, measures.dead):
        counter[by] += 1
    for counter in (measures.other_keys, measures.stale, measures.barred, measures.windows_shrunk):
        counter[by] += 1
    measures.attempt_seconds.observe(0.003, ("payouts", "delivered"))
    measures.end_to_end_seconds.observe(4, by)
    for histogram in (measures.claim_seconds, measures.claim_lanes, measures.settle_seconds):
        histogram.observe(1)
    measures.due, measures.oldest_due_age_seconds = {"payouts": 5}, {"payouts": 61.5}
    measures.oldest_undelivered_age_seconds = {"payouts": 901.5}
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

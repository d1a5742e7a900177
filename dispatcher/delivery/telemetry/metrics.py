"""The metrics of a dispatcher, for Prometheus. docs/reference/metrics.md has each; a test compares.

Counting is plain arithmetic in the event loop's thread; families are made at each scrape.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Protocol

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from holdfast.dispatcher.delivery.telemetry.server_state import ServerState, families
from holdfast.dispatcher.shared.clock import seconds
from holdfast.dispatcher.shared.metrics import ATTEMPT_SECONDS, Histogram, Labels
from holdfast.sink.contract import standard_error
from holdfast.sink.contract.states import BreakerState, Outcome

END_TO_END_SECONDS = (
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    15.0,
    60.0,
    300.0,
    1800.0,
    7200.0,
    86400.0,
)
STORE_SECONDS = ATTEMPT_SECONDS
LANES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0)


class Pools(Protocol):
    """The database connections of this process."""

    @property
    def connections(self) -> int:
        """Number of open connections."""
        ...

    @property
    def waited_seconds(self) -> float:
        """Total time that callers waited for a connection."""
        ...


def exported(name: str, help_text: str) -> Mapping[str, str]:
    """Return what makes a field a counter by endpoint: it begins at 0, and is exported so."""
    return {"name": name, "help": help_text}


@dataclass(slots=True)
class Measures:
    """Current values. Written by one thread, read by any."""

    attempts: Counter[Labels] = field(default_factory=Counter)
    """Recorded attempts by endpoint and outcome."""

    unknown: Counter[Labels] = field(
        default_factory=Counter,
        metadata=exported("unknown_outcomes", "Attempts that may have arrived"),
    )
    """Includes those that a rescue recorded."""

    fenced: Counter[Labels] = field(
        default_factory=Counter,
        metadata=exported("fenced_writes", "Results later than their lease"),
    )
    rescued: Counter[Labels] = field(
        default_factory=Counter,
        metadata=exported("leases_expired", "Attempts that ended with their lease"),
    )
    dead: Counter[Labels] = field(
        default_factory=Counter, metadata=exported("dead", "Dead letters")
    )
    other_keys: Counter[Labels] = field(
        default_factory=Counter, metadata=exported("other_keys", "Answers about another key")
    )
    stale: Counter[Labels] = field(
        default_factory=Counter, metadata=exported("stale_answers", "First attempts answered stale")
    )
    barred: Counter[Labels] = field(
        default_factory=Counter,
        metadata=exported("addresses_refused", "Attempts that the address guard refused"),
    )
    windows_shrunk: Counter[Labels] = field(
        default_factory=Counter, metadata=exported("key_windows_shrunk", "Too short key windows")
    )
    replay_items: int = 0
    attempt_seconds: Histogram = field(default_factory=partial(Histogram, ATTEMPT_SECONDS))
    end_to_end_seconds: Histogram = field(default_factory=partial(Histogram, END_TO_END_SECONDS))
    claim_seconds: Histogram = field(default_factory=partial(Histogram, STORE_SECONDS))
    claim_lanes: Histogram = field(default_factory=partial(Histogram, LANES))
    settle_seconds: Histogram = field(default_factory=partial(Histogram, STORE_SECONDS))
    clock_skew_seconds: float | None = None
    due: Mapping[str, int] = field(default_factory=dict)
    oldest_due_age_seconds: Mapping[str, float] = field(default_factory=dict)
    oldest_undelivered_age_seconds: Mapping[str, float] = field(default_factory=dict)
    on_hold: Mapping[str, int] = field(default_factory=dict)
    breakers: Mapping[str, str] = field(default_factory=dict)
    partition_days_ahead: int | None = None
    server: ServerState = field(default_factory=ServerState)
    answered_at: float = field(default_factory=seconds)
    """When the database answered last, by `seconds`; at first, when this process began."""

    def counters(self) -> Iterator[tuple[str, str, Counter[Labels]]]:
        """Yield the name, the help text and the values of each counter by endpoint."""
        for each in fields(self):
            if each.metadata:
                yield each.metadata["name"], each.metadata["help"], getattr(self, each.name)

    def initialise(self, endpoints: Iterable[str]) -> None:
        """Start every counter of these at 0: Prometheus sees no increase from an absent series."""
        for name in endpoints:
            for _, _, counter in self.counters():
                counter.setdefault((name,), 0)
            for outcome in Outcome:
                self.attempts.setdefault((name, outcome.value), 0)


class DispatcherCollector(Collector):
    """Exports `measures` to Prometheus."""

    def __init__(
        self,
        measures: Measures,
        *,
        counts: Mapping[str, int],
        in_flight: Callable[[], int],
        pool: Callable[[], Pools],
    ) -> None:
        """`counts` are the log's, `in_flight` the lanes being sent, `pool` the connections."""
        self._measures = measures
        self._counts = counts
        self._in_flight = in_flight
        self._pool = pool

    def collect(self) -> Iterator[Metric]:
        """Yield every family, including those without a value."""
        yield from self._counters()
        yield from self._histograms()
        yield from self._gauges()
        yield from families(self._measures.server)

    def _counters(self) -> Iterator[Metric]:
        m = self._measures
        yield _counter("attempts", "Recorded attempts", m.attempts, ["endpoint", "outcome"])
        for name, help_text, counter in m.counters():
            yield _counter(name, help_text, counter, ["endpoint"])
        yield _counter("replay_items", "Claimed items of replays", {(): m.replay_items}, [])
        for name, help_text, key in (
            ("dropped_results", "Results dropped during an outage", "dropped_results"),
            ("sequence_gaps", "Claims that found a missing entry", "gaps"),
            ("crashes", "Internal errors", "crashed"),
        ):
            yield _counter(name, help_text, {(): self._counts.get(key, 0)}, [])
        output = standard_error.installed()
        lost: Mapping[Labels, float] = {(): output.dropped if output else 0}
        yield _counter("log_lines_dropped", "Lines of the log not written", lost, [])
        waited = self._pool().waited_seconds
        yield _counter("db_pool_wait_seconds", "Waits for a connection", {(): waited}, [])

    def _histograms(self) -> Iterator[Metric]:
        m = self._measures
        for name, help_text, histogram, labels in (
            ("attempt", "Duration of an attempt", m.attempt_seconds, ["endpoint", "outcome"]),
            ("end_to_end", "From an entry to its 2xx", m.end_to_end_seconds, ["endpoint"]),
            ("claim", "Duration of a claim", m.claim_seconds, []),
            ("settle", "Duration of a settlement", m.settle_seconds, []),
        ):
            family = HistogramMetricFamily(f"{_PREFIX}{name}_seconds", help_text, labels=labels)
            yield histogram.add_to(family)
        lanes = HistogramMetricFamily(
            f"{_PREFIX}claim_batch_size", "Lanes taken by a claim", labels=[]
        )
        yield m.claim_lanes.add_to(lanes)

    def _gauges(self) -> Iterator[Metric]:
        m, by = self._measures, ["endpoint"]
        for name, help_text, values in (
            ("due", "Due lanes", m.due),
            (
                "oldest_due_age_seconds",
                "Age of the lane that has been due longest",
                m.oldest_due_age_seconds,
            ),
            (
                "oldest_undelivered_age_seconds",
                "Age of the oldest undelivered entry, whatever it waits for",
                m.oldest_undelivered_age_seconds,
            ),
            ("subjects_on_hold", "Subjects that an operator holds", m.on_hold),
        ):
            yield _gauge(name, help_text, _labelled(values), by)
        breakers: Mapping[Labels, float] = {
            (name, state.value): float(breaker == state)
            for name, breaker in m.breakers.items()
            for state in BreakerState
        }
        yield _gauge("breaker_state", "1 for the current state", breakers, ["endpoint", "state"])
        yield _gauge("inflight", "Lanes being sent", {(): self._in_flight()}, [])
        yield _gauge("db_connections", "Open connections", {(): self._pool().connections}, [])
        yield _gauge(
            "clock_skew_seconds",
            "Offset of this host's clock from the database's",
            _optional(m.clock_skew_seconds),
            [],
        )
        age = _optional(seconds() - m.answered_at)
        yield _gauge("database_answer_age_seconds", "Time since the database answered", age, [])
        days = _optional(m.partition_days_ahead)
        yield _gauge("partition_days_ahead", "Days ahead that have partitions", days, [])


_PREFIX = "holdfast_"


def _optional(value: float | None) -> Mapping[Labels, float]:
    return {} if value is None else {(): value}


def _labelled(values: Mapping[str, float]) -> Mapping[Labels, float]:
    return {(name,): value for name, value in values.items()}


def _counter(
    name: str, help_text: str, values: Mapping[Labels, float], labels: Iterable[str]
) -> CounterMetricFamily:
    family = CounterMetricFamily(f"{_PREFIX}{name}", help_text, labels=list(labels))
    for each, value in list(values.items()):
        family.add_metric(each, value)
    return family


def _gauge(
    name: str, help_text: str, values: Mapping[Labels, float], labels: Iterable[str]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"{_PREFIX}{name}", help_text, labels=list(labels))
    for each, value in list(values.items()):
        family.add_metric(each, value)
    return family

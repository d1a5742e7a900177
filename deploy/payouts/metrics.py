"""The service's metrics for Prometheus. docs/reference/metrics.md has each; a test compares."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.deploy.payouts.holds import Effect
from holdfast.deploy.payouts.order import Action
from holdfast.sink.contract.wire import ReceiptOutcome

REFUSED = "refused"
"""The outcome of a signed delivery that is no payout hold."""


class Measures:
    """Counts of this process. Written only by the event loop's thread."""

    def __init__(self) -> None:
        # Prometheus sees no increase from an absent series.
        self.answers: Counter[str] = Counter({"200": 0, "401": 0})
        self.deliveries: Counter[str] = Counter(dict.fromkeys((*ReceiptOutcome, REFUSED), 0))
        self.actions: Counter[tuple[str, ...]] = Counter(
            {(action.value, effect.value): 0 for action in Action for effect in Effect}
        )

    def text(self, held: int | None) -> bytes:
        """Return all metrics; without `held` there is no gauge of it."""
        registry = CollectorRegistry()
        registry.register(_Collector(self, held))
        return generate_latest(registry)


class Answered:
    """ASGI middleware that counts the answers at `path` by status."""

    def __init__(self, app: ASGIApp, measures: Measures, path: str) -> None:
        self._app = app
        self._measures = measures
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request and count its status; a sender that left gets none."""
        if scope["type"] != "http" or scope["path"] != self._path:
            await self._app(scope, receive, send)
            return

        answered = False

        async def answer(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = True
                self._measures.answers[str(message["status"])] += 1
            await send(message)

        try:
            await self._app(scope, receive, answer)
        except Exception:
            # Starlette answers 500 outside of all middleware.
            self._measures.answers["500"] += not answered
            raise


class _Collector(Collector):
    def __init__(self, measures: Measures, held: int | None) -> None:
        self._measures = measures
        self._held = held

    def collect(self) -> Iterator[Metric]:
        m = self._measures
        yield _counter("answers", "Answers to webhooks", ["status"], _named(m.answers))
        yield _counter("deliveries", "Verified deliveries", ["outcome"], _named(m.deliveries))
        yield _counter("actions", "Orders carried out", ["action", "effect"], m.actions)
        held = GaugeMetricFamily("holdfast_payouts_held", "Merchants held", labels=[])
        if self._held is not None:
            held.add_metric([], self._held)
        yield held


def _named(values: Counter[str]) -> Counter[tuple[str, ...]]:
    return Counter({(name,): count for name, count in values.items()})


def _counter(
    name: str, help_text: str, labels: list[str], values: Counter[tuple[str, ...]]
) -> CounterMetricFamily:
    family = CounterMetricFamily(f"holdfast_payouts_{name}", help_text, labels=labels)
    for each, count in values.items():
        family.add_metric(each, count)
    return family

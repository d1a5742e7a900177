"""The service's metrics for Prometheus. docs/reference/metrics.md has each; a test compares."""

from itertools import product
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    disable_created_metrics,
    generate_latest,
)
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.deploy.payouts.holds import Effect
from holdfast.deploy.payouts.order import Action
from holdfast.sink.contract.wire import ReceiptOutcome

REFUSED = "refused"
"""The outcome of a signed delivery that is no payout hold."""


class Measures:
    """Counts of this process."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._counts, self._states = CollectorRegistry(), CollectorRegistry()
        named: dict[str, Any] = {"namespace": "holdfast_payouts", "registry": self._counts}
        self.answers = Counter("answers", "Answers to webhooks", ["status"], **named)
        self.deliveries = Counter("deliveries", "Verified deliveries", ["outcome"], **named)
        self.actions = Counter("actions", "Orders carried out", ["action", "effect"], **named)
        self._held = Gauge("holdfast_payouts_held", "Merchants held", registry=self._states)
        # Prometheus sees no increase from an absent series.
        for status in ("200", "401"):
            self.answers.labels(status)
        for outcome in (*ReceiptOutcome, REFUSED):
            self.deliveries.labels(outcome)
        for action, effect in product(Action, Effect):
            self.actions.labels(action.value, effect.value)

    def text(self, held: int | None) -> bytes:
        """Return all metrics; without `held` there is no gauge of it."""
        counts = generate_latest(self._counts)
        if held is None:
            return counts
        self._held.set(held)
        return counts + generate_latest(self._states)


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
                self._measures.answers.labels(str(message["status"])).inc()
            await send(message)

        try:
            await self._app(scope, receive, answer)
        except Exception:
            # Starlette answers 500 outside of all middleware.
            self._measures.answers.labels("500").inc(not answered)
            raise

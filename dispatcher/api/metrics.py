"""The API's Prometheus metrics. docs/reference/metrics.md documents each; a test compares.

No label contains a token, a key or a person's name; a route is named by its pattern.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from http import HTTPStatus

from fastapi import FastAPI
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.dispatcher.operators.common.pool import PoolCounts
from holdfast.dispatcher.shared.clock import seconds
from holdfast.dispatcher.shared.metrics import ATTEMPT_SECONDS, Histogram, Labels

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER = "other"
"""Stands for a method or path that the API does not know."""

_REFUSED: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: "token",
    HTTPStatus.FORBIDDEN: "role",
}


class ApiMeasures:
    """Current values of all metrics. Written only by the event loop's thread."""

    def __init__(self) -> None:
        self.requests: Counter[Labels] = Counter()
        """By method, route and status."""
        self.refused: Counter[Labels] = Counter({(missing,): 0 for missing in _REFUSED.values()})
        """By what was missing: a token or the role."""
        self.request_seconds = Histogram(ATTEMPT_SECONDS)
        self.in_flight = 0

    def answered(self, method: str, route: str, status: int, took: float) -> None:
        """Record an answered request."""
        self.requests[method, route, str(status)] += 1
        self.request_seconds.observe(took, (method, route))
        if missing := _REFUSED.get(status):
            self.refused[(missing,)] += 1


class Measured:
    """ASGI middleware that measures the application inside it."""

    def __init__(self, app: ASGIApp, measures: ApiMeasures, prefix: str) -> None:
        """`prefix` is the API's, which the paths of its routes may lack."""
        self._app = app
        self._measures = measures
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request and record it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = seconds(), HTTPStatus.INTERNAL_SERVER_ERROR.value

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._measures.in_flight += 1
        try:
            await self._app(scope, receive, answer)
        finally:
            self._measures.in_flight -= 1
            method = scope["method"] if scope["method"] in METHODS else OTHER
            self._measures.answered(method, self._route(scope), status, seconds() - began)

    def _route(self, scope: Scope) -> str:
        path: str | None = getattr(scope.get("route"), "path", None)
        if path is None:
            return OTHER
        below = scope["path"].startswith(f"{self._prefix}/") and not path.startswith(self._prefix)
        return self._prefix + path if below else path


class ApiCollector(Collector):
    """Exposes `measures` to Prometheus; `pool` returns the connection counts."""

    def __init__(self, measures: ApiMeasures, pool: Callable[[], PoolCounts]) -> None:
        self._measures = measures
        self._pool = pool

    def collect(self) -> Iterator[Metric]:
        """Yield every metric family, including those without values."""
        labels = ["method", "route", "status"]
        requests = CounterMetricFamily("holdfast_api_requests", "Requests answered", labels=labels)
        for each, count in list(self._measures.requests.items()):
            requests.add_metric(each, count)
        yield requests
        refused = CounterMetricFamily(
            "holdfast_api_auth_failures",
            "Requests refused for a missing token or role",
            labels=["missing"],
        )
        for each, count in list(self._measures.refused.items()):
            refused.add_metric(each, count)
        yield refused
        took = HistogramMetricFamily(
            "holdfast_api_request_seconds", "Request duration", labels=labels[:2]
        )
        yield self._measures.request_seconds.add_to(took)
        pool = self._pool()
        for name, told, value in (
            ("requests_in_flight", "Requests in flight", self._measures.in_flight),
            ("db_connections", "Open database connections", pool.connections),
            ("db_connections_idle", "Idle database connections", pool.idle),
            ("db_waiting", "Requests waiting for a database connection", pool.waiting),
            (
                "database_answer_age_seconds",
                "Time since the database answered",
                pool.answer_age_seconds,
            ),
        ):
            yield GaugeMetricFamily(f"holdfast_api_{name}", told, value)


def install(app: FastAPI, pool: Callable[[], PoolCounts], prefix: str) -> None:
    """Measure every request of `app`, and serve the metrics at /metrics."""
    measures = ApiMeasures()
    registry = CollectorRegistry()
    registry.register(ApiCollector(measures, pool))

    @app.get("/metrics", include_in_schema=False)
    def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    app.add_middleware(Measured, measures=measures, prefix=prefix)

"""The API's Prometheus metrics. docs/reference/metrics.md documents each; a test compares.

No label contains a token, a key or a person's name; a route is named by its pattern.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.responses import Response
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.dispatcher.operators.common.pool import PoolCounts
from holdfast.dispatcher.shared.clock import seconds
from holdfast.dispatcher.shared.metrics import ATTEMPT_SECONDS

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER = "other"
"""Stands for a method or path that the API does not know."""

_REFUSED: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: "token",
    HTTPStatus.FORBIDDEN: "role",
}


class ApiMeasures:
    """All metrics of one application, in a registry of its own."""

    def __init__(self, pool: Callable[[], PoolCounts]) -> None:
        """`pool` returns the connection counts."""
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        named: dict[str, Any] = {"namespace": "holdfast_api", "registry": self.registry}
        labels = ["method", "route", "status"]
        self._requests = Counter("requests", "Requests answered", labels, **named)
        self._refused = Counter(
            "auth_failures", "Requests refused for a missing token or role", ["missing"], **named
        )
        for missing in _REFUSED.values():
            self._refused.labels(missing)
        self._seconds = Histogram(
            "request_seconds", "Request duration", labels[:2], buckets=ATTEMPT_SECONDS, **named
        )
        self.in_flight = Gauge("requests_in_flight", "Requests in flight", **named)

        def show(name: str, told: str, value: Callable[[PoolCounts], float]) -> None:
            Gauge(name, told, **named).set_function(lambda: value(pool()))

        show("db_connections", "Open database connections", lambda each: each.connections)
        show("db_connections_idle", "Idle database connections", lambda each: each.idle)
        show("db_waiting", "Requests waiting for a database connection", lambda each: each.waiting)
        show(
            "database_answer_age_seconds",
            "Time since the database answered",
            lambda each: each.answer_age_seconds,
        )

    def answered(self, method: str, route: str, status: int, took: float) -> None:
        """Record an answered request."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(took)
        if missing := _REFUSED.get(status):
            self._refused.labels(missing).inc()


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

        try:
            with self._measures.in_flight.track_inprogress():
                await self._app(scope, receive, answer)
        finally:
            method = scope["method"] if scope["method"] in METHODS else OTHER
            self._measures.answered(method, self._route(scope), status, seconds() - began)

    def _route(self, scope: Scope) -> str:
        path: str | None = getattr(scope.get("route"), "path", None)
        if path is None:
            return OTHER
        below = scope["path"].startswith(f"{self._prefix}/") and not path.startswith(self._prefix)
        return self._prefix + path if below else path


def install(app: FastAPI, pool: Callable[[], PoolCounts], prefix: str) -> None:
    """Measure every request of `app`, and serve the metrics at /metrics."""
    measures = ApiMeasures(pool)

    @app.get("/metrics", include_in_schema=False)
    def metrics() -> Response:
        return Response(generate_latest(measures.registry), media_type=CONTENT_TYPE_LATEST)

    app.add_middleware(Measured, measures=measures, prefix=prefix)

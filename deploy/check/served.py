"""The port and the paths that a command serves: what probes and health checks may ask."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import Metric
from prometheus_client.registry import Collector

from holdfast.deploy.check.commands import options_of
from holdfast.deploy.payouts.app import build
from holdfast.dispatcher.api.app import application
from holdfast.dispatcher.api.serving import STOP_SECONDS
from holdfast.dispatcher.api.settings import ApiSettings
from holdfast.dispatcher.delivery.health import Health
from holdfast.dispatcher.delivery.service import SETTLE_SECONDS
from holdfast.dispatcher.delivery.settings import address
from holdfast.dispatcher.delivery.web import app
from holdfast.receiver import Inbox

HEALTH = ("python", "-m", "holdfast.deploy.images.health")

LOOPBACK = {"127.0.0.1", "localhost", "::1"}

STOP_MARGIN_SECONDS = 5.0

BATCH_SECONDS = 300.0
"""What a stop of the job may take while Postgres is away (docs/spark/exposure-job.md)."""


@dataclass(frozen=True)
class Served:
    """What one command serves, and how long its stop takes at most."""

    host: str
    port: int
    paths: frozenset[str]
    stop_seconds: float

    def faults(self, path: str, port: int | None) -> Iterator[str]:
        """Yield what is wrong with a question for `path` at `port`; None: an unknown name."""
        if port != self.port:
            yield f"asks port {port}, and the command listens on {self.port}"
        if path not in self.paths:
            yield f"asks {path}, which the command does not serve"


def served(words: Sequence[str]) -> Served | None:
    """Return what the arguments of `holdfast` serve; None for nothing, or for no command."""
    try:
        options = options_of(words)
    except ValueError:
        return None
    kinds: Mapping[tuple[str, ...], Callable[[dict[str, Any]], Served | None]] = {
        ("dispatch",): _dispatcher,
        ("api", "serve"): _api,
        ("job", "run"): _job,
        ("payouts", "serve"): _payouts,
    }
    kind = kinds.get(tuple(words[:2])) or kinds.get(tuple(words[:1]))
    return kind(options) if kind else None


def health_target(words: Sequence[str]) -> tuple[str, int | None] | None:
    """Return path and port that a health check of the images asks; None for another command."""
    if tuple(words[:-1]) != HEALTH:
        return None
    parts = urlsplit(words[-1])
    return parts.path, parts.port


def _dispatcher(options: dict[str, Any]) -> Served | None:
    if not options["listen"]:
        return None
    host, port = address(options["listen"])
    stop = options["stop_seconds"] + SETTLE_SECONDS
    return Served(host, port, _of_the_dispatcher(), stop)


def _api(options: dict[str, Any]) -> Served:
    return Served(options["host"], options["port"], _of_the_api(), STOP_SECONDS)


def _job(options: dict[str, Any]) -> Served | None:
    port = options["metrics_port"]
    if not port:
        return None
    return Served(options["metrics_host"], port, frozenset({"/metrics"}), BATCH_SECONDS)


def _payouts(options: dict[str, Any]) -> Served:
    return Served(options["host"], options["port"], _of_the_payouts(), 0)


class _Nothing(Collector):
    def collect(self) -> Iterable[Metric]:
        return ()


@cache
def _of_the_dispatcher() -> frozenset[str]:
    """Ask the real application, which answers 404 for what it does not serve."""
    answer = app(Health(), _Nothing())
    paths = set()
    for path in ("/healthz", "/healthz/live", "/healthz/ready", "/metrics"):
        heads: list[str] = []
        environ = {"PATH_INFO": path, "REQUEST_METHOD": "GET", "QUERY_STRING": ""}
        for _ in answer(environ, lambda status, *_, heads=heads: heads.append(status)):
            pass
        if not heads[0].startswith("404"):
            paths.add(path)
    return frozenset(paths)


@cache
def _of_the_api() -> frozenset[str]:
    return frozenset(_paths(application(ApiSettings("")).routes))


@cache
def _of_the_payouts() -> frozenset[str]:
    return frozenset(_paths(build("", Inbox(), []).routes))


def _paths(routes: Iterable[Any]) -> Iterator[str]:
    return (route.path for route in routes if hasattr(route, "path"))

"""Each alert of the API is fired by real requests, in a real Prometheus."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import psycopg
import pytest

from tests.support.console.admin_api import Api, serving
from tests.support.monitoring.prometheus import MISSING, Watcher, program

pytestmark = [
    pytest.mark.rest,
    pytest.mark.skipif(program("prometheus") is None, reason=MISSING.format("prometheus")),
]

GUESSES = 60
REQUESTS = 4


def target(api: Api) -> str:
    return str(httpx.URL(api.url).netloc, "ascii")


@contextmanager
def locked(dsn: str, table: str) -> Iterator[None]:
    """Let nobody read a table until the block ends."""
    with psycopg.connect(dsn) as connection:
        connection.execute(f"LOCK TABLE holdfast.{table} IN ACCESS EXCLUSIVE MODE".encode())
        yield
        connection.rollback()


def test_guessed_tokens_fire_the_alert_of_refused_tokens(dsn: str, watch: Watcher) -> None:
    with serving(dsn) as api:
        seen = watch(target(api))
        seen.sees("holdfast_api_auth_failures_total")
        seen.none_fires("HoldfastApiTokensRefused")
        for _ in range(GUESSES):
            assert api.ask("GET", "/status", None).status_code == httpx.codes.UNAUTHORIZED
        seen.fires("HoldfastApiTokensRefused")


def test_alert_of_waiting_requests_is_fired_by_a_locked_table(dsn: str, watch: Watcher) -> None:
    with serving(dsn, connections=1) as api, ThreadPoolExecutor(REQUESTS) as clients:
        seen = watch(target(api))
        seen.sees("holdfast_api_db_waiting")
        seen.none_fires("HoldfastApiWaits")
        with locked(dsn, "endpoint"):
            requests = [clients.submit(api.ask, "GET", "/endpoints") for _ in range(REQUESTS)]
            seen.fires("HoldfastApiWaits")
        assert all(each.result() for each in requests)

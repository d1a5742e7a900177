"""Fixtures that every level of tests shares: a real Postgres, one fresh database a test."""

import os
import secrets
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from psycopg.conninfo import make_conninfo

from tests.support.job.class_archive import SHORT_LIVED
from tests.support.servers.databases import (
    PREPARED,
    PREPARED_TEMPLATE,
    create,
    dropping_behind,
    template_on,
)

if TYPE_CHECKING:  # a unit test need not wait for what it does not use
    from tests.support.dispatch.webhooks import WebhookReceiver
    from tests.support.job.decisions import Decisions
    from tests.support.job.driver import MakeDriver
    from tests.support.world import World

pytest_plugins = ["tests.support.kafka.fixtures"]

# The job's own JVM, then whatever else Spark's scripts start, then the launcher that they ask.
for name in ("HOLDFAST_SPARK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
    os.environ.setdefault(name, SHORT_LIVED)

# Hundreds of processes are started. Each would compile every module that it imports, a second of
# processor time, where the environment forbids to keep what is compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# How long an example takes says how busy the machine is, and nothing else.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_configure() -> None:
    """Let Ctrl-C reach what the tests start: a child inherits it if SIGINT is ignored here.

    A shell that runs the tests in the background has them ignore it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail what shows a guarantee where it would be skipped."""
    report = yield
    if report.skipped and item.get_closest_marker("guarantee"):
        report.outcome = "failed"
        report.longrepr = f"shows a guarantee, and is skipped: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def server_dsn() -> Iterator[str]:
    """DSN of a server on which databases may be created: HOLDFAST_TEST_DSN, or an embedded one."""
    dsn_given = os.environ.get("HOLDFAST_TEST_DSN")
    if dsn_given:
        yield dsn_given
        return
    from tests.support.servers.databases import chosen_server

    with chosen_server() as server:
        yield server.dsn


@pytest.fixture(scope="session")
def template_database(server_dsn: str) -> Iterator[str]:
    """Name of a database that was migrated today; each test gets a copy of it."""
    if os.environ.get(PREPARED):
        yield PREPARED_TEMPLATE
        return
    with template_on(server_dsn) as name:
        yield name


@pytest.fixture(scope="session")
def drop_database(server_dsn: str) -> Iterator[Callable[[str], None]]:
    """Drop a database behind the tests that follow."""
    is_external = "HOLDFAST_TEST_DSN" in os.environ
    with dropping_behind(server_dsn, all_of_them=is_external) as drop:
        yield drop


@pytest.fixture
def make_database(
    server_dsn: str, drop_database: Callable[[str], None]
) -> Iterator[Callable[[str | None], str]]:
    """Make databases, empty or from a template; they are dropped after the test."""
    names: list[str] = []

    def make(template: str | None = None) -> str:
        name = f"holdfast_test_{secrets.token_hex(6)}"
        create(server_dsn, name, template)
        names.append(name)
        return make_conninfo(server_dsn, dbname=name)

    yield make
    for name in names:
        drop_database(name)


@pytest.fixture
def dsn(make_database: Callable[[str | None], str], template_database: str) -> str:
    """DSN of a fresh, migrated database; connects as the server's superuser."""
    return make_database(template_database)


@pytest.fixture
def db(dsn: str) -> Iterator[psycopg.Connection]:
    """An autocommit connection to the test's database, for arranging and asserting."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def decisions(dsn: str) -> Iterator["Decisions"]:
    """A stream in the test's database."""
    from tests.support.job.decisions import Decisions

    with Decisions(dsn) as decisions:
        yield decisions


@pytest.fixture
def driver(dsn: str) -> Iterator["MakeDriver"]:
    """Start drivers: `driver()` is a new checkpoint, `driver(query_id=...)` a restart from one."""
    from tests.support.job.driver import Driver

    started: list[Driver] = []

    def start(given_dsn: str | None = None, **settings: Any) -> Driver:
        started.append(Driver(given_dsn or dsn, **settings))
        return started[-1]

    yield start
    for each in started:
        each.sink.close()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator["WebhookReceiver"]:
    """A receiver, whose secret is in this process's environment."""
    from tests.support.dispatch import dispatching, sender, webhooks

    monkeypatch.setenv(dispatching.SECRET, sender.secret_text())
    with webhooks.listening() as receiver:
        yield receiver


@pytest.fixture
def world(request: pytest.FixtureRequest) -> "World":
    """The test's database and what stands around it, each made when it is first used."""
    from tests.support.world import World

    return World(request)


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of tests and fixtures that are coroutines."""
    return "asyncio"

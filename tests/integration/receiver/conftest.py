"""The service and its tables: a module shares them, each test finds them empty."""

from collections.abc import Iterator

import psycopg
import pytest

from holdfast.deploy.payouts.database import create_tables
from holdfast.receiver import Inbox
from tests.support.dispatch.payouts import Payouts, empty_database, payouts


@pytest.fixture(scope="module")
def database(server_dsn: str) -> Iterator[str]:
    """DSN of a database that holds nothing of Holdfast's."""
    with empty_database(server_dsn) as dsn:
        yield dsn


@pytest.fixture(scope="module")
def running(database: str) -> Iterator[Payouts]:
    """A service that a module's tests share, because a process takes a second to start."""
    with payouts(database) as started:
        yield started


@pytest.fixture
def payouts_dsn(database: str) -> str:
    """DSN of a database with the service's tables, as empty as after its first start."""
    with psycopg.connect(database) as connection:
        connection.execute("DROP SCHEMA IF EXISTS payouts CASCADE")
    create_tables(database, Inbox())
    return database


@pytest.fixture
def service(running: Payouts, payouts_dsn: str) -> Payouts:
    """The running service on empty tables."""
    assert running.dsn == payouts_dsn
    return running

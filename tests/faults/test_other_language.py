"""A server that does not speak English: what is decided by its errors is decided by SQLSTATE.

Real: a Postgres of the machine whose messages are Russian, severities included; dispatcher, sink
and receiver. The wheel's Postgres has no other language.
"""

import os
import subprocess
import sys
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.errors import AccessDenied, SinkUnavailable
from holdfast.sink.transaction.database import Timeouts
from tests.support.dispatch.dispatching import add_endpoint, dispatching
from tests.support.dispatch.sender import decision
from tests.support.job.decisions import Decisions
from tests.support.job.driver import Driver
from tests.support.servers.databases import (
    CHOSEN,
    LANGUAGE,
    SYSTEM,
    copy_of,
    speaking,
    speaks,
    template_on,
)
from tests.support.world import World

pytestmark = pytest.mark.faults

RUSSIAN = "ru"
PROGRAMS = next((each for each in SYSTEM.glob("*/bin") if speaks(each, RUSSIAN)), None)

needs_russian = pytest.mark.skipif(
    PROGRAMS is None,
    reason=f"no Postgres in {SYSTEM} has messages in Russian: apt-get install postgresql"
    " (and dpkg must not leave out /usr/share/locale)",
)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    assert PROGRAMS is not None
    with speaking(RUSSIAN, PROGRAMS) as server:
        yield server.dsn


@pytest.fixture(scope="module")
def russian(server: str) -> Iterator[str]:
    """DSN of a migrated database."""
    with template_on(server) as template, copy_of(server, template) as dsn:
        yield dsn


@needs_russian
def test_changed_plan_ends_no_dispatcher_of_a_russian_server(world: World, russian: str) -> None:
    with (
        psycopg.connect(russian, autocommit=True) as db,
        Decisions(russian) as decisions,
        dispatching(russian, world.tmp_path / "log") as running,
    ):
        with pytest.raises(psycopg.errors.SyntaxError, match="ошибка синтаксиса"):
            db.execute("selec")
        add_endpoint(db, world.receiver.url)
        decisions.write("m_1")
        running.until(lambda: len(world.receiver.seen) == 1)
        db.execute("ALTER TABLE holdfast.batch ALTER entry_count TYPE integer")
        decisions.write("m_2")
        running.until(lambda: len(world.receiver.seen) == 2)
        running.until(lambda: running.lines("store.back"))
        running.terminate()
        assert running.ends() == ExitCode.OK, running.text()
        assert running.lines("loop.crashed") == []


@needs_russian
@pytest.mark.parametrize(
    "wrong", [{"dbname": "nowhere"}, {"password": "wrong"}, {"user": "nobody"}]
)
def test_refusal_of_a_russian_server_is_known(russian: str, wrong: dict[str, str]) -> None:
    sink = Driver(make_conninfo(russian, **wrong), timeouts=Timeouts(deadline_seconds=0.3))
    with pytest.raises(AccessDenied):
        sink.batch(0, decision())


@needs_russian
def test_server_without_a_free_connection_is_unavailable(russian: str) -> None:
    """The server answers with a FATAL error too, and accepts the sink as soon as it can."""
    with psycopg.connect(russian, autocommit=True) as db:
        db.execute("DROP ROLE IF EXISTS app")
        db.execute("CREATE ROLE app LOGIN PASSWORD 'app' CONNECTION LIMIT 0")
    sink = Driver(
        make_conninfo(russian, user="app", password="app"), timeouts=Timeouts(deadline_seconds=0.3)
    )
    with pytest.raises(SinkUnavailable):
        sink.batch(0, decision())


@needs_russian
@pytest.mark.long
@pytest.mark.timeout(1500)
def test_dispatchers_tests_pass_on_a_russian_server() -> None:
    environment = os.environ | {CHOSEN: str(PROGRAMS), LANGUAGE: RUSSIAN}
    environment.pop("HOLDFAST_TEST_DSN", None)
    command = [sys.executable, "-m", "pytest", "-q", "tests/integration/dispatcher"]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]

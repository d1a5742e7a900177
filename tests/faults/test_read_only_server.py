"""A server that became read-only: what is alive is called alive, and what cannot write says that.

Real: Postgres, the dispatcher in its own process, the commands.
"""

import json
from typing import Any

import httpx
import psycopg
import pytest
from psycopg import sql

from holdfast.deploy.local.ports import free_port
from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.world import World

pytestmark = pytest.mark.faults

AGED = "UPDATE holdfast.dispatcher_instance SET heartbeat_at = now() - interval '10 minutes'"
"""As after ten minutes without a heartbeat."""


def _set_read_only(db: psycopg.Connection, value: str) -> None:
    """Make the database read-only for each session from now on; `db` is older, and writes."""
    alter = sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = {}")
    db.execute(alter.format(sql.Identifier(db.info.dbname), sql.SQL(value)))
    db.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name LIKE 'holdfast-dispatcher%'"
    )


def _json_of(dsn: str, *command: str) -> Any:
    return json.loads(holdfast(*command, "--json", dsn=dsn).stdout)


def test_dispatcher_of_a_read_only_server_is_alive_and_not_ready(world: World) -> None:
    listen = f"127.0.0.1:{free_port()}"

    def health(what: str) -> httpx.Response:
        return httpx.get(f"http://{listen}/healthz/{what}")

    world.endpoint()
    world.write("m_1")
    with world.dispatch("log", "--listen", listen) as running:
        running.until(lambda: len(world.receiver.seen) == 1)
        running.until(lambda: health("ready").status_code == 200)
        world.write("m_2")
        running.until(lambda: len(world.receiver.seen) == 2)
        _set_read_only(world.db, "on")
        running.until(lambda: "refuses to write" in health("ready").text)
        assert (health("ready").status_code, health("live").status_code) == (503, 200)
        world.db.execute(AGED)
        done = holdfast("status", "--json", dsn=world.dsn)
        status = json.loads(done.stdout)
        assert (done.returncode, status["read_only"]) == (ExitCode.DEGRADED, True)
        assert [each["pid"] for each in status["dispatchers"]] == [running.process.pid]
        assert [need["kind"] for need in status["needs"]] == ["cannot_write"]
        assert _json_of(world.dsn, "overview")["dispatchers_alive"] == 1
        assert [
            row["alive"] for row in _json_of(world.dsn, "dispatcher", "list")["dispatchers"]
        ] == [True]
        _set_read_only(world.db, "off")
        running.until(lambda: health("ready").status_code == 200)
        assert _json_of(world.dsn, "status")["read_only"] is False
        world.write("m_3")
        running.until(lambda: len(world.receiver.seen) == 3)
        _set_read_only(world.db, "on")
        running.until(lambda: health("ready").status_code == 503)
        running.terminate()
        running.ends()
    # It could not remove its row, and is not called alive by it.
    world.db.execute(AGED)
    assert _json_of(world.dsn, "overview")["dispatchers_alive"] == 0


def test_why_reports_a_read_only_server(world: World, db: psycopg.Connection) -> None:
    world.endpoint()
    world.write("m_1")
    _set_read_only(db, "on")
    key = world.value("SELECT key::text FROM holdfast.entry")
    (answer,) = _json_of(world.dsn, "why", f"hf_{key.replace('-', '')}")["endpoints"]
    assert answer["verdict"] == "cannot_write"

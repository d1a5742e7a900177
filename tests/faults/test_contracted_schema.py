"""A schema that serves this version no more, while its processes run.

Real: the commands in their own processes, Postgres, sockets. A forced contract revision beside a
next version is in `test_versions_together.py`; here it is the row of `alembic_version`.
"""

import os
import signal

import pytest

from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.schema import SCHEMA_REVISION
from tests.support.dispatch.webhooks import Gate, answer
from tests.support.upgrades import builds
from tests.support.waiting import eventually
from tests.support.world import World

pytestmark = [pytest.mark.rest, pytest.mark.faults]

CONTRACTED = b"UPDATE holdfast.alembic_version SET version_num = '9999', serves_from = '9998'"
UNDONE = f"""
    UPDATE holdfast.alembic_version SET version_num = '{SCHEMA_REVISION}', serves_from = '0032'
""".encode()
WITHOUT_A_TABLE = b"ALTER TABLE holdfast.replay RENAME TO replays"
WITH_THE_TABLE = b"ALTER TABLE holdfast.replays RENAME TO replay"
LOST = b"""
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'holdfast-api'
"""

SESSION = b"""
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'holdfast-api'
"""


@pytest.mark.parametrize("lacks", [False, True], ids=["statements work", "statements fail"])
def test_dispatcher_of_unsupported_version_settles_and_ends(world: World, lacks: bool) -> None:
    world.endpoint(total_timeout_ms=20_000)
    gate = Gate(answer(200))
    world.receiver.script = lambda _seen: gate
    world.write("m_1", "m_1", "m_2")
    with world.dispatch("log", "--lease-seconds", "auto") as process:
        process.until(lambda: len(world.receiver.seen) == 2)
        with world.db.transaction():
            world.db.execute(CONTRACTED)
            if lacks:
                world.db.execute(WITHOUT_A_TABLE)
        process.says("dispatcher.stopping")
        gate.open()
        assert process.ends() == ExitCode.FAILED, process.text()
        assert "upgrade this process" in process.text()
    assert [row.outcome for row in world.attempts()] == ["delivered", "delivered"]
    assert {lane.state.value for lane in world.lanes().values()} == {"idle", "due"}
    assert world.value("SELECT count(*) FROM holdfast.dispatcher_instance") == 0

    world.db.execute(UNDONE)
    if lacks:
        world.db.execute(WITH_THE_TABLE)
    world.drain()
    assert world.receiver.sequences("m_1") == [1, 2]
    assert world.receiver.sequences("m_2") == [1]
    world.check()


@pytest.mark.parametrize("lost", [False, True], ids=["open connections", "lost connections"])
def test_api_server_that_is_served_no_more_ends(world: World, lost: bool) -> None:
    with builds.server(builds.this_build(), world.dsn, "", world.tmp_path) as server:
        process = server.process
        process.until(lambda: "listening on" in process.text())
        eventually(lambda: world.db.execute("SELECT FROM holdfast.code_session").fetchall())
        world.db.execute(CONTRACTED)
        if lost:
            world.db.execute(LOST)
        assert process.ends() == ExitCode.FAILED, process.text()
        assert "upgrade this process" in process.text()


def test_api_server_ends_although_the_database_answers_nothing_any_more(world: World) -> None:
    with builds.server(builds.this_build(), world.dsn, "", world.tmp_path) as server:
        process = server.process
        process.until(lambda: "listening on" in process.text())
        eventually(lambda: world.db.execute(SESSION).fetchall())
        [(stopped,)] = world.db.execute(SESSION).fetchall()
        os.kill(stopped, signal.SIGSTOP)
        try:
            process.send(signal.SIGINT)
            assert process.ends() == 130, process.text()
        finally:
            os.kill(stopped, signal.SIGCONT)

"""The staged path loses its server between its tasks and its transaction, and inside that.

Its other faults are those of the driver path: see test_sink_faults. Real: Postgres and a SIGKILL of
its postmaster. Doubled: Spark, by a call of the function of its tasks.
"""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import holdfast.sink.transaction.writer
from holdfast.deploy.local.postgres import EmbeddedPostgres
from holdfast.migrations.upgrade import upgrade
from holdfast.sink import Written
from holdfast.sink.session import Identity
from holdfast.sink.transaction.staging import Stage, StageLost, Summary
from tests.support.dispatch.sender import table
from tests.support.job.driver import Driver, in_tasks
from tests.support.job.job_stream import contents
from tests.support.job.sink_program import rows
from tests.support.servers.databases import server_directory
from tests.support.waiting import eventually

pytestmark = pytest.mark.faults


class Server:
    """A server of its own, whose address stays when it is killed and started again."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self._server = server
        self._line = server.directory.parent / "line"
        self._point()
        self.dsn = make_conninfo(server.dsn, host=str(self._line))

    def crash(self) -> None:
        """kill -9 of the postmaster, and a start that recovers what was committed."""
        running = self._server.running
        assert running
        running.process.kill()
        eventually(lambda: not self._server.running)
        assert self._server.start() is True
        self._point()

    def _point(self) -> None:
        running = self._server.running
        assert running
        assert running.socket_folder
        self._line.unlink(missing_ok=True)
        self._line.symlink_to(running.socket_folder)


@pytest.fixture
def server() -> Iterator[Server]:
    with server_directory() as directory, EmbeddedPostgres(directory) as started:
        upgrade(started.dsn)
        yield Server(started)


def test_server_crash_behind_the_tasks_costs_only_a_replay(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spark = Driver(server.dsn, staged=True)
    spark.batch(0, *rows(0))
    batch = table(*rows(1))
    identity = Identity(spark.query_id, spark.run_id, 1)

    def crash_after(stage: Stage) -> list[Summary]:
        summaries = in_tasks(batch)(stage)
        server.crash()
        return summaries

    words = r"0 of 10 rows are.*This run did not write the batch.*replays it"
    with pytest.raises(StageLost, match=words):
        spark.sink.apply_staged(batch.schema, crash_after, identity)

    # Now inside the transaction: its second attempt finds the server again, and the stage empty.
    crashes = iter([server.crash])
    with monkeypatch.context() as patch:
        patch.setattr(
            holdfast.sink.transaction.writer,
            "failpoint",
            lambda name: name == "S2" and next(crashes, lambda: None)(),
        )
        with pytest.raises(StageLost, match=words):
            spark.sink.apply_staged(batch.schema, in_tasks(batch), identity)
    assert "trying again" in caplog.text

    assert isinstance(spark.batch(1, *rows(1)), Written)
    spark.sink.close()
    with psycopg.connect(server.dsn, autocommit=True) as db:
        assert [row[2] for row in contents(db)["batch"]] == [0, 1]
        assert db.execute("SELECT count(*) FROM holdfast.stage").fetchone() == (0,)

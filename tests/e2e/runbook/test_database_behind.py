"""The database lost its newest transactions: the page, followed after a restore and a failover.

Real: the server, its backup and archive, a standby and its promotion, dispatcher, payouts service.
The sink's library stands in for the job, with the folders of a checkpoint as Spark writes them.
"""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.sink import LedgerBehind, Written
from tests.support.documents.runbook import Reader, decided, refused_as, rows, running_site
from tests.support.job.driver import Driver
from tests.support.servers.databases import server_directory
from tests.support.servers.embedded import BackedUp

pytestmark = pytest.mark.rest

PAGE = "database-behind"
BATCHES = (
    (decided("m_482", 1, "block"), decided("m_7", 1, "block")),
    (decided("m_9", 2, "block"),),
    (decided("m_482", 3, "release"), decided("m_8", 3, "block")),
)
"""The first is written and delivered, the second written when the moment comes."""


@pytest.fixture
def server() -> Iterator[BackedUp]:
    with server_directory() as directory:
        yield BackedUp(directory)


def _restored(server: BackedUp) -> Callable[[], None]:
    now = datetime.now(UTC)
    return lambda: server.restore(now)


def _failed_over(server: BackedUp) -> Callable[[], None]:
    server.follow()
    return server.fail_over


class _Job:
    """A job with a checkpoint: `offsets/N` before a batch, `commits/N` after it."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.folder = folder
        self._dsn = dsn
        self._driver = Driver(dsn, checkpoint=str(folder))
        for name in ("offsets", "commits"):
            (folder / name).mkdir(parents=True)
        (folder / "metadata").write_text(json.dumps({"id": str(self._driver.query_id)}))

    def write(self, batch_id: int) -> None:
        (self.folder / "offsets" / str(batch_id)).write_text("v1\n{}\n")
        assert isinstance(self._driver.tables(batch_id, rows(*BATCHES[batch_id])), Written)
        (self.folder / "commits" / str(batch_id)).touch()

    def restart(self) -> None:
        self._driver.sink.close()
        self._driver = Driver(
            self._dsn, checkpoint=str(self.folder), query_id=self._driver.query_id
        )
        self._driver.sink.start(self._driver.query_id, self._driver.run_id)

    def go_back(self, batch_id: int) -> None:
        """Leave of the checkpoint what `job checkpoints restore` leaves."""
        for later in range(batch_id + 1, len(BATCHES)):
            for name in ("offsets", "commits"):
                (self.folder / name / str(later)).unlink()

    def close(self) -> None:
        self._driver.sink.close()


@pytest.mark.parametrize("prepare", [_restored, _failed_over])
def test_restored_database_repeats_and_loses_no_action(
    server: BackedUp,
    make_database: Callable[[str | None], str],
    tmp_path: Path,
    prepare: Callable[[BackedUp], Callable[[], None]],
) -> None:
    with running_site(server.dsn, make_database(None), tmp_path) as site:
        site.serve()
        site.endpoint()
        dispatcher = site.dispatch()
        job = _Job(server.dsn, tmp_path / "checkpoint")
        job.write(0)
        site.delivered()
        dispatcher.terminate()
        dispatcher.ends()
        server.backup()
        job.write(1)
        put_back = prepare(server)
        site.dispatch()
        job.write(2)
        site.delivered()
        done = site.applied()
        site.db.close()
        put_back()

        with refused_as(PAGE, LedgerBehind):
            job.restart()

        def started() -> None:
            job.go_back(int(reader._known("BATCH")))
            job.restart()
            job.write(2)

        reader = Reader(server.dsn, {"PAYOUTS_DSN": site.payouts_dsn}, {"SUBJECT": "m_482"})
        reader.finds = {"BATCH": r"older rows: --before (\d+)"}
        reader.follow(
            PAGE,
            {"the job's checkpoint is taken back to that batch, and the job is started": started},
        )
        job.close()
        assert "only_there" not in reader.shown[-3]
        assert site.applied() == done
        assert len(done) == sum(map(len, BATCHES))

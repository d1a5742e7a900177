"""The job on a file system that is not the local disk, killed.

Real: `holdfast job`, Spark, Postgres, SIGKILL and HDFS. `make test-remote` runs it; not part of
`make test`, because starting Spark again and again takes long.
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast.sink.contract.source_offsets import without_files
from tests.support.job.job_process import QUICK, JobProcess, job_process
from tests.support.job.job_stream import published
from tests.support.job.jobs import event
from tests.support.servers.hdfs import Hdfs, hdfs

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

FILES = [
    [event("e1", "12:02", 6_000_000), event("e2", "12:14", 100, "m_2")],
    [event("e3", "12:16:30", 1_000_000)],
    [event("e4", "12:40", -2_000_000)],
    [event("e5", "12:50", 9_000_000), event("e6", "13:20", 1, "m_2")],
]
LAST = len(FILES)
"""The batch without rows that closes the last windows, after one batch for each file."""

EXPECTED = [
    ("m_1", "payout_hold.block", "2024-11-04T12:15:00Z"),
    ("m_1", "payout_hold.release", "2024-11-04T12:30:00Z"),
    ("m_1", "payout_hold.block", "2024-11-04T13:00:00Z"),
    ("m_1", "payout_hold.release", "2024-11-04T13:15:00Z"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with hdfs(tmp_path_factory.mktemp("hdfs")) as started:
        yield started


@pytest.fixture
def root(cluster: Hdfs, tmp_path: Path) -> Iterator[str]:
    """A folder of the cluster for one test."""
    yield f"{cluster.uri}/{tmp_path.name}"
    cluster.delete(f"/{tmp_path.name}")


def _put(cluster: Hdfs, root: str, *numbers: int) -> None:
    for number in numbers:
        content = b"".join(line + b"\n" for line in FILES[number])
        cluster.put(f"{_path(root)}/events/{number:03}.json", content, 1_700_000_000 + number)


def _path(root: str) -> str:
    return f"/{root.rpartition('/')[2]}"


def _decisions(dsn: str) -> list[tuple[str, str, str]]:
    return [(name, type_, data["window_end"]) for name, type_, data in published(dsn)[0]]


def _finish(folder: Path, dsn: str, root: str, *options: str) -> JobProcess:
    """Run until everything is read."""
    with job_process(folder, dsn, "--available-now", *QUICK, *options, root=root) as job:
        job.wait()
    return job


def test_killed_job_continues_from_hdfs_without_repeats(
    cluster: Hdfs, root: str, dsn: str, tmp_path: Path
) -> None:
    _put(cluster, root, *range(len(FILES)))
    # Before the sink's COMMIT, after it and before Spark's; @2 is the second batch of the run.
    for point in ("S7=kill@2", "S8=kill@2", "S9=kill"):
        armed = {"HOLDFAST_FAILPOINTS": point}
        with job_process(
            tmp_path, dsn, "--available-now", *QUICK, root=root, environment=armed
        ) as job:
            assert job.wait() == -signal.SIGKILL, job.said
            job.kill()
    done = _finish(tmp_path, dsn, root)
    assert done.process.returncode == 0, done.said
    _check(cluster, root, dsn)


def test_name_node_away_in_a_batch_loses_and_repeats_nothing(
    cluster: Hdfs, root: str, dsn: str, tmp_path: Path
) -> None:
    _put(cluster, root, *range(len(FILES)))
    # The driver stands before the second batch is written, which Spark then cannot record.
    armed = {"HOLDFAST_FAILPOINTS": "S1=stop@2"}
    with job_process(tmp_path, dsn, "--available-now", *QUICK, root=root, environment=armed) as job:
        job.until(lambda: job.stands)
        cluster.stop()
        job.resume()
        job.until(lambda: "restart=" in job.said)
        cluster.start()
        assert job.wait() == 0, job.said
    # The ledger has that batch without what could not be read.
    _check(cluster, root, dsn, unread=1)


def _check(cluster: Hdfs, root: str, dsn: str, unread: int | None = None) -> None:
    """Check that each batch and decision is there once, with the offsets that HDFS has.

    `unread` is a batch that was written while HDFS was away.
    """
    assert _decisions(dsn) == EXPECTED
    with psycopg.connect(dsn) as db:
        batches = db.execute(
            "SELECT batch_id, source_offsets FROM holdfast.batch ORDER BY 1"
        ).fetchall()
        keys = db.execute("SELECT count(*), count(DISTINCT key) FROM holdfast.entry").fetchone()
    assert [batch_id for batch_id, _ in batches] == list(range(LAST + 1))
    for batch_id, offsets in batches:
        planned = cluster.read(f"{_path(root)}/checkpoint/offsets/{batch_id}").decode()
        kept = None if offsets is None else without_files(offsets)[0]
        assert kept == (None if batch_id == unread else planned)
    assert keys == (len(EXPECTED), len(EXPECTED))

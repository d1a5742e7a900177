"""The job and the staged path on a standalone cluster whose parts are killed: `make test-cluster`.

Real: a master and two workers as processes, the packed environment, Spark's speculation, Postgres.
Each test compares every row of the sink with what the same events leave on this machine alone. Not
part of `make test`, because starting Spark again and again takes long.
"""

import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from holdfast.deploy.release import environment
from holdfast.sink.contract.failpoints import ENVIRONMENT
from tests.support.cluster.standalone import CONF, SECONDS, Standalone, options, standalone
from tests.support.job.job_process import HOLDFAST, check_ledger, job_process
from tests.support.job.job_stream import OPTIONS, Rows, outcome, stream
from tests.support.job.sink_events import expected_of, rows, run_job, write_events, written
from tests.support.servers.databases import copy_of
from tests.support.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

FILES = 3
BATCHES = 3
RUN = ("--available-now", "--trigger-interval", "100ms", *OPTIONS)
PYTHON = "./environment/bin/python"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("spark")) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a job, with its events."""
    stream(7, FILES).put(tmp_path / "events")
    return tmp_path


@pytest.fixture(scope="module")
def local(
    server_dsn: str, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Rows]:
    """What the same events leave without a cluster."""
    folder = tmp_path_factory.mktemp("local")
    stream(7, FILES).put(folder / "events")
    with copy_of(server_dsn, template_database) as dsn:
        with job_process(folder, dsn, *RUN, "--master", "local[2]") as job:
            assert job.wait() == 0, job.said
        result = outcome(dsn)
    assert result["entry"]
    return result


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make package` makes for executors."""
    return environment.build(tmp_path_factory.mktemp("dist"), Path(sys.executable).resolve())[1]


def test_executors_run_the_python_of_the_archive(
    cluster: Standalone, archive: Path, folder: Path, dsn: str, local: dict[str, Rows]
) -> None:
    with tarfile.open(archive) as packed:
        # Python 3.11 has filters from 3.11.4 on.
        packed.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)
        packed.extractall(folder / "environment")  # noqa: S202 - it is ours
    seen: set[str] = set()

    def ended() -> bool:
        seen.update(word for each in cluster.executors() for word in _pythons_of(each))
        return (folder / "checkpoint" / "commits" / str(FILES)).exists()

    with job_process(
        folder,
        dsn,
        *RUN,
        *options(cluster, f"spark.archives={archive}#environment"),
        program=("env", "-C", str(folder), *HOLDFAST),
        environment={"PYSPARK_PYTHON": PYTHON},
    ) as job:
        job.until(ended)
        assert job.wait() == 0, job.said
    assert seen == {PYTHON}
    assert outcome(dsn) == local


def test_worker_kill_and_master_restart_repeat_nothing(
    cluster: Standalone, folder: Path, dsn: str, db: psycopg.Connection, local: dict[str, Rows]
) -> None:
    checkpoint = folder / "checkpoint"
    killed: list[int] = []

    def worker_is_gone() -> bool:
        number = cluster.kill_busy_worker() if (checkpoint / "offsets" / "1").exists() else None
        killed.extend([] if number is None else [number])
        return bool(killed)

    # The driver stands behind the tasks of its third batch, with one more to come.
    with job_process(
        folder, dsn, *RUN, *options(cluster), environment={ENVIRONMENT: "S1=stop@3"}
    ) as job:
        job.until(worker_is_gone)
        cluster.kill_master()
        # What it had continues, on the other worker.
        job.until(lambda: job.stands)
        cluster.restart_master()
        cluster.restart_worker(killed[0])
        eventually(lambda: "Recovery complete" in cluster.log("master"), SECONDS)
        # Without an executor of its own the job needs one from the master that is back.
        cluster.kill_worker(1 - killed[0])
        job.resume()
        assert job.wait() == 0, job.said
        assert "restart=" not in job.said
    cluster.restart_worker(1 - killed[0])
    check_ledger(db, checkpoint)
    assert outcome(dsn) == local


def test_second_driver_on_the_checkpoint_fences_the_first(
    cluster: Standalone, folder: Path, dsn: str, db: psycopg.Connection, local: dict[str, Rows]
) -> None:
    # Each has one core: otherwise the second would wait for executors.
    one_core = (*RUN, *options(cluster, "spark.cores.max=1"))
    (folder / "first").mkdir()
    with job_process(
        folder / "first", dsn, *one_core, root=str(folder), environment={ENVIRONMENT: "S1=stop@2"}
    ) as first:
        first.until(lambda: first.stands)
        with job_process(folder, dsn, *one_core) as second:
            assert second.wait() == 0, second.said
        assert outcome(dsn) == local
        first.resume()
        assert first.wait() == 1, first.said
    assert "Fenced" in first.said
    check_ledger(db, folder / "checkpoint")
    assert outcome(dsn) == local


def test_tasks_repeated_by_speculation_on_the_staged_path_count_once(
    cluster: Standalone,
    make_database: Callable[[str | None], str],
    template_database: str,
    tmp_path: Path,
) -> None:
    """The first attempt of a task of each batch never ends, with all its rows staged."""
    for number in range(BATCHES):
        write_events(tmp_path, number, rows(number))
    dsn, undisturbed = (make_database(template_database) for _ in range(2))
    reached = tmp_path / "reached"

    code, output = run_job(
        *(sys.executable, tmp_path, dsn, "staged", "", f"spark.master={cluster.url}", *CONF),
        f"spark.executorEnv.{ENVIRONMENT}=T2/0/0=pause:{reached}",
        "spark.speculation=true",
        "spark.speculation.quantile=0.5",
        "spark.speculation.multiplier=1.1",
    )

    assert code == 0, output
    assert reached.exists()
    assert written(dsn) == expected_of(undisturbed, tmp_path, BATCHES)
    with psycopg.connect(dsn) as db:
        assert db.execute("SELECT count(*) FROM holdfast.stage").fetchone() == (0,)


def _pythons_of(executor: psutil.Process) -> set[str]:
    """The first words of an executor's Python processes."""
    pythons = set()
    try:
        for each in executor.children(recursive=True):
            words = each.cmdline()
            pythons.update(words[:1] if "pyspark.daemon" in words else [])
    except psutil.NoSuchProcess:
        pass
    return pythons

"""Two real drivers of the job on one checkpoint: the older one stands still inside a write.

It stands between the look for a file's name and the step that gives it the name, while the newer
one continues; then it continues. Nothing is lost or repeated, and the older one ends by name.

Each pair pays three starts of a JVM. CI has the one in which both stand, the older one in a
source's log and the newer one in its plan; `make kills-checkpoints` plays all.
"""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import psycopg
import pytest

from holdfast.deploy.release import checkpoint_jar
from holdfast.sink.contract.checkpoint import manager_jar
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.source_offsets import without_files
from tests.support.job.job_process import QUICK, JobProcess, job_process
from tests.support.job.jobs import event, put
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.rest, pytest.mark.timeout(900)]

LAST = 8
"""The file that comes when all drivers but the last one have ended."""

WRITES = {
    "source log": r"sources/0/1",
    "offsets": r"offsets/1",
    "commits": r"commits/1",
    "state": r"state/0/\d+/2_[-\w]+\.changelog",
}


@pytest.fixture(scope="module")
def held_jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("held")
    source = Path(__file__).parents[2] / "support/job/HeldFileSystem.java"
    try:
        checkpoint_jar.build()
        checkpoint_jar.compile_into(folder, [source])
    except checkpoint_jar.NoCompilerError as error:
        pytest.skip(f"no jar of the checkpoint file manager: {error}")
    jar = folder / "held.jar"
    with ZipFile(jar, "w") as archive:
        name = "holdfast/test/HeldFileSystem.class"
        archive.write(folder / name, name)
    return jar


class Stream:
    """Files of one event each, whose amounts add up to another sum for each set of files."""

    def __init__(self, folder: Path, dsn: str, jar: Path) -> None:
        self.folder = folder
        self.dsn = dsn
        self.jar = jar
        self.files: list[int] = []

    def put(self, *numbers: int) -> None:
        """Files in the order of their numbers, whenever they come."""
        for number in numbers:
            self.files.append(number)
            put(self.folder / "events", number, [event(f"e{number}", "12:01", 1 << number)])

    @contextmanager
    def driver(self, name: str, held: str | None = None) -> Iterator[JobProcess]:
        """A driver that ends when it has read all files; `held` is the name where it stands."""
        (self.folder / name).mkdir()
        options: tuple[str, ...] = (*QUICK, "--available-now")
        if held is not None:
            self._hold(name).touch()
            settings = {
                "spark.driver.extraClassPath": str(self.jar),
                "spark.hadoop.fs.file.impl": "holdfast.test.HeldFileSystem",
                "spark.hadoop.test.held": f".*/checkpoint/{held}",
                "spark.hadoop.test.held.by": str(self._hold(name)),
            }
            options += tuple(
                word for pair in settings.items() for word in ("--conf", "=".join(pair))
            )
        with job_process(self.folder / name, self.dsn, *options, root=str(self.folder)) as job:
            yield job

    def stands(self, name: str) -> bool:
        return (self.folder / f"{name}.held.met").exists()

    def release(self, name: str) -> None:
        self._hold(name).unlink()

    def _hold(self, name: str) -> Path:
        return self.folder / f"{name}.held"

    def finish(self, db: psycopg.Connection) -> None:
        """Read the rest; check that the ledger has each file, and the window each event, once."""
        self.put(LAST)
        put(self.folder / "events", LAST + 1, [event("end", "12:40", 1)])
        with self.driver("last") as last:
            assert last.wait() == 0, last.said
        plans = db.execute("SELECT source_offsets FROM holdfast.batch").fetchall()
        rows = [row for (plan,) in plans for row in without_files(plan)[1].get(0, [])]
        read = Counter(int(Path(row["path"]).stem) for row in rows)
        assert read == Counter([*self.files, LAST + 1])
        windows = db.execute(
            "SELECT exposure_minor FROM holdfast.exposure_window"
            " WHERE window_end <= '2024-11-04 12:15Z'"
        ).fetchall()
        assert windows == [(sum(1 << number for number in self.files),)]


def _ends_by_name(driver: JobProcess) -> None:
    assert driver.wait() == ExitCode.FAILED, driver.said
    assert "`holdfast stream show payouts`" in driver.said


@pytest.mark.long
@pytest.mark.parametrize("write", WRITES)
def test_driver_that_stood_in_a_write_loses_and_repeats_nothing(
    tmp_path: Path, dsn: str, db: psycopg.Connection, held_jar: Path, write: str
) -> None:
    stream = Stream(tmp_path, dsn, held_jar)
    stream.put(1, 5)
    with stream.driver("older", WRITES[write]) as older:
        older.until(lambda: stream.stands("older"))
        # The newer driver takes another file first than the older one.
        stream.put(3, 6)
        with stream.driver("newer") as newer:
            assert newer.wait() == ExitCode.OK, newer.said
        stream.release("older")
        _ends_by_name(older)
    stream.finish(db)


@pytest.mark.long
def test_driver_that_stood_before_it_took_the_stream_takes_the_same_query(
    tmp_path: Path, dsn: str, db: psycopg.Connection, held_jar: Path
) -> None:
    stream = Stream(tmp_path, dsn, held_jar)
    stream.put(1, 5)
    with stream.driver("older", "metadata") as older:
        older.until(lambda: stream.stands("older"))
        stream.put(3, 6)
        with stream.driver("newer") as newer:
            assert newer.wait() == ExitCode.OK, newer.said
        query_id = (tmp_path / "checkpoint/metadata").read_text()
        stream.release("older")
        assert older.wait() == ExitCode.OK, older.said
    assert (tmp_path / "checkpoint/metadata").read_text() == query_id
    stream.finish(db)


def test_files_of_the_newer_driver_are_what_it_reads(
    tmp_path: Path, dsn: str, db: psycopg.Connection, held_jar: Path
) -> None:
    stream = Stream(tmp_path, dsn, held_jar)
    stream.put(1, 5)
    with stream.driver("older", WRITES["source log"]) as older:
        older.until(lambda: stream.stands("older"))
        stream.put(3, 6)
        # It has logged its files, and reads them from the log once its plan is written.
        with stream.driver("newer", WRITES["offsets"]) as newer:
            newer.until(lambda: stream.stands("newer"))
            stream.release("older")
            _ends_by_name(older)
            stream.release("newer")
            assert newer.wait() == ExitCode.OK, newer.said
    stream.finish(db)


def test_checksum_of_the_older_driver_replaces_none_of_the_newer(
    spark: "SparkSession", tmp_path: Path, held_jar: Path
) -> None:
    """The older one stands after its file has the name, and the newer one removes that file.

    With the older checksum, the newer file could not be read.
    """
    if not manager_jar().exists():
        pytest.skip("this installation has no jar of the checkpoint file managers")
    context: Any = spark.sparkContext
    java, hadoop = context._jvm.java, context._jvm.org.apache.hadoop
    manager = context._jvm.holdfast.checkpoint.LinkingCheckpointFileManager
    held, plain = tmp_path / "held", context._jsc.hadoopConfiguration()
    urls = context._gateway.new_array(java.net.URL, 1)
    urls[0] = java.io.File(str(held_jar)).toURI().toURL()
    settings = hadoop.conf.Configuration(plain)
    parent = java.lang.Thread.currentThread().getContextClassLoader()
    settings.setClassLoader(java.net.URLClassLoader(urls, parent))
    for name, value in {
        "fs.file.impl": "holdfast.test.HeldFileSystem",
        "fs.file.impl.disable.cache": "true",
        "test.held": "",
        "test.held.checksum": ".*/older",
        "test.held.by": str(held),
    }.items():
        settings.set(name, value)
    place, temporary = (hadoop.fs.Path(str(tmp_path / name)) for name in ("5", "older"))
    older, newer = manager(place, settings), manager(place, plain)
    _write(older.createTempFile(temporary), b"older")

    held.touch()
    with ThreadPoolExecutor(1) as thread:
        named = thread.submit(older.renameTempFile, temporary, place, False)
        eventually((tmp_path / "held.met").exists)
        assert (tmp_path / "5").read_bytes() == b"older"
        newer.delete(place)
        _write(newer.createAtomic(place, False), b"newer")
        held.unlink()
        named.result(60)

    stream = newer.open(place)
    assert context._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8") == "newer"
    stream.close()
    assert sorted(each.name for each in tmp_path.iterdir()) == [".5.crc", "5", "held.met"]


def _write(stream: Any, content: bytes) -> None:
    stream.write(bytearray(content))
    stream.close()

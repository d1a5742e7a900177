"""Two real drivers of the job on one checkpoint: the older one stands still inside a write.

It stands between the look for a file's name and the step that gives it the name, while the newer
one continues; then it continues. Nothing is lost or repeated, and the older one ends by name.

Each pair pays three starts of a JVM. CI has the one in which both stand, the older one in a
source's log and the newer one in its plan; `make kills-checkpoints` plays all.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import psycopg
import pytest

from holdfast.deploy.release import checkpoint_jar
from holdfast.sink.contract.checkpoint import manager_jar
from tests.support.job.two_drivers import (
    SAVEPOINTS,
    WRITES,
    LocalStream,
    both_stand,
    older_stands,
    older_stands_before_it_took_the_stream,
)
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.rest, pytest.mark.timeout(900)]


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


@pytest.mark.long
@pytest.mark.parametrize("write", WRITES)
def test_driver_that_stood_in_a_write_loses_and_repeats_nothing(
    tmp_path: Path, dsn: str, db: psycopg.Connection, held_jar: Path, write: str
) -> None:
    older_stands(LocalStream(tmp_path, dsn, held_jar), db, write)


@pytest.mark.long
def test_driver_that_stood_before_it_took_the_stream_takes_the_same_query(
    tmp_path: Path, dsn: str, db: psycopg.Connection, held_jar: Path
) -> None:
    older_stands_before_it_took_the_stream(LocalStream(tmp_path, dsn, held_jar), db)
    query_id = json.loads((tmp_path / "checkpoint/metadata").read_text())["id"]
    row = db.execute("SELECT DISTINCT query_id::text FROM holdfast.batch").fetchone()
    assert row == (query_id,)


@pytest.mark.long
@pytest.mark.parametrize("story", SAVEPOINTS)
def test_driver_that_stood_in_its_savepoint_loses_and_repeats_nothing(
    tmp_path: Path, dsn: str, db: psycopg.Connection, held_jar: Path, story: str
) -> None:
    SAVEPOINTS[story](LocalStream(tmp_path, dsn, held_jar), db)


def test_files_of_the_newer_driver_are_what_it_reads(
    tmp_path: Path, dsn: str, db: psycopg.Connection, held_jar: Path
) -> None:
    both_stand(LocalStream(tmp_path, dsn, held_jar), db)


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

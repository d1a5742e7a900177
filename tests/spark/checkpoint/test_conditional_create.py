"""Checkpoint files on S3 with conditional create: of two drivers, each in its own JVM, one wins."""

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import py4j.java_gateway
import pytest
from py4j.protocol import Py4JJavaError, get_return_value

from holdfast.deploy.release import checkpoint_jar
from holdfast.sink.contract.checkpoint import MANAGER_CLASS, MANAGER_SETTING, manager_jar
from tests.support.servers.gcs import FOLDER as GOOGLES
from tests.support.servers.gcs import Gcs, gcs
from tests.support.servers.s3 import BUCKET, FOLDER, S3, s3
from tests.support.servers.s3_gateway import gateway

pytestmark = pytest.mark.rest

ROUNDS = int(os.environ.get("HOLDFAST_TEST_RACE_ROUNDS", "20"))


class Jvm:
    """A driver's JVM, without Python's own session."""

    def __init__(self, server: S3) -> None:
        from pyspark import SparkConf, java_gateway

        clients = [*sorted(FOLDER.glob("*.jar")), *GOOGLES.glob("*.jar")]
        jars = [str(manager_jar()), *(str(each.absolute()) for each in clients)]
        conf = SparkConf(loadDefaults=False)
        conf.set("spark.driver.extraClassPath", os.pathsep.join(jars))
        conf.set("spark.driver.memory", "600m")
        pyspark: Any = java_gateway
        self._gateway = pyspark.launch_gateway(conf)
        self.java: Any = self._gateway.jvm
        builder = self.java.org.apache.spark.sql.classic.SparkSession.builder().master("local[1]")
        settings = {f"spark.hadoop.{name}": value for name, value in server.settings.items()}
        settings |= {MANAGER_SETTING: MANAGER_CLASS, "spark.ui.enabled": "false"}
        for name, value in settings.items():
            builder = builder.config(name, value)
        self.spark = builder.getOrCreate()
        self.conf = self.spark.sessionState().newHadoopConf()
        streaming = "org.apache.spark.sql.execution.streaming"
        self.checkpointing = getattr(self.java, f"{streaming}.checkpointing")
        self.runtime = getattr(self.java, f"{streaming}.runtime")

    def close(self) -> None:
        with suppress(OSError):
            self._gateway.shutdown()
        self._gateway.proc.stdin.close()
        self._gateway.proc.kill()
        self._gateway.proc.wait()

    def use(self, server: S3 | Gcs) -> None:
        """Reach the bucket of another server, too."""
        settings = dict(server.settings)
        if "fs.s3a.endpoint" in settings:
            settings = {f"fs.s3a.bucket.{server.bucket}.endpoint": settings["fs.s3a.endpoint"]}
        for setting in settings.items():
            self.spark.sparkContext().hadoopConfiguration().set(*setting)
            self.conf.set(*setting)

    def path(self, location: str) -> Any:
        return self.java.org.apache.hadoop.fs.Path(location)

    def manager(self, location: str) -> Any:
        return self.checkpointing.CheckpointFileManager.create(self.path(location), self.conf)

    def write(self, location: str, content: bytes, *, overwrite: bool = False) -> None:
        """Write a file as Spark does, by its own file manager."""
        folder = location.rpartition("/")[0]
        stream = self.manager(folder).createAtomic(self.path(location), overwrite)
        stream.write(content)
        stream.close()

    def read(self, location: str) -> str:
        stream = self.manager(location).open(self.path(location))
        try:
            return str(self.java.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def add(self, log: Any, number: int, content: bytes) -> bool:
        """Let a log of Spark add an entry; whether it did."""
        entry = log.deserialize(self.java.java.io.ByteArrayInputStream(content))
        return bool(log.add(number, entry))


@pytest.fixture(scope="module")
def store() -> Iterator[S3]:
    with s3() as server:
        yield server


@pytest.fixture(scope="module")
def drivers(store: S3) -> Iterator[tuple[Jvm, Jvm]]:
    try:
        checkpoint_jar.build()
    except checkpoint_jar.NoCompilerError as error:
        pytest.skip(f"no jar of the checkpoint file manager: {error}")
    with ThreadPoolExecutor(2) as pool:
        started = list(pool.map(Jvm, [store, store]))
    with pytest.MonkeyPatch.context() as patch:
        # After any session in this process PySpark asks that session's JVM what an error is.
        patch.setattr(py4j.java_gateway, "get_return_value", get_return_value)
        yield started[0], started[1]
    for each in started:
        each.close()


def _metadata(jvm: Jvm, folder: str, number: int, who: str) -> bool:
    written = jvm.runtime.StreamMetadata(f"00000000-0000-0000-0000-00000000000{who}")
    jvm.runtime.StreamMetadata.write(written, jvm.path(f"{folder}/metadata{number}"), jvm.conf)
    return True


def _offsets(jvm: Jvm, folder: str, number: int, who: str) -> bool:
    log = jvm.checkpointing.OffsetSeqLog(jvm.spark, f"{folder}/offsets", False)
    content = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'
    return jvm.add(log, number, f'v1\n{content}\n{{"logOffset":{who}}}'.encode())


def _commits(jvm: Jvm, folder: str, number: int, who: str) -> bool:
    log = jvm.checkpointing.CommitLog(jvm.spark, f"{folder}/commits", False)
    return jvm.add(log, number, f'v1\n{{"nextBatchWatermarkMs":{who}}}'.encode())


def _equal_commits(jvm: Jvm, folder: str, number: int, who: str) -> bool:
    del who
    return _commits(jvm, f"{folder}/equal", number, "7")


def _source_log(jvm: Jvm, folder: str, number: int, who: str) -> bool:
    log = jvm.runtime.FileStreamSourceLog(1, jvm.spark, f"{folder}/sources/0")
    entry = f'{{"path":"file:/events/{who}.json","timestamp":1,"batchId":{number}}}'
    return jvm.add(log, number, f"v1\n{entry}".encode())


Writer = Callable[[Jvm, str, int, str], bool]

WRITERS: dict[str, tuple[Writer, str]] = {
    "metadata": (_metadata, "metadata{}"),
    "offsets": (_offsets, "offsets/{}"),
    "commits": (_commits, "commits/{}"),
    "source log": (_source_log, "sources/0/{}"),
    "equal content": (_equal_commits, "equal/commits/{}"),
}
"""How Spark writes each kind of file that must be new, and its name in the checkpoint."""


def _result(write: Callable[[], bool]) -> str:
    try:
        return "won" if write() else "refused"
    except Py4JJavaError as error:
        thrown = error.java_exception
        while thrown is not None:
            if thrown.getClass().getSimpleName() == "FileAlreadyExistsException":
                return "refused"
            thrown = thrown.getCause()
        raise


def _rounds() -> Iterator[tuple[int, tuple[str, tuple[Writer, str]]]]:
    numbers = itertools.count(1)
    return itertools.islice(((n, each) for n in numbers for each in WRITERS.items()), ROUNDS)


@pytest.fixture(
    params=["moto", *(pytest.param(each, marks=pytest.mark.long) for each in ("gateway", "gcs"))]
)
def raced(
    request: pytest.FixtureRequest, drivers: tuple[Jvm, Jvm], store: S3, tmp_path: Path
) -> Iterator[S3 | Gcs]:
    """A server that both drivers reach."""
    if request.param == "moto":
        yield store
        return
    with gcs() if request.param == "gcs" else gateway(tmp_path / "gateway") as server:
        for jvm in drivers:
            jvm.use(server)
        yield server


def test_two_drivers_never_both_create_a_file(drivers: tuple[Jvm, Jvm], raced: S3 | Gcs) -> None:
    store, folder = raced, f"{raced.uri}/race"
    for kind, (write, _) in WRITERS.items():
        assert write(drivers[0], folder, 0, "0"), kind  # its folder, and the manager's own try
    results: Counter[tuple[str, ...]] = Counter()
    with ThreadPoolExecutor(2) as pool:
        for number, (kind, (write, name)) in _rounds():
            for _ in drivers:
                # Every tenth entry of a source's log is a compact one.
                store.hold(store.write_of(rf"race/{name.format(number)}(\.compact)?"))
            runs = [
                pool.submit(_result, partial(write, jvm, folder, number, who))
                for who, jvm in zip("12", drivers, strict=True)
            ]
            store.met(2)
            store.release()
            results[kind, *sorted(run.result(60) for run in runs)] += 1
    assert {tuple(outcome) for _, *outcome in results} == {("refused", "won")}, results
    assert results.total() == ROUNDS


def test_write_whose_answer_was_lost_is_known_as_own(drivers: tuple[Jvm, Jvm], store: S3) -> None:
    location = f"{store.uri}/lost/offsets/1"
    drivers[0].write(f"{store.uri}/lost/offsets/0", b"begun")
    store.requests()
    store.cut(f"^PUT /{BUCKET}/lost/offsets/1\\?")
    drivers[0].write(location, b"mine")
    puts = [each["status"] for each in store.requests() if each["method"] == "PUT"]
    assert puts == [200, 412]
    assert drivers[1].read(location) == "mine"
    with pytest.raises(Py4JJavaError, match=f"{location} was written by another driver"):
        drivers[1].write(location, b"mine")


def test_file_that_may_be_replaced_is_replaced(drivers: tuple[Jvm, Jvm], store: S3) -> None:
    for name, jvm in itertools.product(("1.delta", "1.zip"), drivers):
        jvm.write(f"{store.uri}/state/0/0/{name}", name.encode(), overwrite=True)
    puts = [each for each in store.requests() if each["method"] == "PUT" and "/1." in each["path"]]
    assert [(each["conditional"], each["status"]) for each in puts] == [(False, 200)] * 4
    stream = (
        drivers[0]
        .manager(f"{store.uri}/state")
        .createAtomic(drivers[0].path(f"{store.uri}/state/0/0/1.zip"), True)
    )
    stream.write(b"half a file")
    stream.cancel()
    assert drivers[1].read(f"{store.uri}/state/0/0/1.zip") == "1.zip"


def test_files_of_a_batch_are_written_without_a_listing(
    drivers: tuple[Jvm, Jvm], store: S3
) -> None:
    """A listing costs as much as a write, and only asks whether a name is that of a folder."""
    folder, (jvm, _) = f"{store.uri}/cheap", drivers
    for write in (_offsets, _commits, _source_log):
        assert write(jvm, folder, 0, "0")  # its folder
    store.requests()
    for write in (_offsets, _commits, _source_log):
        assert write(jvm, folder, 1, "1")
        assert not write(jvm, folder, 1, "1")
    jvm.write(f"{folder}/state/0/0/1.changelog", b"state", overwrite=True)
    asked = store.requests()
    # A log that is opened looks at its folder.
    listed = [parse_qs(each["query"])["prefix"][0] for each in asked if _lists(each)]
    folders = {f"cheap/{each}/" for each in ("offsets", "commits", "sources/0")}
    assert set(listed) <= folders, listed
    assert sum(each["method"] == "PUT" for each in asked) == 4


def _lists(request: dict[str, Any]) -> bool:
    return "list-type" in request["query"]


def test_store_without_conditional_create_is_refused(drivers: tuple[Jvm, Jvm], store: S3) -> None:
    plain = drivers[0].java.org.apache.hadoop.conf.Configuration(drivers[0].conf)
    plain.set("fs.s3a.create.conditional.enabled", "false")
    plain.set("fs.s3a.impl.disable.cache", "true")
    files = drivers[0].checkpointing.CheckpointFileManager
    with pytest.raises(Py4JJavaError, match="not safe with two drivers: its client cannot create"):
        files.create(drivers[0].path(f"{store.uri}/refused"), plain)
    with s3() as other:
        other.ignore_conditions(on=True)
        blind = drivers[0].java.org.apache.hadoop.conf.Configuration(drivers[0].conf)
        blind.set("fs.s3a.impl.disable.cache", "true")
        blind.set("fs.s3a.endpoint", other.settings["fs.s3a.endpoint"])
        manager = files.create(drivers[0].path("s3a://ignoring/refused"), blind)
        other.make_bucket("ignoring")
        with pytest.raises(Py4JJavaError, match="the store ignores the condition"):
            manager.createAtomic(drivers[0].path("s3a://ignoring/refused/0"), False)

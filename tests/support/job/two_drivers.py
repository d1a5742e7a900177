"""Two drivers of the job on one checkpoint, of which the older one stands still inside a write."""

import asyncio
import json
import re
import signal
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import psycopg

from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.source_offsets import without_files
from tests.support.command import holdfast
from tests.support.job.job_process import HOLDFAST, QUICK, JobProcess, job_process, running
from tests.support.job.job_stream import lasting
from tests.support.job.jobs import event, put
from tests.support.servers.fault_proxy import FaultProxy, Line, Way
from tests.support.servers.gcs import Gcs
from tests.support.servers.s3 import S3

LAST = 8
"""The file that comes when all drivers but the last one have ended."""

WRITES = {
    "source log": r"checkpoint/sources/0/1",
    "offsets": r"checkpoint/offsets/1",
    "commits": r"checkpoint/commits/1",
    "state": r"checkpoint/state/0/\d+/2_[-\w]+\.changelog",
}

METADATA = "checkpoint/metadata"

SAVEPOINT = "savepoints/20261129T101500Z"
"""Named as `job run --savepoint-every` does, so that it is held by the same pattern."""


class Stream(ABC):
    """Files of one event each, whose amounts add up to another sum for each set of files."""

    savepoint: ClassVar[str]
    """A write of a savepoint, the one that gives it its place where that can be held."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.folder = folder
        self.dsn = dsn
        self.files: list[int] = []

    def put(self, *numbers: int) -> None:
        """Files in the order of their numbers, whenever they come."""
        for number in numbers:
            self.files.append(number)
            put(self.folder / "events", number, [event(f"e{number}", "12:01", 1 << number)])

    @contextmanager
    def driver(self, name: str, held: str | None = None, *options: str) -> Iterator[JobProcess]:
        """A driver; `held` is the name of its held write."""
        where = ("--checkpoint", f"{self.place}/checkpoint", *self._conf(name, held), *options)
        with job_process(
            self.folder / name, self.dsn, *QUICK, *where, root=str(self.folder)
        ) as job:
            yield job

    @contextmanager
    def reader(self, name: str, held: str | None = None, *options: str) -> Iterator[JobProcess]:
        """A driver that ends when it has read all files."""
        with self.driver(name, held, "--available-now", *options) as job:
            yield job

    @contextmanager
    def saving(self, name: str, held: str | None = None) -> Iterator[JobProcess]:
        """`job savepoint` for `SAVEPOINT`."""
        where = ("--checkpoint", f"{self.place}/checkpoint", "--to", f"{self.place}/{SAVEPOINT}")
        words = [*HOLDFAST, "savepoint", *where, *self._conf(name, held)]
        with running(self.folder / name, self.dsn, words) as process:
            yield process

    def _conf(self, name: str, held: str | None) -> list[str]:
        (self.folder / name).mkdir()
        settings = self.settings() | (self.held(name, held) if held is not None else {})
        return [word for pair in settings.items() for word in ("--conf", "=".join(pair))]

    @property
    def place(self) -> str:
        """Where the checkpoint and the savepoints lie."""
        return str(self.folder)

    def settings(self) -> dict[str, str]:
        """What every driver needs of Spark."""
        return {}

    @abstractmethod
    def held(self, name: str, write: str) -> dict[str, str]:
        """Hold the next write of this name in `place`; returns what its driver needs of Spark."""

    @abstractmethod
    def stands(self, name: str) -> bool:
        """Whether the driver with this name has come to its write."""

    @abstractmethod
    def release(self, name: str) -> None:
        """Let the write of the driver continue."""

    def finish(self, db: psycopg.Connection) -> None:
        """Read the rest; check that the ledger has each file, and the window each event, once."""
        self.put(LAST)
        put(self.folder / "events", LAST + 1, [event("end", "12:40", 1)])
        with self.reader("last") as last:
            assert last.wait() == 0, last.said
        assert self.read(db) == Counter([*self.files, LAST + 1])
        self._check_windows(db)

    def read(self, db: psycopg.Connection) -> Counter[int]:
        """Return how often each file was read, by the ledger."""
        plans = db.execute("SELECT source_offsets FROM holdfast.batch").fetchall()
        rows = [row for (plan,) in plans for row in without_files(plan)[1].get(0, [])]
        return Counter(int(Path(row["path"]).stem) for row in rows)

    def take_over(self, db: psycopg.Connection, saved: str) -> None:
        """Begin a new checkpoint with a savepoint: nothing is lost or repeated."""
        before = lasting(self.dsn, "entries", "windows")
        words = ("--from-savepoint", saved, "--checkpoint", f"{self.place}/continued")
        with self.reader("again", None, *words) as again:
            assert again.wait() == 0, again.said
        assert lasting(self.dsn, "entries", "windows") == before
        self._check_windows(db)
        assert db.execute("SELECT count(DISTINCT query_id) FROM holdfast.batch").fetchone() == (2,)

    def saved(self) -> list[str]:
        """Return the savepoints that lie there, of which every one is intact."""
        place = f"{self.place}/savepoints"
        conf = self._conf("verified", None)
        done = holdfast("job", "savepoints", "verify", "--in", place, "--json", *conf)
        assert done.returncode in (ExitCode.OK, ExitCode.NOTHING_MATCHED), done.stdout
        return [f"{place}/{each['savepoint']}" for each in json.loads(done.stdout)["savepoints"]]

    def _check_windows(self, db: psycopg.Connection) -> None:
        windows = db.execute(
            "SELECT exposure_minor FROM holdfast.exposure_window"
            " WHERE window_end <= '2024-11-04 12:15Z'"
        ).fetchall()
        assert windows == [(sum(1 << number for number in self.files),)]


class LocalStream(Stream):
    """With its checkpoint on a local disk, where a file system of the tests holds a step."""

    savepoint = r"savepoints/.*/windows/part-.*"

    def __init__(self, folder: Path, dsn: str, jar: Path) -> None:
        """`jar` has `HeldFileSystem.java`, compiled."""
        super().__init__(folder, dsn)
        self.jar = jar

    def held(self, name: str, write: str) -> dict[str, str]:
        self._hold(name).touch()
        return {
            "spark.driver.extraClassPath": str(self.jar),
            "spark.hadoop.fs.file.impl": "holdfast.test.HeldFileSystem",
            "spark.hadoop.test.held": f".*{self.folder}/{write}",
            "spark.hadoop.test.held.by": str(self._hold(name)),
        }

    def stands(self, name: str) -> bool:
        return (self.folder / f"{name}.held.met").exists()

    def release(self, name: str) -> None:
        self._hold(name).unlink()

    def _hold(self, name: str) -> Path:
        return self.folder / f"{name}.held"


class StoreStream(Stream):
    """With its checkpoint on an object store, whose server holds the request."""

    savepoint = r"savepoints/\w+/manifest\.json"

    def __init__(self, folder: Path, dsn: str, store: S3 | Gcs) -> None:
        super().__init__(folder, dsn)
        self.store = store
        self._rules: dict[str, int] = {}

    @property
    def place(self) -> str:
        return f"{self.store.uri}/{self.folder.name}"

    def settings(self) -> dict[str, str]:
        return self.store.spark_settings | self.store.patience

    def held(self, name: str, write: str) -> dict[str, str]:
        match = self.store.write_of(f"{self.folder.name}/{write}")
        self._rules[name] = self.store.hold(match)
        return {}

    def stands(self, name: str) -> bool:
        return self.store.is_met(self._rules[name])

    def release(self, name: str) -> None:
        self.store.release(self._rules[name])


@dataclass
class _Hold:
    pattern: re.Pattern[bytes]
    is_met: bool = False
    is_released: bool = False


class HdfsStream(Stream):
    """With its checkpoint on HDFS, behind a proxy that holds the renaming call to its NameNode."""

    savepoint = r"savepoints/\w+"

    def __init__(self, folder: Path, dsn: str, proxy: FaultProxy) -> None:
        super().__init__(folder, dsn)
        self.proxy = proxy
        self._holds: dict[str, _Hold] = {}

    @property
    def place(self) -> str:
        return f"hdfs://127.0.0.1:{self.proxy.port}/{self.folder.name}"

    def settings(self) -> dict[str, str]:
        # The client of a held call asks every minute whether its server is still there, and sends
        # the call again after two, past the hold.
        patient = {"ping.interval": "900000", "client.rpc-timeout.ms": "0"}
        return {f"spark.hadoop.ipc.{name}": value for name, value in patient.items()}

    def held(self, name: str, write: str) -> dict[str, str]:
        # In a call the new name is followed by whether it may replace one.
        new_name = rb"rename2?.*/%s/%s[\x18\x22]" % (self.folder.name.encode(), write.encode())
        self._holds[name] = _Hold(re.compile(new_name, re.DOTALL))

        self.proxy.bend(self._fault)
        return {}

    async def _fault(self, way: Way, data: bytes, line: Line) -> bytes:
        del line
        for hold in self._holds.values():
            if way is Way.UP and not hold.is_met and hold.pattern.search(data):
                hold.is_met = True
                while not hold.is_released:  # noqa: ASYNC110 - by another thread
                    await asyncio.sleep(0.05)
        return data

    def stands(self, name: str) -> bool:
        return self._holds[name].is_met

    def release(self, name: str) -> None:
        self._holds[name].is_released = True


def older_stands(stream: Stream, db: psycopg.Connection, write: str) -> None:
    """The older driver stands in a write while the newer one runs; then it ends by name."""
    stream.put(1, 5)
    with stream.reader("older", WRITES[write]) as older:
        older.until(lambda: stream.stands("older"))
        # The newer driver takes another file first than the older one.
        stream.put(3, 6)
        with stream.reader("newer") as newer:
            assert newer.wait() == ExitCode.OK, newer.said
        stream.release("older")
        _ends_by_name(older)
    stream.finish(db)


def both_stand(stream: Stream, db: psycopg.Connection) -> None:
    """The older driver stands in the log of its source, the newer one in its plan."""
    stream.put(1, 5)
    with stream.reader("older", WRITES["source log"]) as older:
        older.until(lambda: stream.stands("older"))
        stream.put(3, 6)
        # It has logged its files, and reads them from the log once its plan is written.
        with stream.reader("newer", WRITES["offsets"]) as newer:
            newer.until(lambda: stream.stands("newer"))
            stream.release("older")
            _ends_by_name(older)
            stream.release("newer")
            assert newer.wait() == ExitCode.OK, newer.said
    stream.finish(db)


def older_stands_before_it_took_the_stream(stream: Stream, db: psycopg.Connection) -> None:
    """It stands before the query has its id; then it takes the query of the newer one."""
    stream.put(1, 5)
    with stream.reader("older", METADATA) as older:
        older.until(lambda: stream.stands("older"))
        stream.put(3, 6)
        with stream.reader("newer") as newer:
            assert newer.wait() == ExitCode.OK, newer.said
        stream.release("older")
        assert older.wait() == ExitCode.OK, older.said
    assert db.execute("SELECT count(DISTINCT query_id) FROM holdfast.batch").fetchone() == (1,)
    stream.finish(db)


def older_stands_in_its_savepoint(stream: Stream, db: psycopg.Connection) -> None:
    """The older driver's savepoint gets its place when the driver has long been replaced."""
    stream.put(1, 5)
    place = ("--savepoint-to", f"{stream.place}/savepoints")
    schedule = ("--savepoint-every", "1h", *place, "--savepoint-keep", "2")
    with stream.driver("older", stream.savepoint, *schedule) as older:
        older.until(lambda: stream.stands("older"))
        with stream.driver("newer") as newer:
            newer.until(lambda: _epoch(db) > 1)
            stream.put(3, 6)
            # It does not wait for its savepoint.
            _ends_by_name(older)
            newer.until(lambda: stream.read(db) == Counter(stream.files))
            newer.process.send_signal(signal.SIGTERM)
            assert newer.wait() == ExitCode.OK, newer.said
    stream.release("older")
    stream.finish(db)
    for saved in stream.saved():
        stream.take_over(db, saved)


def older_stands_in_a_savepoint_of_one_name(stream: Stream, db: psycopg.Connection) -> None:
    """Of two `job savepoint` for one place, the one that is held ends by name."""
    stream.put(1, 5)
    with stream.reader("first") as first:
        assert first.wait() == ExitCode.OK, first.said
    with stream.saving("older", stream.savepoint) as older:
        older.until(lambda: stream.stands("older"))
        stream.put(3, 6)
        with stream.reader("newest") as newest:
            assert newest.wait() == ExitCode.OK, newest.said
        with stream.saving("newer") as newer:
            assert newer.wait() == ExitCode.OK, newer.said
        stream.release("older")
        assert older.wait() == ExitCode.USAGE, older.said
        assert f"{SAVEPOINT} exists already. Nothing was written" in older.said
    stream.finish(db)
    [saved] = stream.saved()
    stream.take_over(db, saved)


def _epoch(db: psycopg.Connection) -> int:
    row = db.execute("SELECT coalesce(max(epoch), 0) FROM holdfast.stream").fetchone()
    assert row
    return int(row[0])


def _ends_by_name(driver: JobProcess) -> None:
    assert driver.wait() == ExitCode.FAILED, driver.said
    assert "`holdfast stream show payouts`" in driver.said


SAVEPOINTS = {
    "of a driver": older_stands_in_its_savepoint,
    "of one name": older_stands_in_a_savepoint_of_one_name,
}

"""The sink behind Spark Connect: client and server are two processes, and either is killed.

Real: the Connect server, its workers, a client without a JVM, SIGKILL, SIGSTOP, cut connections,
Postgres. Compared: every table of the sink with what the sink writes of the same rows without
Spark; the transcript of the last environment goes to docs/spark/versions.md. `make test-versions`
runs it; not part of `make test`, because it takes long.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest

from holdfast.deploy.local.java import spark_environment
from holdfast.deploy.local.ports import free_port
from holdfast.sink.contract.failpoints import ENVIRONMENT
from tests.support.job.environments import CONNECTED, Environment, build_wheel
from tests.support.job.sink_events import PROGRAM, SECONDS, expected_of, rows, write_events, written
from tests.support.job.version_table import narrate, record
from tests.support.servers.fault_proxy import FaultProxy
from tests.support.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

BATCHES = 4

CONF = {
    "spark.master": "local[2,4]",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


@pytest.fixture(scope="module", params=CONNECTED, ids=str)
def environment(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    made: Environment = request.param
    try:
        made.make(build_wheel(tmp_path_factory.mktemp("wheel")))
    except LookupError as error:
        pytest.skip(str(error))
    return made


@contextmanager
def server(environment: Environment, folder: Path, failpoints: str = "") -> Iterator[str]:
    """Run a Connect server until the block ends, and kill it with its workers; its address."""
    python, port = environment.interpreter, free_port()
    home = next(Path(python).parents[1].glob("lib/python*/site-packages/pyspark"))
    conf = CONF | {"spark.connect.grpc.binding.port": str(port)}
    with (folder / "server.txt").open("ab") as log:
        process = subprocess.Popen(
            [
                *(str(home / "bin" / "spark-submit"), "--class"),
                "org.apache.spark.sql.connect.service.SparkConnectServer",
                *(word for name, value in conf.items() for word in ("--conf", f"{name}={value}")),
                "spark-internal",
            ],
            env={
                **os.environ,
                **spark_environment(),
                "SPARK_HOME": str(home),
                "PYSPARK_PYTHON": python,
                "PYSPARK_DRIVER_PYTHON": python,
                ENVIRONMENT: failpoints,
            },
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        eventually(lambda: answers(port), seconds=SECONDS)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def client(
    environment: Environment, folder: Path, dsn: str, path: str, address: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a client that writes what the checkpoint does not know; kill it at the end."""
    with (folder / "client.txt").open("ab") as log:
        process = subprocess.Popen(
            [
                *(environment.interpreter, str(PROGRAM), dsn, str(folder), path),
                f"spark.remote={address}",
            ],
            stdout=log,
            stderr=log,
            env={name: value for name, value in os.environ.items() if "SPARK" not in name},
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def stopped_workers(environment: Environment) -> list[psutil.Process]:
    """Return the Python processes of an environment that SIGSTOP has stopped."""
    home, stopped = str(Path(environment.interpreter).parents[1]), []
    for process in psutil.process_iter(["cmdline", "status"]):
        command = process.info["cmdline"] or [""]
        if command[0].startswith(home) and process.info["status"] == psutil.STATUS_STOPPED:
            stopped.append(process)
    return stopped


def answers(port: int) -> bool:
    with closing(socket.socket()) as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


class Query:
    """The query of a test: its files, its databases, and what was done to it."""

    def __init__(self, environment: Environment, folder: Path, path: str, dsns: list[str]) -> None:
        self.environment, self.folder, self.path = environment, folder, path
        self.dsn, self._undisturbed = dsns
        self._began, self._lines = time.monotonic(), list[str]()
        for number in range(BATCHES):
            write_events(folder, number, rows(number))

    def client(self, address: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """As `client`."""
        return client(self.environment, self.folder, self.dsn, self.path, address)

    def batches(self) -> int:
        """How many are written."""
        with psycopg.connect(self.dsn) as db:
            return len(db.execute("SELECT FROM holdfast.batch").fetchall())

    def wait_for(self, batches: int) -> None:
        """Wait until so many are written."""
        eventually(lambda: self.batches() >= batches, seconds=SECONDS)

    def say(self, what: str) -> None:
        """Add a line to the transcript."""
        self._lines.append(f"{self.batches()} of {BATCHES} batches: {what}")

    def compare(self, faults: str) -> None:
        """Every table is what the sink writes of the same rows without Spark; keep the figures."""
        assert written(self.dsn) == expected_of(self._undisturbed, self.folder, BATCHES)
        assert f"outcome of batch {BATCHES - 1}: " in (self.folder / "client.txt").read_text()
        self.say("every table equals what the sink writes without Spark")
        seconds = time.monotonic() - self._began
        record(self.environment, self.path, self.dsn, faults, seconds)
        narrate(self.environment, self.path, self._lines)


@pytest.fixture(params=["driver", "staged"])
def query(
    request: pytest.FixtureRequest,
    environment: Environment,
    make_database: Callable[[str | None], str],
    template_database: str,
    tmp_path: Path,
) -> Query:
    dsns = [make_database(template_database) for _ in range(2)]
    return Query(environment, tmp_path, request.param, dsns)


def test_client_cut_off_reattaches_to_its_query(environment: Environment, query: Query) -> None:
    with (
        server(environment, query.folder) as address,
        FaultProxy.before_port(int(address.rpartition(":")[2])) as proxy,
        query.client(f"sc://127.0.0.1:{proxy.port}") as started,
    ):
        query.wait_for(1)
        proxy.cut()
        query.say("every connection of the client is cut; it connects again")
        assert started.wait(SECONDS) == 0
    query.compare("the client's connections cut")


def test_stopped_server_is_fenced_by_a_second_one(environment: Environment, query: Query) -> None:
    with (
        server(environment, query.folder, "S1=stop@2") as first,
        query.client(first) as fenced,
    ):
        eventually(lambda: stopped_workers(environment), seconds=SECONDS)
        query.say("the worker of the first server is stopped (SIGSTOP) before its second")
        with server(environment, query.folder) as second, query.client(second) as started:
            assert started.wait(SECONDS) == 0
        query.say("a client of a second server finished the query from the same checkpoint")
        for worker in stopped_workers(environment):
            worker.send_signal(signal.SIGCONT)
        assert fenced.wait(SECONDS) == 1
    assert "Fenced" in (query.folder / "client.txt").read_text()
    query.say("the first worker continues, and its client ends with Fenced")
    query.compare("a second server beside a stopped one")


def test_killed_client_or_server_lose_and_repeat_nothing(
    environment: Environment, query: Query
) -> None:
    with (
        server(environment, query.folder, "S7=kill@2") as address,
        query.client(address) as started,
    ):
        assert started.wait(SECONDS) == 1
        assert query.batches() == 1
        query.say("the worker is killed before the COMMIT of the second; its client ends with 1")
    query.say("the server is killed, and started again")

    with server(environment, query.folder) as address:
        with query.client(address):
            query.wait_for(2)
        query.say("the client is killed")
        query.wait_for(BATCHES)
        query.say("the server finished what the client had started")
        with query.client(address) as started:
            assert started.wait(SECONDS) == 0

    query.compare("worker, server and client killed")

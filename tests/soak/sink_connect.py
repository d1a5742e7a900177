"""The sink behind Spark Connect: client and server are two processes, and either is killed.

Real: the Connect server, its workers, a client without a JVM, SIGKILL, Postgres. Compared: every
table of the sink with what the sink writes of the same rows without Spark. `make test-versions`
runs it; not part of `make test`, because it takes long.
"""

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from holdfast.deploy.local.java import spark_environment
from holdfast.deploy.local.ports import free_port
from holdfast.sink.contract.failpoints import ENVIRONMENT
from tests.support.job.environments import CONNECTED, Environment, build_wheel
from tests.support.job.sink_events import PROGRAM, SECONDS, expected_of, rows, write_events, written
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


def answers(port: int) -> bool:
    with closing(socket.socket()) as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("path", ["driver", "staged"])
def test_killed_client_or_server_lose_and_repeat_nothing(
    environment: Environment,
    path: str,
    make_database: Callable[[str | None], str],
    template_database: str,
    tmp_path: Path,
) -> None:
    for number in range(BATCHES):
        write_events(tmp_path, number, rows(number))
    dsn, undisturbed = (make_database(template_database) for _ in range(2))

    def batches() -> int:
        with psycopg.connect(dsn) as db:
            return len(db.execute("SELECT FROM holdfast.batch").fetchall())

    # The worker beside the server dies before the COMMIT of its second batch, and then the server.
    with (
        server(environment, tmp_path, "S7=kill@2") as address,
        client(environment, tmp_path, dsn, path, address) as started,
    ):
        assert started.wait(SECONDS) == 1
        assert batches() == 1

    with server(environment, tmp_path) as address:
        # The server finishes what a killed client has started.
        with client(environment, tmp_path, dsn, path, address):
            eventually(lambda: batches() > 1, seconds=SECONDS)
        eventually(lambda: batches() == BATCHES, seconds=SECONDS)
        with client(environment, tmp_path, dsn, path, address) as started:
            assert started.wait(SECONDS) == 0

    assert written(dsn) == expected_of(undisturbed, tmp_path, BATCHES)
    assert f"outcome of batch {BATCHES - 1}: " in (tmp_path / "client.txt").read_text()

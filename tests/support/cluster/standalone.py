"""A standalone Spark cluster of this machine: a master and two workers, each a process of its own.

From the `pyspark` of pip alone. Each part can be killed and started again on its address. The
master keeps what it knows in a directory, so that one that was killed knows its workers and
applications again.
"""

import os
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import SIGKILL, SIGTERM

import psutil
import pyspark

from deploy.local.java import spark_environment
from tests.support.waiting import eventually

HOST = "127.0.0.1"
SECONDS = 180
"""How long a part may take to be ready, on a busy machine."""

CONF = (
    # The driver and its executors are on this machine, whatever the name of it resolves to.
    "spark.driver.host=127.0.0.1",
    "spark.driver.bindAddress=127.0.0.1",
    "spark.executor.memory=600m",
    # A killed executor or worker is noticed by its connection; a part that is stopped, by this.
    "spark.network.timeout=60s",
    "spark.executor.heartbeatInterval=5s",
)
"""Settings of a job on it, for `--conf`."""

_HOME = Path(pyspark.__file__).parent
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class Standalone:
    """The cluster. `url` is for `--master`."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        """Start it, and wait until the workers are registered."""
        self._folder = folder
        self._port, self._ui = _free_port(), _free_port()
        self._ports = [_free_port() for _ in range(workers)]
        self.url = f"spark://{HOST}:{self._port}"
        self._parts: dict[str, subprocess.Popen[bytes]] = {}
        self.restart_master()
        for number in range(workers):
            self.restart_worker(number)

    @property
    def master(self) -> int:
        """The process id of the master."""
        return self._parts["master"].pid

    def worker(self, number: int) -> int:
        """The process id of a worker."""
        return self._parts[f"worker-{number}"].pid

    def executors(self) -> list[psutil.Process]:
        """The executors that run, the oldest first; each is the child of a worker."""
        found = []
        for name, part in self._parts.items():
            if name != "master" and part.poll() is None:
                found += _children(part.pid)
        return sorted(found, key=lambda each: each.pid)

    def kill_executor(self, number: int = 0) -> int:
        """SIGKILL an executor, and return its process id; its worker starts another one."""
        executor = self.executors()[number]
        executor.kill()
        with suppress(psutil.TimeoutExpired):
            executor.wait(SECONDS)
        return executor.pid

    def kill_worker(self, number: int) -> None:
        """SIGKILL a worker and its executors, as a machine that is gone."""
        gone = _children(self.worker(number))
        self._kill(f"worker-{number}")
        for each in gone:
            with suppress(psutil.NoSuchProcess):
                each.kill()

    def restart_worker(self, number: int) -> None:
        """Start a worker on its address, and wait until the master has it."""
        self._start(
            f"worker-{number}",
            "worker.Worker",
            *("--host", HOST, "--port", str(self._ports[number])),
            *("--webui-port", "0", "--cores", "1", "--memory", "1g"),
            *("--work-dir", str(self._folder / f"work-{number}"), self.url),
        )
        eventually(lambda: self._says(f"worker-{number}", "Successfully registered"), SECONDS)

    def kill_master(self) -> None:
        """SIGKILL the master. What runs goes on."""
        self._kill("master")

    def restart_master(self) -> None:
        """Start the master on its address, with what it knew, and wait until it answers."""
        self._start(
            "master",
            "master.Master",
            *("--host", HOST, "--port", str(self._port), "--webui-port", str(self._ui)),
        )
        eventually(self._answers, SECONDS)

    def log(self, part: str) -> str:
        """What a part said since it was started last: `master`, `worker-0`."""
        return (self._folder / f"{part}.log").read_text(errors="replace")

    def stop(self) -> None:
        """End every part and every executor."""
        executors = self.executors()
        for part in self._parts.values():
            part.send_signal(SIGTERM)
        for part in self._parts.values():
            try:
                part.wait(20)
            except subprocess.TimeoutExpired:
                part.kill()
                part.wait()
        for each in executors:
            with suppress(psutil.NoSuchProcess):
                each.kill()

    def _start(self, name: str, main: str, *arguments: str) -> None:
        environment = {
            **os.environ,
            **spark_environment(),
            "SPARK_HOME": str(_HOME),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": (
                "-XX:TieredStopAtLevel=1 -Dspark.deploy.recoveryMode=FILESYSTEM"
                f" -Dspark.deploy.recoveryDirectory={self._folder / 'recovery'}"
                # A worker that lost its master tries again every few seconds.
                " -Dspark.worker.timeout=15"
            ),
        }
        # An executor takes the Python that its job names, never one of the worker's environment.
        for inherited in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH"):
            environment.pop(inherited, None)
        with (self._folder / f"{name}.log").open("wb") as log:
            self._parts[name] = subprocess.Popen(
                [str(_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}", *arguments],
                env=environment,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _kill(self, name: str) -> None:
        self._parts[name].send_signal(SIGKILL)
        self._parts[name].wait()

    def _says(self, name: str, text: str) -> bool:
        assert self._parts[name].poll() is None, self.log(name)
        return text in self.log(name)

    def _answers(self) -> bool:
        assert self._parts["master"].poll() is None, self.log("master")
        try:
            urllib.request.urlopen(f"http://{HOST}:{self._ui}/json/", timeout=5).close()
        except OSError:
            return False
        return True


@contextmanager
def standalone(folder: Path, workers: int = 2) -> Iterator[Standalone]:
    """Give a cluster; all of it is ended at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = Standalone(folder, workers)
    try:
        yield cluster
    finally:
        cluster.stop()


def options(cluster: Standalone, *conf: str) -> list[str]:
    """Options with which `holdfast job run` runs on it."""
    return ["--master", cluster.url, *(f"--conf={each}" for each in (*CONF, *conf))]


def _children(pid: int) -> list[psutil.Process]:
    try:
        children = psutil.Process(pid).children()
        return [each for each in children if _EXECUTOR in each.cmdline()]
    except psutil.NoSuchProcess:
        return []


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])

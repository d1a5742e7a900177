"""A standalone Spark cluster of this machine: a master and two workers, each a process of its own.

From the `pyspark` of pip alone. Each part can be killed and started again on its address. Each
worker has one of its own on the loopback device, so that Spark takes them for two hosts. The master
keeps what it knows in a directory, so that one that was killed knows its workers and
applications again.
"""

import os
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import SIGKILL, SIGTERM

import psutil
import pyspark

from holdfast.deploy.local.java import spark_environment
from holdfast.deploy.local.ports import free_port
from tests.support.job.class_archive import SHORT_LIVED
from tests.support.processes import end, matching
from tests.support.waiting import eventually

HOST = "127.0.0.1"
SECONDS = 180
"""How long a part may take to be ready, on a busy machine."""

_OPTIONS = "HOLDFAST_SPARK_JAVA_OPTIONS"

CONF = (
    # The driver and its executors are on this machine, whatever the name of it resolves to.
    "spark.driver.host=127.0.0.1",
    "spark.driver.bindAddress=127.0.0.1",
    "spark.executor.memory=600m",
    f"spark.executor.extraJavaOptions={os.environ.get(_OPTIONS, SHORT_LIVED)}",
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
        self._port, self._ui = free_port(), free_port()
        self._ports = [free_port() for _ in range(workers)]
        self.url = f"spark://{HOST}:{self._port}"
        self._parts: dict[str, subprocess.Popen[bytes]] = {}
        self.restart_master()
        for number in range(workers):
            self._start_worker(number)
        for number in range(workers):
            self._await_worker(number)

    @property
    def master(self) -> int:
        """The process id of the master."""
        return self._parts["master"].pid

    def worker(self, number: int) -> int:
        """The process id of a worker."""
        return self._parts[f"worker-{number}"].pid

    def executors(self) -> list[psutil.Process]:
        """The executors that run; each is the child of a worker."""
        return [executor for _, executor in self._executors()]

    def kill_busy_executor(self) -> bool:
        """SIGKILL an executor in the middle of a task; its worker starts another one.

        Returns whether there was one whose task had not ended when it died.
        """
        for _, executor, log in self._busy():
            executor.kill()
            with suppress(psutil.TimeoutExpired):
                executor.wait(SECONDS)
            return bool(_open_tasks(log))
        return False

    def kill_busy_worker(self) -> int | None:
        """SIGKILL a worker and its executor in the middle of a task; returns its number."""
        for number, _, _ in self._busy():
            self.kill_worker(number)
            return number
        return None

    def kill_worker(self, number: int) -> None:
        """SIGKILL a worker and its executors, as a machine that is gone."""
        gone = _children(self.worker(number))
        self._kill(f"worker-{number}")
        for each in gone:
            with suppress(psutil.NoSuchProcess):
                each.kill()

    def restart_worker(self, number: int) -> None:
        """Start a worker on its address, and wait until the master has it."""
        self._start_worker(number)
        self._await_worker(number)

    def _start_worker(self, number: int) -> None:
        self._start(
            f"worker-{number}",
            "worker.Worker",
            *("--host", f"127.0.0.{number + 1}", "--port", str(self._ports[number])),
            *("--webui-port", "0", "--cores", "1", "--memory", "1g"),
            *("--work-dir", str(self._folder / f"work-{number}"), self.url),
        )

    def _await_worker(self, number: int) -> None:
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
            end(part, 20)
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
            # How long a master that is back waits for those that it knew; a starved worker keeps
            # its own, longer, time.
            "SPARK_DAEMON_JAVA_OPTS": (
                f"{os.environ.get(_OPTIONS, SHORT_LIVED)} -Dspark.deploy.recoveryMode=FILESYSTEM"
                f" -Dspark.deploy.recoveryDirectory={self._folder / 'recovery'}"
                " -Dspark.deploy.recoveryTimeout=15"
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

    def _executors(self) -> Iterator[tuple[int, psutil.Process]]:
        for number in range(len(self._ports)):
            part = self._parts[f"worker-{number}"]
            if part.poll() is None:
                yield from ((number, executor) for executor in _children(part.pid))

    def _busy(self) -> Iterator[tuple[int, psutil.Process, Path]]:
        """Executors in the middle of a task, with the number of the worker and their log."""
        for number, executor in self._executors():
            with suppress(psutil.NoSuchProcess):
                words = executor.cmdline()
                app, its = (words[words.index(f"--{each}-id") + 1] for each in ("app", "executor"))
                log = self._folder / f"work-{number}" / app / its / "stderr"
                if _open_tasks(log):
                    yield number, executor, log

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
    except psutil.NoSuchProcess:
        return []
    # Spark's script leaves a zombie to the Java that takes its place, for ever.
    return matching(children, lambda each: _EXECUTOR in each.cmdline())


def _open_tasks(log: Path) -> set[str]:
    """Tasks that an executor has begun and not ended, by the log that its worker writes."""
    output = log.read_text(errors="replace") if log.exists() else ""
    begun = re.findall(r"Running task \S+ in stage \S+ \(TID (\d+)\)", output)
    ended = re.findall(r"(?:Finished|Exception in) task \S+ in stage \S+ \(TID (\d+)\)", output)
    return set(begun) - set(ended)

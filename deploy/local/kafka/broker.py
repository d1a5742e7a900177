"""A Kafka broker of one node (KRaft) as a process: started, stopped, killed, started again."""

import base64
import os
import secrets
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from holdfast.deploy.local import process
from holdfast.deploy.local.java import find_java
from holdfast.deploy.local.kafka.jars import staged
from holdfast.deploy.local.ports import free_port
from holdfast.sink.contract.exits import CommandError

HOST = "127.0.0.1"

START_SECONDS = 180.0
"""A start takes 2 to 3 s on an idle machine; after a kill the broker first reads its last segments
again."""

STOP_SECONDS = 20.0
POLL_SECONDS = 0.05

JAVA_OPTIONS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    # It starts in two thirds of the processor time without the optimizing compiler.
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    # One node cannot keep three copies.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # The default of 128 MB is half of the heap.
    "log.cleaner.dedupe.buffer.size": "4194304",
    "num.network.threads": "2",
    "num.io.threads": "2",
}


@dataclass
class Broker:
    """A broker in a folder of its own; its port and its data outlive a kill."""

    folder: Path
    jars: Path | None = None
    """Where `make kafka-jars` staged the broker's jars; None: in the working directory's folder."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of `server.properties` beside `SETTINGS`, which they replace."""
    java_options: tuple[str, ...] = ()
    """Options of its JVM behind `JAVA_OPTIONS`; of two that differ, the last one holds."""
    port: int = 0
    """The port on which it listens; 0: a free one."""
    listeners: tuple[str, ...] = ()
    """More of them, as `NAME://HOST:PORT`; what each is stands in the settings."""
    _process: subprocess.Popen[bytes] | None = None
    _ports: tuple[int, int] = (0, 0)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self._ports[0]}"

    def admin(self) -> AdminClient:
        """Return a client that makes topics; what it was asked for ends with it."""
        return AdminClient(client_settings(self.bootstrap_servers))

    @property
    def log(self) -> Path:
        return self.folder / "broker.log"

    @property
    def pid(self) -> int | None:
        """None if it does not run."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        """Start it, or start it again on the same port and data; returns once it answers.

        Raises `CommandError`, with the end of its log, if it ends or does not answer in time.
        """
        if self.pid is not None:
            return
        if not self._ports[0]:
            self._prepare()
        offset = self.log.stat().st_size if self.log.exists() else 0
        with process.open_log(self.log) as output:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(self._properties)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_environment(),
                # Ctrl-C is for whoever started it, who stops it in order.
                start_new_session=True,
            )
        try:
            self._wait(offset)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Stop it in order; its data are kept."""
        if self._process is None:
            return
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End it by SIGKILL; what it has acknowledged is kept, because the machine lives on."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait(STOP_SECONDS)
        self._process = None

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def _prepare(self) -> None:
        """Choose ports, write the settings, format the folder for the data."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._ports = (self.port or free_port(), free_port())
        own, controller = self._ports
        plain = f"PLAINTEXT://{HOST}:{own}"
        settings = {
            **SETTINGS,
            "listeners": ",".join([plain, f"CONTROLLER://{HOST}:{controller}", *self.listeners]),
            "advertised.listeners": ",".join([plain, *self.listeners]),
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "log.dirs": str(self.folder / "data"),
            **self.settings,
        }
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        self._properties.write_text(text, encoding="utf-8")
        arguments = ("format", "--cluster-id", _cluster_id(), "--config", str(self._properties))
        formatted = subprocess.run(
            self._java("kafka.tools.StorageTool", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(),
            timeout=START_SECONDS,
            check=False,
        )
        if formatted.returncode != 0:
            self._ports = (0, 0)
            self.log.write_bytes(formatted.stdout)
            raise CommandError(
                f"the folder {self.folder} cannot be prepared for a Kafka broker. Nothing was"
                f" started. {self.log} ends with: {self._last_lines(0)}",
                code="broker_start_failed",
            )

    def _java(self, *arguments: str) -> list[str]:
        jars = staged("broker") if self.jars is None else self.jars
        java = str(find_java() / "bin" / "java")
        return [java, *JAVA_OPTIONS, *self.java_options, "-cp", f"{jars}/*", *arguments]

    def _last_lines(self, offset: int) -> str:
        """Return the last lines of the log without those of a stack trace, on one line."""
        text = self.log.read_bytes()[offset:].decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return " | ".join([each for each in lines if not each.startswith("at ")][-process.LINES :])

    def _wait(self, offset: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            ended = self.pid is None
            if ended or time.monotonic() >= deadline:
                what = "ended" if ended else f"did not answer within {START_SECONDS:.0f} s"
                raise CommandError(
                    f"the Kafka broker in {self.folder} {what} while it started; its data are kept."
                    f" {self.log} ends with: {self._last_lines(offset)}",
                    code="broker_start_failed",
                )
            time.sleep(POLL_SECONDS)

    def _answers(self) -> bool:
        # A plain connection first: the client would log each refused one.
        with socket.socket() as attempt:
            if attempt.connect_ex((HOST, self._ports[0])) != 0:
                return False
        try:
            cluster = self.admin().list_topics(timeout=5)
        except KafkaException:
            return False
        return bool(cluster.brokers)


def client_settings(bootstrap_servers: str) -> dict[str, str | int | float | bool]:
    """Return settings for a client of `confluent_kafka` that does not log to standard error."""
    return {"bootstrap.servers": bootstrap_servers, "log_level": 0, "socket.timeout.ms": 5000}


def _environment() -> dict[str, str]:
    # The options of Spark's JVM are not the broker's.
    return {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}


def _cluster_id() -> str:
    """Return 16 random bytes in URL-safe Base64; one that begins with `-` is read as an option."""
    while True:
        text = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        if not text.startswith("-"):
            return text

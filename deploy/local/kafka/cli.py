"""`holdfast local kafka`: a broker with a topic, for as long as the command runs."""

import signal
import socket
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Annotated

import typer
from rich.console import Console

from holdfast.deploy.local.kafka import require_client
from holdfast.sink.contract.exits import CommandError

POLL_SECONDS = 0.2


def kafka(
    write: Annotated[
        list[Path] | None,
        typer.Option("--write", help="A file whose lines are written as records; can be repeated."),
    ] = None,
    topic: Annotated[str, typer.Option(help="The topic that is made.")] = "payments",
    partitions: Annotated[int, typer.Option(min=1, max=1000, help="Its partitions.")] = 3,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="The port; 0 takes a free one.")
    ] = 9092,
) -> None:
    """Run a Kafka broker with a topic until Ctrl-C or SIGTERM; its data end with it.

    Prints the address for `job run --bootstrap-servers` when the records are there. All records of
    a merchant are in one partition, in the order of the lines. Needs the extra `kafka` and
    `make kafka-jars`.
    """
    require_client()
    from holdfast.deploy.local.kafka import topics  # noqa: PLC0415 - of the extra `kafka`
    from holdfast.deploy.local.kafka.broker import HOST, Broker  # noqa: PLC0415 - as above

    lines = [line for each in write or [] for line in _lines(each)]
    _check_free(HOST, port)
    stop = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with TemporaryDirectory(prefix="holdfast-kafka-") as folder:
        with Broker(Path(folder), port=port) as broker:
            topics.make(broker.admin(), topic, partitions)
            writer = topics.Writer(broker.bootstrap_servers)
            for line in lines:
                writer.write(topic, line, partition=topics.partition_of(line, partitions))
            writer.flush()
            _tell(f"Topic {topic}: {len(lines)} records in {partitions} partitions. Ctrl-C ends.")
            typer.echo(broker.bootstrap_servers)
            while broker.pid is not None and not stop.wait(POLL_SECONDS):
                pass
            ended = broker.pid is None
            broker.stop()
        if ended and not stop.is_set():
            raise CommandError(
                "the Kafka broker has ended by itself; its data are gone.", code="broker_ended"
            )
    _tell("The broker stopped; its data are gone.")


def _lines(path: Path) -> list[str]:
    try:
        # `splitlines` also cuts at U+2028 and others, which JSON has within texts.
        lines = path.read_bytes().decode().split("\n")
        return [line.removesuffix("\r") for line in lines if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(
            f"{path} cannot be read: {error}. Nothing was started.", code="input_unreadable"
        ) from None


def _check_free(host: str, port: int) -> None:
    with socket.socket() as attempt:
        if port and attempt.connect_ex((host, port)) == 0:
            raise CommandError(
                f"something listens on {host}:{port} already. Nothing was started. Use its topics,"
                " or name another --port.",
                code="listen_failed",
            )


def _tell(message: str) -> None:
    """Print a message on standard error; standard output has the address only."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(message, markup=False)

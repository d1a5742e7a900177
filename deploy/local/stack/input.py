"""What the job of the stack reads: files, or a topic of a broker whose jars are staged."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from holdfast.deploy.local.demo import files
from holdfast.deploy.local.demo.generator import TrafficFile
from holdfast.deploy.local.demo.layout import Layout
from holdfast.deploy.local.kafka import has_client, require_client
from holdfast.deploy.local.kafka.jars import KINDS, STAGED, problems
from holdfast.deploy.local.stack.settings import Input, StackSettings
from holdfast.sink.contract.exits import CommandError

PARTITIONS = 2
"""As in `deploy/compose`."""


@dataclass(frozen=True)
class Feed:
    """Where generated events go. `job` are the options of the job that reads them."""

    add: Callable[[TrafficFile], None]
    job: tuple[str, ...]
    must_run: Callable[[], None]
    """Raises `CommandError` when what takes the events has ended."""
    broker: str | None
    """HOST:PORT of the broker; None for files."""


def chosen(wanted: Input) -> Input:
    """Return what `AUTO` means here: a topic with the client and all jars as pinned, else files."""
    if wanted is not Input.AUTO:
        return wanted
    is_staged = has_client() and not any(problems(kind, STAGED / kind) for kind in KINDS)
    return Input.TOPIC if is_staged else Input.FILES


@contextmanager
def feeding(layout: Layout, settings: StackSettings, source: Input) -> Iterator[Feed]:
    """Yield where events go; a broker runs until the block ends.

    Raises `CommandError` for a topic without its jars, or for a broker that does not start.
    """
    if source is Input.FILES:
        layout.events.mkdir()
        paths = ("--path", str(layout.events), "--max-files-per-trigger", "1")
        yield Feed(lambda file: files.add(layout.events, file), paths, lambda: None, None)
        return
    require_client()
    # Imported here, because files need no client of Kafka.
    from holdfast.deploy.local.kafka import topics  # noqa: PLC0415 - see above
    from holdfast.deploy.local.kafka.broker import Broker  # noqa: PLC0415 - as above

    with Broker(layout.broker, port=settings.kafka_port) as broker:
        topics.make(broker.admin(), settings.topic, PARTITIONS)
        writer = topics.Writer(broker.bootstrap_servers)

        def add(file: TrafficFile) -> None:
            for line in file.lines:
                partition = topics.partition_of(line, PARTITIONS)
                writer.write(settings.topic, line, partition=partition)

        def must_run() -> None:
            writer.poll()
            if broker.pid is None:
                raise CommandError(
                    f"the stack's Kafka broker has ended. Read {broker.log}.", code="broker_ended"
                )

        topic = ("--bootstrap-servers", broker.bootstrap_servers, "--topic", settings.topic)
        yield Feed(add, topic, must_run, broker.bootstrap_servers)
        broker.stop()

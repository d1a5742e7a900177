"""Starts every process of the stack, feeds it, and watches until a signal or the end of one."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path

from holdfast.deploy.local.demo import database, generator
from holdfast.deploy.local.demo.generator import TrafficFile
from holdfast.deploy.local.demo.layout import Layout
from holdfast.deploy.local.demo.processes import Child, Interrupts, Processes
from holdfast.deploy.local.demo.receiver import await_end, await_ready
from holdfast.deploy.local.java import spark_environment
from holdfast.deploy.local.kafka import has_client, require_client
from holdfast.deploy.local.kafka.jars import KINDS, STAGED, problems
from holdfast.deploy.local.locks import locked
from holdfast.deploy.local.postgres import resolve_server
from holdfast.deploy.local.stack import dashboards as pages
from holdfast.deploy.local.stack import leftovers
from holdfast.deploy.local.stack.settings import Input, StackSettings
from holdfast.sink.contract.exits import CommandError, ExitCode

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


def chosen_input(option: Input) -> Input:
    """Return what `AUTO` means here: a topic with the client and all jars as pinned, else files."""
    if option is not Input.AUTO:
        return option
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
        yield Feed(lambda file: generator.add_file(layout.events, file), paths, lambda: None, None)
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


SCRAPE = "5s"

PROMETHEUS_STAGED = Path(".holdfast/prometheus/usr/bin")
"""Where `make prometheus` unpacks Debian's package. Debian's Alertmanager has to be installed: it
reads a template below /usr/share."""


def _monitoring(processes: Processes, folder: Path, settings: StackSettings) -> dict[str, Child]:
    """Start what is there, by name; none where the programs are missing. Clears the folder."""
    children: dict[str, Child] = {}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if program := shutil.which("prometheus") or shutil.which(
        "prometheus", path=PROMETHEUS_STAGED.absolute()
    ):
        words = [program, f"--config.file={_prometheus(folder, settings)}"]
        words += [f"--storage.tsdb.path={folder / 'prometheus'}"]
        words += [f"--web.listen-address=127.0.0.1:{settings.prometheus_port}"]
        children["prometheus"] = processes.start_program("prometheus", words)
    if program := shutil.which("alertmanager") or shutil.which("prometheus-alertmanager"):
        words = [program, f"--config.file={_copied(folder, 'compose', 'alertmanager.yml')}"]
        words += [f"--storage.path={folder / 'alertmanager'}", "--cluster.listen-address="]
        words += [f"--web.listen-address=127.0.0.1:{settings.alertmanager_port}"]
        children["alertmanager"] = processes.start_program("alertmanager", words)
    return children


def _prometheus(folder: Path, settings: StackSettings) -> Path:
    """Write the configuration; JSON is YAML too."""
    alertmanager = f"127.0.0.1:{settings.alertmanager_port}"
    config = {
        "global": {"scrape_interval": SCRAPE, "evaluation_interval": SCRAPE},
        "rule_files": [str(_copied(folder, "prometheus", "holdfast.yml"))],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
        "scrape_configs": [
            {"job_name": "holdfast", "static_configs": [{"targets": list(settings.scraped)}]}
        ],
    }
    path = folder / "prometheus.yml"
    path.write_text(json.dumps(config, indent=2), encoding="utf-8")
    return path


def _copied(folder: Path, *names: str) -> Path:
    """Copy a file of `deploy`, which may be in an archive."""
    with as_file(files("holdfast.deploy").joinpath(*names)) as source:
        return Path(shutil.copy(source, folder / names[-1]))


START_SECONDS = 120.0
LOCK_SECONDS = 1.0
HISTORY_SECONDS = 1.0
"""Between two files of the hours before the start."""

LIVE_SECONDS = 10.0
"""Between two files of events that happen now. A batch of a slow machine takes less."""

DATABASES = ("holdfast_stack", "holdfast_stack_payouts")

_WHAT = {
    "kafka": "the topic that the job reads",
    "payouts": "receives the webhooks",
    "dispatcher": "/metrics and /healthz",
    "console": "log in with the token",
    "job": "/metrics",
    "prometheus": "metrics, and the alerts that fire",
    "alertmanager": "alerts",
    "dashboards": "every panel, drawn from prometheus",
}


@dataclass(frozen=True)
class Part:
    """A running part, for the person who looks at it."""

    name: str
    address: str
    what: str


@dataclass(frozen=True)
class Started:
    """The stack when all of it answers."""

    parts: tuple[Part, ...]
    token: str
    """Of the role admin, for the console and the API."""
    dsn: str


def run(
    layout: Layout,
    settings: StackSettings,
    *,
    seed: int,
    events: int,
    source: Input,
    started: Callable[[Started], None],
    cleared: Callable[[int], None],
) -> None:
    """Run the stack until a signal, which ends every process.

    `cleared` is called with the number of processes that an earlier stack left and that were ended,
    if there were any, `started` once when everything answers. Raises `Interrupted` for the signal,
    `Failed` for a process that ends by itself, and `CommandError` for a port that is taken or a
    directory that is not the stack's.
    """
    layout.claim()
    with ExitStack() as stack:
        lock = stack.enter_context(locked(layout.lock, LOCK_SECONDS, _occupied(layout)))
        if left := leftovers.end(layout):
            cleared(left)
        source = chosen_input(source)
        _require_free(settings, source)
        leftovers.mark(layout, lock)
        interrupts = stack.enter_context(Interrupts())
        layout.clear()
        layout.make_secret()
        layout.policy.write_text(generator.policy_toml(), encoding="utf-8")
        server = stack.enter_context(resolve_server(None, layout.postgres))
        dsns = database.prepare(server, DATABASES)
        environment = {
            **spark_environment(),
            "HOLDFAST_DSN": dsns[0],
            "HOLDFAST_ALLOW_SECRET_DIR": str(layout.secrets),
        }
        # Processes end before the broker does: the job commits what it has read.
        feed = stack.enter_context(feeding(layout, settings, source))
        processes = stack.enter_context(Processes(layout.logs, environment))
        ports = _ports(settings)
        children = _start(processes, layout, settings, dsns[1], feed, interrupts)
        for name, child in children.items():
            await_ready(partial(_listens, ports[name]), child, START_SECONDS, interrupts)
        addresses = {name: f"http://127.0.0.1:{ports[name]}" for name in children}
        if feed.broker:
            addresses = {"kafka": feed.broker, **addresses}
        if prometheus := addresses.get("prometheus"):
            stack.enter_context(pages.serving(settings.dashboards_port, prometheus))
            addresses["dashboards"] = f"http://127.0.0.1:{settings.dashboards_port}"
        parts = tuple(
            Part(name, address, _WHAT[name.partition(" ")[0]])
            for name, address in addresses.items()
        )
        started(Started(parts, _token(environment), dsns[0]))
        now = datetime.now(UTC)
        history = generator.traffic(seed, events, generator.opens_before(now))
        live = generator.Endless(seed + 1, events, now)
        _feed(feed, history, live, children.values(), interrupts)


def _start(
    processes: Processes,
    layout: Layout,
    settings: StackSettings,
    payouts_dsn: str,
    feed: Feed,
    interrupts: Interrupts,
) -> dict[str, Child]:
    """Start every part, each when what it needs is there."""
    secret = f"file:{layout.secret}"
    children: dict[str, Child] = {}
    children["payouts"] = processes.start(
        "payouts",
        [
            *("payouts", "serve", "--port", str(settings.payouts_port)),
            *("--port-file", str(layout.port), "--secret-ref", secret),
        ],
        {"PAYOUTS_DSN": payouts_dsn},
    )
    await_ready(layout.port.exists, children["payouts"], START_SECONDS, interrupts)
    url = f"http://127.0.0.1:{settings.payouts_port}/webhooks"
    endpoint = ["endpoint", "add", "payouts", "--url", url, "--secret-ref", secret]
    adding = processes.start("endpoint", [*endpoint, "--allow-cidr", "127.0.0.1/32"])
    await_end(adding, START_SECONDS, interrupts)
    for number, port in enumerate(settings.dispatcher_ports, 1):
        children[f"dispatcher {number}"] = processes.start(
            f"dispatcher-{number}", ["dispatch", "--listen", f"127.0.0.1:{port}"]
        )
    children["console and API"] = processes.start(
        "api", ["api", "serve", "--port", str(settings.console_port)]
    )
    words = [
        *("job", "run", *feed.job, "--policy", str(layout.policy)),
        *("--checkpoint", str(layout.checkpoint), "--stream", settings.stream),
        *("--metrics-port", str(settings.job_port)),
    ]
    children["job"] = processes.start("job", words)
    return children | _monitoring(processes, layout.root / "monitoring", settings)


def _feed(
    feed: Feed,
    history: Iterable[TrafficFile],
    live: generator.Endless,
    children: Iterable[Child],
    interrupts: Interrupts,
) -> None:
    """Add the events of the last hours, then those of now as they happen, until a signal comes."""
    watched, waiting = list(children), iter(history)
    while True:
        past = next(waiting, None)
        file = past or live.until(datetime.now(UTC))
        if file.lines:
            feed.add(file)
        feed.must_run()
        for child in watched:
            child.must_run()
        interrupts.pause(HISTORY_SECONDS if past else LIVE_SECONDS)


def _token(environment: Mapping[str, str]) -> str:
    words = ["token", "add", "stack", "--role", "admin", "--days", "1", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.dispatcher.cli.main", *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CommandError(
            f"no token could be added: {done.stderr.strip()}", code="token_not_added"
        )
    return str(json.loads(done.stdout)["secret"])


def _ports(settings: StackSettings) -> dict[str, int]:
    dispatchers = {f"dispatcher {n}": p for n, p in enumerate(settings.dispatcher_ports, 1)}
    return {
        "payouts": settings.payouts_port,
        **dispatchers,
        "console and API": settings.console_port,
        "job": settings.job_port,
        "prometheus": settings.prometheus_port,
        "alertmanager": settings.alertmanager_port,
    }


def _require_free(settings: StackSettings, source: Input) -> None:
    ports = [*_ports(settings).values(), settings.dashboards_port]
    if source is Input.TOPIC:
        ports.append(settings.kafka_port)
    taken = [str(port) for port in ports if _listens(port)]
    if taken:
        raise CommandError(
            f"something listens on port {', '.join(taken)} of 127.0.0.1 already. Nothing was"
            " started; stop it and try again.",
            ExitCode.USAGE,
            code="cannot_listen",
        )


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def _occupied(layout: Layout) -> str:
    return (
        f"the stack in {layout.root} is running already. Nothing was changed; stop it with Ctrl-C"
        " or `holdfast local down`, or choose another --directory."
    )

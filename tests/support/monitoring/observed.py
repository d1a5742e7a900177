"""Every service under load, observed by a real Prometheus.

The job reads files that arrive all the time, its decisions go to the payouts service and to a
second receiver that fails now and then, and a thread calls the API. The events begin hours ago and
move faster than the clock: the job catches up, as after an outage.
"""

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zlib import crc32

import httpx
import psycopg

from holdfast.deploy.local.ports import free_port
from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.console.admin_api import Api, serving
from tests.support.dispatch.dispatching import Process, dispatching
from tests.support.dispatch.webhooks import Behaviour, Seen, WebhookReceiver, answer, listening
from tests.support.documents.runbook import Site, running_site
from tests.support.job.job_process import QUICK, JobProcess, job_process
from tests.support.job.jobs import event, put
from tests.support.monitoring.prometheus import Prometheus, scraping
from tests.support.waiting import eventually

MERCHANTS = 40
EVENTS = 60
"""Of a file."""

BEHIND = timedelta(hours=24)
STEP = timedelta(minutes=10)
"""How far the time of events moves on from file to file."""

FILE_SECONDS = 1.5


@dataclass
class Load:
    """Files for the job, and requests for the API, from threads of its own."""

    events: Path
    api: Api
    _moment: datetime = field(default_factory=lambda: datetime.now(UTC) - BEHIND)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _ended: threading.Event = field(default_factory=threading.Event)
    _draw: random.Random = field(default_factory=lambda: random.Random(482))  # noqa: S311 - traffic

    def file(self, *more: bytes) -> None:
        """Put one file, with `more` lines at its end."""
        number = next(self._numbers)
        self._moment = min(self._moment + STEP, datetime.now(UTC))
        lines = [
            event(
                f"e-{number}-{n}",
                "00:00",
                self._draw.randint(10_000, 4_000_000),
                f"m_{self._draw.randrange(MERCHANTS)}",
                occurred_at=(self._moment - timedelta(seconds=n)).strftime("%Y-%m-%dT%H:%M:%SZ"),
            )
            for n in range(EVENTS)
        ]
        put(self.events, number, [*lines, *more])

    def ask(self) -> None:
        """Send requests: most are answered, some name what is not there, few have no token."""
        self.api.ask("GET", "/status", "viewer" if self._draw.random() > 0.02 else None)
        if self._draw.random() < 0.2:
            self.api.ask("GET", f"/entries/hf_{'0' * 32}", "viewer")

    def run(self, step: Callable[[], None], seconds: float) -> None:
        """Repeat a step until the end."""
        while not self._ended.wait(seconds):
            step()

    def end(self) -> None:
        self._ended.set()


@dataclass
class Observed:
    """What runs, and where it is observed."""

    site: Site
    ledger: WebhookReceiver
    dispatcher: Process
    job: JobProcess
    api: Api
    load: Load
    prometheus: Prometheus

    def until(self, condition: Callable[[], object], seconds: float = 120) -> None:
        """Wait for a condition."""
        eventually(condition, seconds)

    def shows(self, expression: str, seconds: float = 120) -> None:
        """Wait until an expression has a sample above 0."""
        self.until(lambda: any(each.value > 0 for each in self.prometheus.ask(expression)), seconds)


def _now_and_then(seen: Seen) -> Behaviour:
    drawn = crc32((seen.header("webhook-timestamp") + seen.subject).encode())
    return answer(503) if drawn % 9 == 0 else answer()


def add_endpoint(target: Site, name: str, url: str, *options: str) -> None:
    """Add an endpoint by the command."""
    done = holdfast(
        *("endpoint", "add", name, "--url", url, "--allow-cidr", "127.0.0.0/8"),
        *("--secret-ref", f"file:{target.secret_file}", *options),
        dsn=target.dsn,
    )
    assert done.returncode == ExitCode.OK, done.stderr


@contextmanager
def observed(
    dsn: str, payouts_dsn: str, folder: Path, rules: Path | None = None
) -> Iterator[Observed]:
    """Run everything until the block ends; it begins when decisions were delivered."""
    with ExitStack() as stack:
        result = stack.enter_context(running_site(dsn, payouts_dsn, folder))
        result.serve()
        result.endpoint()
        ledger = stack.enter_context(listening())
        ledger.script = _now_and_then
        add_endpoint(result, "ledger", ledger.url, "--schedule", ",".join(["1"] * 32))
        ports = free_port(), free_port()
        addresses = [f"127.0.0.1:{port}" for port in ports]
        dispatcher = stack.enter_context(
            dispatching(dsn, folder / "dispatch.log", "--listen", addresses[0])
        )
        api = stack.enter_context(serving(dsn))
        targets = [*addresses, str(httpx.URL(api.url).netloc, "ascii"), f"127.0.0.1:{result.port}"]
        with psycopg.connect(dsn, autocommit=True) as db:
            # Autovacuum finds nothing to do in a short run.
            db.execute("VACUUM holdfast.lane, holdfast.batch")
        prometheus = stack.enter_context(scraping(folder / "prometheus", targets, rules))
        load = Load(folder / "events", api)
        load.file()
        job = stack.enter_context(job_process(folder, dsn, *QUICK, "--metrics-port", str(ports[1])))
        for step, seconds in ((load.file, FILE_SECONDS), (load.ask, 0.2)):
            thread = threading.Thread(target=load.run, args=(step, seconds))
            thread.start()
            stack.callback(thread.join)
        stack.callback(load.end)
        seen = Observed(result, ledger, dispatcher, job, api, load, prometheus)
        job.until(lambda: result.value("SELECT count(*) FROM holdfast.attempt WHERE status = 200"))
        yield seen

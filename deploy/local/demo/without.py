"""The demo without Holdfast: the same traffic and the same kills, with requests from Spark.

    event files -> a job with requests in foreachBatch -> a service that acts on each request
                   killed twice

The kills are those of the demo, where this job can meet them: after the batch that blocks m_482 was
sent and before Spark recorded it, and after the service has acted on a request and before the
sender has heard of it. The report is that of the demo: the service's actions against a
recomputation of the files.
"""

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from holdfast.deploy.local.demo import generator, story
from holdfast.deploy.local.demo.layout import Layout
from holdfast.deploy.local.demo.live import View
from holdfast.deploy.local.demo.processes import Interrupts, Kill, Processes, spark_has_recorded
from holdfast.deploy.local.demo.recompute import Action, audit, expected, recompute
from holdfast.deploy.local.demo.run import LOCK_SECONDS, Parts, java_options, occupied
from holdfast.deploy.local.demo.scenario import POLL_SECONDS, RUN_SECONDS
from holdfast.deploy.local.java import spark_environment
from holdfast.deploy.local.locks import locked
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.key import Key

JOB = "holdfast.deploy.local.demo.without_job"
LATER = 30
"""How many requests after the first kill the second one comes."""
KILLS = 2


@dataclass(frozen=True)
class Report:
    """The result of a run, with the names of the demo's own report."""

    events: int
    decisions: int
    requests: int
    actions_applied: int
    actions_lost: int
    actions_repeated: int
    out_of_order: int
    spark_kills: int
    seconds: float

    @property
    def is_complete(self) -> bool:
        """Whether Spark was killed at both points, so that the run shows what it is to show."""
        return self.spark_kills == KILLS

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=2)


class Service:
    """A service that acts on each request, and keeps its actions in their order."""

    def __init__(self, flag: Path) -> None:
        """It touches `flag` when it has acted on the request that it does not answer."""
        self.actions: list[Action] = []
        self.unanswered = 0
        """The number of that request; 0: it answers all."""
        self._flag = flag
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def act(self, decision: dict[str, Any]) -> None:
        """Act on a decision; return when it is to be answered."""
        with self._lock:
            self.actions.append(_action(decision))
            number = len(self.actions)
        if number == self.unanswered:
            self._flag.touch()
            self._ended.wait()

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Listen on a free port of this machine until the block ends; its URL."""
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                service.act(json.loads(self.rfile.read(length)))
                with suppress(ConnectionError):
                    self.send_response(204)
                    self.end_headers()

            def log_message(self, *_words: Any) -> None:
                """Print nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            self._ended.set()
            server.shutdown()
            thread.join()
            server.server_close()


def _action(decision: dict[str, Any]) -> Action:
    end = rfc3339(datetime.fromisoformat(decision["window_end"]))
    parts = ["payout-hold/v1", decision["merchant_id"], end, decision["action"]]
    return Action(
        Key.of([*parts, str(decision["ordinal"])]).text,
        decision["merchant_id"],
        decision["action"],
        end,
        decision["exposure_minor"],
    )


def run(layout: Layout, *, seed: int, events: int, view: View) -> Report:
    """Run it in `layout`. Raises `CommandError` on a failure and `Interrupted` on a signal."""
    started = time.monotonic()
    layout.claim()
    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts())
        stack.enter_context(locked(layout.lock, LOCK_SECONDS, occupied(layout)))
        environment = {**spark_environment(), **java_options(), "PYTHONUNBUFFERED": "1"}
        layout.clear()
        stack.enter_context(view)
        layout.policy.write_text(generator.policy_toml(), encoding="utf-8")
        generator.write_files(layout.events, generator.traffic(seed, events))
        should = recompute(layout.events, layout.policy, round(time.time() * 1_000_000))
        view.say(
            f"{should.lines:,} lines. A separate calculation expects {len(should.decisions)}"
            " decisions. A job without an outbox sends each by a request."
        )
        service = Service(layout.flags / "request")
        url = stack.enter_context(service.serving())
        processes = stack.enter_context(Processes(layout.logs, environment))
        kills = _play(
            Parts(layout, processes, view, interrupts),
            service,
            url,
            should.batch_of(story.HERO, "block"),
        )
        verdict = audit(expected(should.decisions), service.actions)
        report = Report(
            events=should.lines,
            decisions=len(should.decisions),
            requests=len(service.actions),
            actions_applied=verdict.applied,
            actions_lost=verdict.lost,
            actions_repeated=verdict.repeated,
            out_of_order=verdict.out_of_order,
            spark_kills=kills,
            seconds=round(time.monotonic() - started, 1),
        )
        layout.report.write_text(report.as_json() + "\n", encoding="utf-8")
        return report


def _play(parts: Parts, service: Service, url: str, batch_id: int) -> int:
    """Run the job to its end; return how many of the two kills were proved."""
    layout, processes, view, interrupts = parts
    paths = (layout.events, layout.checkpoint, layout.policy)
    command = [sys.executable, "-m", JOB, *map(str, paths), url]
    after_batch = Kill("S9", batch_id + 1, layout.flags / "spark")
    in_request = Kill("request", 0, layout.flags / "request")
    spark = processes.start_program("spark", command, after_batch.environment)
    deadline = time.monotonic() + RUN_SECONDS
    while spark.exit_code != 0:
        interrupts.pause(POLL_SECONDS)
        if after_batch.due:
            after_batch.done = True
            after_batch.proved = not spark_has_recorded(layout.checkpoint, batch_id)
            spark.kill()
            view.say(
                f"Killed Spark (SIGKILL) in batch {batch_id}, which blocks {story.HERO}: every"
                " request was answered, but Spark has not recorded the batch. It sends all again."
            )
            service.unanswered = len(service.actions) + LATER
            spark = processes.start_program("spark", command)
        elif in_request.due:
            in_request.done = in_request.proved = True
            spark.kill()
            view.say(
                f"Killed Spark (SIGKILL) in request {service.unanswered}: the service has acted,"
                " and the sender has not heard of it. Its batch is sent again."
            )
            spark = processes.start_program("spark", command)
        elif spark.exit_code not in {None, 0}:
            spark.must_run()
        if time.monotonic() > deadline:
            raise spark.failure(f"did not finish within {RUN_SECONDS:.0f} s")
    return after_batch.proved + in_request.proved


def show(report: Report, console: Console) -> None:
    """Print the summary."""
    table = Table(title="What happened without an outbox", title_justify="left", show_header=False)
    table.add_column(justify="right", style="bold")
    table.add_column()
    for count, what in (
        (report.decisions, "decisions expected, recomputed from the files"),
        (report.spark_kills, "kills of Spark"),
        (report.requests, "requests that the service received, and acted on"),
        (report.actions_lost, "actions lost"),
        (report.actions_repeated, "actions repeated"),
        (report.out_of_order, "actions out of order"),
    ):
        table.add_row(f"{count:,}", what)
    console.print()
    console.print(table)

"""`holdfast listen`: a receiver on this machine that verifies, shows and misbehaves on demand."""

import json
import secrets as random_source
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import typer

from dispatcher.cli.workbench import listen_options as options
from dispatcher.cli.workbench import wire_options as wire
from dispatcher.cli.workbench.listen_ready import add_command, ready_text, url_of
from sink.contract.exits import ExitCode

if TYPE_CHECKING:
    from dispatcher.workbench.listen.arrival import Arrival


def listen(
    secret_ref: wire.SecretRefs = None,
    host: options.Host = "127.0.0.1",
    port: options.Port = 8098,
    path: options.Path = "/webhooks",
    status: options.Status = None,
    latency: options.Latency = 0,
    fail_rate: options.FailRate = None,
    drop_after_apply: options.DropAfterApply = None,
    retry_after: options.RetryAfter = None,
    seed: options.Seed = None,
    until: options.Until = None,
    for_: options.For = None,
    expect: options.Expect = None,
    allow_gaps: options.AllowGaps = False,
    subject_member: options.SubjectMember = "merchant_id",
    as_json: options.AsLines = False,
) -> None:
    """Receive deliveries, show them, and report at the end what was lost, doubled, out of order.

    Ctrl-C ends it, and so do --until and --for. Keys are kept in memory. Exit code 4 when a
    delivery was lost, out of order, refused, or came with another body than before.
    """
    with wire.installed("listen"):
        from dispatcher.cli.workbench import listen_lines as lines  # noqa: PLC0415 - see wire_options
        from dispatcher.workbench.listen.listener import Listener  # noqa: PLC0415 - as above
        from dispatcher.workbench.listen.server import Server  # noqa: PLC0415 - as above

    known = wire.secrets_of(secret_ref)
    asked = options.misbehaviour_of(status, fail_rate, latency, drop_after_apply, retry_after)
    seconds = None if for_ is None else wire.seconds_of("--for", for_)
    expected = None if expect is None else options.keys_of(expect)
    drawn = seed if seed is not None else random_source.randbelow(options.SEED_MAX)
    events: SimpleQueue[str | OSError] = SimpleQueue()
    out = _Output(events, as_json=as_json)
    listener = Listener(
        known,
        asked,
        seed=drawn,
        subject_member=subject_member,
        heard=lambda arrival: out.say(
            lines.arrival_text(arrival), lambda: lines.arrival_json(arrival)
        ),
        unanswered=out.unanswered,
    )
    with Server(host, port, options.path_of(path)) as server, _heeding_signals(events):
        url = url_of(*server.address, path)
        command = add_command(url, server.address[0], secret_ref or [])
        seeded = drawn if asked.draws else None
        out.say(
            ready_text(url, command, seeded),
            lambda: {"event": "ready", "url": url, "command": command, "seed": seeded},
        )
        server.start(listener, lambda: _count(listener.acknowledged, until, events))
        try:
            ended = events.get(timeout=seconds)
        except Empty:
            ended = "time"
        server.stop()
    if isinstance(ended, OSError):
        raise ended
    report = listener.report(expected, gaps_allowed=allow_gaps)
    out.say(lines.report_text(report), lambda: lines.report_json(report))
    if report.degraded:
        raise typer.Exit(ExitCode.DEGRADED)


class _Output:
    """Standard output, whole lines, one at a time; a reader that left ends the command."""

    def __init__(self, events: "SimpleQueue[str | OSError]", *, as_json: bool) -> None:
        self._events = events
        self._as_json = as_json

    def say(self, text: str, content: Any) -> None:
        """Print `text`, or the JSON line that `content()` is."""
        line = json.dumps(content(), separators=(",", ":")) if self._as_json else text
        try:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        except OSError as error:
            self._events.put(error)

    def unanswered(self, arrival: "Arrival") -> None:
        """Say that the sender of an arrival had hung up."""
        self.say(
            f"{'':8}  (the sender had hung up before the answer to {arrival.key or 'it'})",
            lambda: {"event": "unanswered", "number": arrival.number, "key": arrival.key},
        )


@contextmanager
def _heeding_signals(events: "SimpleQueue[str | OSError]") -> Iterator[None]:
    """Note a signal as an event; a second one does what it does without us."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def stop(number: int, _frame: object) -> None:
        restore()
        events.put(signal.Signals(number).name)

    for number in numbers:
        signal.signal(number, stop)
    try:
        yield
    finally:
        restore()


def _count(acknowledged: int, until: int | None, events: "SimpleQueue[str | OSError]") -> None:
    if until is not None and acknowledged >= until:
        events.put("until")

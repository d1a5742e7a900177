"""`holdfast listen`: a local receiver that verifies and shows deliveries, and fails on demand."""

import json
import re
import secrets as random_source
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.dispatcher.cli.workbench import options
from holdfast.sink.contract.exits import ExitCode

if TYPE_CHECKING:
    from holdfast.dispatcher.workbench.listen.misbehaviour import Misbehaviour
    from holdfast.dispatcher.workbench.listen.record import Arrival


EXPECT_BYTES_MAX = 256 * 1024 * 1024
SEED_MAX = 2**32 - 1
_KEY = re.compile(rb"\bhf_[0-9a-f]{32}\b")
_PATH = re.compile(r"/[A-Za-z0-9._~/-]{0,255}")

Host = Annotated[str, typer.Option("--host", help="The address to listen on.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes a free port.")]
Path = Annotated[str, typer.Option("--path", help="The path that accepts deliveries.")]
Status = Annotated[
    int | None,
    typer.Option("--status", help="Always answer this status; only a 2xx applies the delivery."),
]
Latency = Annotated[
    int, typer.Option("--latency", help="Milliseconds between applying and answering.")
]
FailRate = Annotated[
    float | None,
    typer.Option(
        "--fail-rate",
        help="Share of deliveries to fail with --status, or 500; they are not applied.",
    ),
]
DropAfterApply = Annotated[
    str | None,
    typer.Option(
        "--drop-after-apply",
        help="Apply, then cut the connection: 3 for the first three, 0.2 or 20% for a share.",
    ),
]
RetryAfter = Annotated[
    int | None,
    typer.Option(
        "--retry-after",
        help="Retry-After in seconds, with --status or --fail-rate (default status: 503).",
    ),
]
Seed = Annotated[
    int | None, typer.Option("--seed", min=0, max=SEED_MAX, help="Repeat the same random faults.")
]
Until = Annotated[
    int | None,
    typer.Option("--until", min=1, help="End after this many keys are acknowledged."),
]
For = Annotated[str | None, typer.Option("--for", help="End after this time: 500ms, 90s, 5m, 2h.")]
Expect = Annotated[
    str | None, typer.Option("--expect", help="A file that contains the expected keys (hf_...).")
]
AllowGaps = Annotated[
    bool,
    typer.Option(
        "--allow-gaps",
        help="Do not count missing sequences as lost: the endpoint filters by --type.",
    ),
]
SubjectMember = Annotated[
    str, typer.Option("--subject-member", help="The member of data that names the subject.")
]
AsLines = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]


def misbehaviour_of(
    status: int | None,
    fail_rate: float | None,
    latency: int,
    drop_after_apply: str | None,
    retry_after: int | None,
) -> "Misbehaviour":
    """Validate the fault options; raises `CommandError`."""
    from holdfast.dispatcher.workbench.listen.misbehaviour import Cut, Misbehaviour  # noqa: PLC0415 - see options

    try:
        cut = Cut() if drop_after_apply is None else Cut.of(drop_after_apply)
    except ValueError as error:
        raise options.usage(f"--drop-after-apply must be {error}.", code="invalid_value") from None
    misbehaviour = Misbehaviour(status, fail_rate, latency, cut, retry_after)
    if fault := misbehaviour.fault():
        raise options.usage(f"{fault}.", code="invalid_value")
    return misbehaviour


def keys_of(path: str) -> frozenset[str]:
    """Find the keys in a file of any format; raises `CommandError`."""
    content = options.bytes_of(path, "the file of --expect", EXPECT_BYTES_MAX)
    keys = frozenset(key.decode("ascii") for key in _KEY.findall(content))
    if not keys:
        raise options.usage(
            f"--expect {path} holds no key (hf_ and 32 hex digits).", code="invalid_file"
        )
    return keys


def path_of(path: str) -> str:
    """Validate the path; raises `CommandError`."""
    if not _PATH.fullmatch(path):
        raise options.usage("--path must be a path such as /webhooks.", code="invalid_value")
    return path


def listen(
    secret_ref: options.SecretRefs = None,
    host: Host = "127.0.0.1",
    port: Port = 8098,
    path: Path = "/webhooks",
    status: Status = None,
    latency: Latency = 0,
    fail_rate: FailRate = None,
    drop_after_apply: DropAfterApply = None,
    retry_after: RetryAfter = None,
    seed: Seed = None,
    until: Until = None,
    for_: For = None,
    expect: Expect = None,
    allow_gaps: AllowGaps = False,
    subject_member: SubjectMember = "merchant_id",
    as_json: AsLines = False,
) -> None:
    """Receive and show deliveries; at the end, report those lost, duplicated or out of order.

    Ctrl-C, --until or --for end it. Keys are kept in memory. Exit code 4: a delivery was lost,
    out of order, refused, or arrived again with a different body.
    """
    with options.installed("listen"):
        from holdfast.dispatcher.cli.workbench import listen_output as output  # noqa: PLC0415 - see options
        from holdfast.dispatcher.workbench.listen.listener import Listener  # noqa: PLC0415 - as above
        from holdfast.dispatcher.workbench.listen.server import Server  # noqa: PLC0415 - as above

    known = options.secrets_of(secret_ref)
    misbehaviour = misbehaviour_of(status, fail_rate, latency, drop_after_apply, retry_after)
    seconds = None if for_ is None else options.seconds_of("--for", for_)
    expected = None if expect is None else keys_of(expect)
    drawn = seed if seed is not None else random_source.randbelow(SEED_MAX)
    events: SimpleQueue[str | OSError] = SimpleQueue()
    out = _Output(events, as_json=as_json)
    listener = Listener(
        known,
        misbehaviour,
        seed=drawn,
        subject_member=subject_member,
        on_arrival=lambda arrival: out.say(
            output.arrival_text(arrival), lambda: output.arrival_json(arrival)
        ),
        unanswered=out.unanswered,
    )
    with Server(host, port, path_of(path)) as server, _heeding_signals(events):
        url = output.url_of(*server.address, path)
        command = output.add_command(url, server.address[0], secret_ref or [])
        seeded = drawn if misbehaviour.draws else None
        out.say(
            output.ready_text(url, command, seeded),
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
    out.say(output.report_text(report), lambda: output.report_json(report))
    if report.degraded:
        raise typer.Exit(ExitCode.DEGRADED)


class _Output:
    """Writes whole lines to standard output; a closed pipe ends the command."""

    def __init__(self, events: "SimpleQueue[str | OSError]", *, as_json: bool) -> None:
        self._events = events
        self._as_json = as_json

    def say(self, text: str, content: Any) -> None:
        """Print `text`, or `content()` as one line of JSON."""
        line = json.dumps(content(), separators=(",", ":")) if self._as_json else text
        try:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        except OSError as error:
            self._events.put(error)

    def unanswered(self, arrival: "Arrival") -> None:
        """Report that the sender disconnected before it got its answer."""
        self.say(
            f"{'':8}  (the sender disconnected before the answer to {arrival.key or 'it'})",
            lambda: {"event": "unanswered", "number": arrival.number, "key": arrival.key},
        )


@contextmanager
def _heeding_signals(events: "SimpleQueue[str | OSError]") -> Iterator[None]:
    """Turn the first SIGINT or SIGTERM into an event; a second one gets its previous handler."""
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

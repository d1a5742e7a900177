"""A page of the runbook as a person follows it: its commands in order, and what it says of each.

    ```sh
    holdfast status
    ```
    Exit 4, shows: `1 dead letter`.

What stands in `<ANGLES>` the person knows, or finds in what was shown before. "Again until exit"
stands for a command that is given until it says so. A line that begins with "Elsewhere:" is done by
somebody else: the test does it.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from holdfast.deploy.local.ports import free_port
from holdfast.dispatcher.outbound.reference_rule import ALLOW_DIR
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.failpoints import ENVIRONMENT
from tests.support.command import holdfast
from tests.support.dispatch.dispatching import Process, dispatching
from tests.support.dispatch.payouts import READY
from tests.support.dispatch.sender import NOON, WINDOW, hold, secret_text
from tests.support.processes import end
from tests.support.waiting import eventually

PAGES = Path(__file__).parents[3] / "deploy" / "runbook"

AGAIN_SECONDS = 60.0

_PLACE = re.compile(r"<([A-Z_]+)>")
_EXPECTED = re.compile(r"(Exit|Again until exit) (\d)(?:, shows: (`[^`]+`(?:, `[^`]+`)*))?\.")
_ELSEWHERE = re.compile(r"Elsewhere: \*\*(.+?)\.\*\*.*")
_SHELL = re.compile(r"[|>$;&\n]")


@dataclass(frozen=True)
class Step:
    """A command with what must come of it; or, with a code of None, what somebody else does."""

    line: int
    text: str
    code: int | None = None
    shows: tuple[str, ...] = ()
    again: bool = False

    @property
    def places(self) -> list[str]:
        """The names in angles."""
        return _PLACE.findall(self.text)


def steps(page: str) -> list[Step]:
    """Read a page; raises ValueError for a command without a line that says what comes of it."""
    results: list[Step] = []
    lines = page.splitlines()
    at = 0
    while at < len(lines):
        if lines[at] == "```sh":
            end = lines.index("```", at)
            expected = _EXPECTED.match(lines[end + 1]) if end + 1 < len(lines) else None
            if expected is None:
                raise ValueError(f"line {end + 2}: nothing says what comes of the command")
            again, code, shows = expected.groups()
            results.append(
                Step(
                    *(at + 2, "\n".join(lines[at + 1 : end]), int(code)),
                    tuple(re.findall(r"`([^`]+)`", shows or "")),
                    again != "Exit",
                )
            )
            at = end
        elif (elsewhere := _ELSEWHERE.match(lines[at])) is not None:
            results.append(Step(at + 1, elsewhere[1]))
        at += 1
    return results


@contextmanager
def refused_as(page: str, kind: type[Exception]) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """Expect an error of the job that has every word by which the page tells it."""
    with pytest.raises(kind) as refusal:
        yield refusal
    [line] = re.findall(r"^The job says: (.+)\.$", (PAGES / f"{page}.md").read_text(), re.MULTILINE)
    message = f"{refusal.typename}: {refusal.value}"
    assert [words for words in re.findall(r"`([^`]+)`", line) if words not in message] == []


@dataclass
class Reader:
    """Somebody who follows pages on one database.

    `known` is what the person knows, by its name in angles; `finds` are the patterns of what is
    found in what was shown, the newest first.
    """

    dsn: str
    environment: Mapping[str, str]
    known: dict[str, str]
    finds: Mapping[str, str] = field(default_factory=dict)
    shown: list[str] = field(default_factory=list)

    def follow(self, page: str, elsewhere: Mapping[str, Callable[[], object]]) -> None:
        """Do what a page of this name says, from its top to its end."""
        path = PAGES / f"{page}.md"
        done: list[str] = []
        for step in steps(path.read_text()):
            if step.code is None:
                elsewhere[step.text]()
                done.append(step.text)
            else:
                self.give(path.name, step)
        assert done == list(elsewhere)

    def give(self, page: str, step: Step) -> None:
        """Give one command; fails with what was shown where it is not what the page says."""
        command = _PLACE.sub(lambda place: self._known(place[1]), step.text)
        message = f"{page}:{step.line}: {command}\n"

        def differs() -> str:
            done = self._run(command)
            text = done.stdout + done.stderr
            self.shown.append(text)
            flat = " ".join(text.split())
            missing = [words for words in step.shows if words not in flat]
            if done.returncode == step.code and not missing:
                return ""
            return f"{message}exit {done.returncode}, not {step.code}; not shown: {missing}\n{text}"

        if step.again:
            with suppress(AssertionError):  # the next line says what was shown
                eventually(lambda: not differs(), AGAIN_SECONDS)
        difference = differs()
        assert not difference, difference

    def _known(self, name: str) -> str:
        if name not in self.known:
            results = [match for text in self.shown for match in re.findall(self.finds[name], text)]
            assert results, f"<{name}> was not shown"
            self.known[name] = results[-1]
        return self.known[name]

    def _run(self, command: str) -> subprocess.CompletedProcess[str]:
        words = shlex.split(command)
        if words[0] == "holdfast" and not _SHELL.search(command.replace("\\\n", "")):
            return holdfast(*words[1:], dsn=self.dsn, environment=self.environment)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, **self.environment, "HOLDFAST_DSN": self.dsn, "PATH": path}
        return subprocess.run(
            ["bash", "-o", "pipefail", "-ec", command],  # noqa: S607 - the shell of the reader
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


STOP_SECONDS_MAX = 20

_TIMES = """
    SELECT c.relname, array_agg(a.attname::text)
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.relnamespace = 'holdfast'::regnamespace
      AND c.relkind IN ('r', 'p') AND NOT c.relispartition
      AND a.atttypid = 'timestamptz'::regtype AND a.attnum > 0 AND NOT a.attisdropped
      AND a.attname <> 'occurred_at' AND c.relname <> 'dispatcher_instance'
    GROUP BY 1
"""

_SCHEDULE = ",".join(["1"] * 32)
"""Longer than the receiver takes to start on a busy machine."""

_LEFT = """
    SELECT (SELECT count(*) FROM holdfast.batch WHERE routed_at IS NULL)
         + (SELECT count(*) FROM holdfast.lane WHERE delivered_sequence < last_sequence)
"""


def decided(merchant: str, window: int, action: str, **changes: Any) -> dict[str, Any]:
    """One decision that the payouts service applies, at the end of the n-th window after noon."""
    end = NOON + window * WINDOW
    start, stop = (f"{each:%Y-%m-%dT%H:%M:%SZ}" for each in (end - WINDOW, end))
    return {
        "subject": merchant,
        "type": f"payout_hold.{action}",
        "key": ["payout-hold/v1", merchant, stop, action, "1"],
        "occurred_at": end,
        "data": hold(merchant, action, window_start=start, window_end=stop, **changes),
    }


def rows(*decisions: dict[str, Any]) -> pa.Table:
    """Decisions as a job hands them to the sink."""
    return pa.Table.from_pylist(list(decisions))


@dataclass
class Site:
    """One outbox and one receiver; whatever is started on them is ended with the world."""

    dsn: str
    db: psycopg.Connection
    payouts_dsn: str
    folder: Path
    port: int = field(default_factory=free_port)
    secret_file: Path = field(init=False)
    _services: list[subprocess.Popen[str]] = field(default_factory=list)
    _dispatcher: Process | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        self.secret_file = self.folder / "secret"
        self.secret_file.write_text(secret_text())
        self.secret_file.chmod(0o600)

    @property
    def url(self) -> str:
        """Where decisions are sent."""
        return f"http://127.0.0.1:{self.port}/webhooks"

    def endpoint(self, *options: str) -> None:
        """Add the endpoint `payouts` by the command: with short retries, without a breaker."""
        done = holdfast(
            *("endpoint", "add", "payouts", "--url", self.url, "--allow-cidr", "127.0.0.0/8"),
            *("--secret-ref", f"file:{self.secret_file}"),
            *("--schedule", _SCHEDULE, "--breaker-threshold", "0", *options),
            dsn=self.dsn,
        )
        assert done.returncode == ExitCode.OK, done.stderr

    def dispatch(self) -> Process:
        """Run a dispatcher from now on; returns when it has begun."""
        log = self.folder / "dispatch.log"
        self._dispatcher = self._stack.enter_context(dispatching(self.dsn, log))
        self._dispatcher.says("dispatcher.started")
        return self._dispatcher

    def serve(self, *files: Path, failpoints: str = "") -> subprocess.Popen[str]:
        """Run the payouts service on the endpoint's port, with the secrets in `files`."""
        references = [f"file:{file}" for file in files or (self.secret_file,)]
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "holdfast.dispatcher.cli.main", "payouts", "serve"),
                *("--port", str(self.port)),
                *(word for each in references for word in ("--secret-ref", each)),
            ],
            env={**os.environ, "PAYOUTS_DSN": self.payouts_dsn, ENVIRONMENT: failpoints},
            stdout=subprocess.PIPE,
            text=True,
        )
        self._services.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(READY), f"exit code {process.poll()}: {line!r}"
        return process

    def stop_serving(self) -> None:
        """End what serves, in order."""
        while self._services:
            end(self._services.pop(), STOP_SECONDS_MAX)

    def age(self, by: timedelta) -> None:
        """Move back everything that was recorded, as if it had happened then; at most a day."""
        moved = sql.SQL("{0} = {0} - {1}")
        with self.db.transaction():
            for table, columns in self.db.execute(_TIMES).fetchall():
                changes = [moved.format(sql.Identifier(each), sql.Literal(by)) for each in columns]
                self.db.execute(
                    sql.SQL("UPDATE holdfast.{} SET {}").format(
                        sql.Identifier(table), sql.SQL(", ").join(changes)
                    )
                )

    def value(self, query: str) -> Any:
        """Return the one value that a query yields here."""
        (value,) = self.db.execute(query.encode()).fetchone() or (None,)
        return value

    def delivered(self) -> None:
        """Wait until nothing is left to deliver; fails as soon as the dispatcher has ended."""
        self.until(lambda: self.value(_LEFT) == 0)

    def until(self, condition: Callable[[], object]) -> None:
        """Wait for a condition, as long as the dispatcher lives."""
        assert self._dispatcher
        self._dispatcher.until(condition)

    def applied(self) -> list[tuple[Any, ...]]:
        """Return merchant, action and effect of what the payouts service did, in its order."""
        with psycopg.connect(self.payouts_dsn) as connection:
            return connection.execute(
                "SELECT merchant_id, action, effect FROM payouts.hold_history ORDER BY 1, sequence"
            ).fetchall()

    def close(self) -> None:
        """End everything."""
        self._stack.close()
        self.stop_serving()


@contextmanager
def running_site(dsn: str, payouts_dsn: str, folder: Path) -> Iterator[Site]:
    """Yield a world with nothing in it."""
    with pytest.MonkeyPatch.context() as patch, psycopg.connect(dsn, autocommit=True) as db:
        patch.setenv(ALLOW_DIR, str(folder))
        site = Site(dsn, db, payouts_dsn, folder)
        try:
            yield site
        finally:
            site.close()

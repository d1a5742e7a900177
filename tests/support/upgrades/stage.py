"""A database, a payouts service, and processes of several versions on them, under steady load."""

import hashlib
import platform
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from time import monotonic
from typing import Any

import psycopg

from holdfast.sink.contract.exits import ExitCode
from tests.support.dispatch.dispatching import SECRET
from tests.support.dispatch.payouts import Payouts
from tests.support.upgrades import builds
from tests.support.upgrades.builds import Build, Load, Pair, Running
from tests.support.waiting import eventually

WIDTH = 120
"""Of what commands say."""

REPLAYED_MAX = 3
"""A dispatcher sends one of a subject about every second."""


@dataclass(frozen=True)
class Proof:
    """What the receiver's tables say of the decisions in the outbox."""

    decided: int
    resent: int
    """Deliveries that an operator asked for once more."""
    lost: int
    """Decisions on which the receiver has not acted."""
    repeated: int
    """Deliveries that nobody asked for: the key had arrived, or the receiver acted on it twice."""
    out_of_order: int
    """Decisions that first arrived before an earlier one of their subject."""
    altered: int
    """Deliveries whose body is not the one in the outbox, byte for byte."""

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.lost or self.repeated or self.out_of_order or self.altered)

    def __str__(self) -> str:
        return (
            f"lost {self.lost}, repeated {self.repeated}, out of order {self.out_of_order},"
            f" altered {self.altered}"
        )


class Stage:
    """Every process by the name of its place: `sink NAME`, `dispatcher NAME`, `api NAME`."""

    def __init__(
        self, dsn: str, db: psycopg.Connection, folder: Path, payouts: Payouts, load: Load
    ) -> None:
        self.say: Callable[[str], None] = lambda _: None
        """Is told what happens, line by line."""
        self.dsn, self.db, self._payouts, self._load = dsn, db, payouts, load
        self._folder = folder
        self._stack = ExitStack()
        self._running: dict[str, Running] = {}
        self._versions: dict[str, str] = {}
        self._token = ""
        self._starts = 0
        self._began = monotonic()
        self._patience = load.patience_seconds + load.batches

    def begin(self, build: Build) -> None:
        """Let `build` migrate the database, and add an endpoint and a token."""
        build.json(self.dsn, "db", "upgrade")
        words = ("--url", f"{self._payouts.url}/webhooks", "--allow-cidr", "127.0.0.0/8")
        secret = ("--secret-ref", f"env:{SECRET}")
        build.json(self.dsn, "endpoint", "add", "payouts", *words, *secret)
        token = ("token", "add", "reader", "--role", "viewer")
        self._token = build.json(self.dsn, *token)["secret"]

    def title(self, text: str) -> None:
        """Say that a part begins."""
        self.say(f"\n{text}")

    def command(self, build: Build, *words: str, code: int = 0) -> str:
        """Run `holdfast WORDS`, which ends with `code`; returns what it said."""
        done = build.run(self.dsn, *words)
        output = f"{done.stdout}{done.stderr}".strip()
        assert done.returncode == code, f"{build.name}: {words}: {done.returncode}\n{output}"
        ended = f", exit code {code}" if code else ""
        self.say(f"$ holdfast {shlex.join(words)}    # {build.name} version{ended}")
        for line in self._neutral(output).splitlines():
            indent = "  " + line[: len(line) - len(line.lstrip())]
            self.say(fill(line.strip(), WIDTH, initial_indent=indent, subsequent_indent=indent))
        return output

    def start(self, place: str, build: Build) -> None:
        """Start a process on a build."""
        self._starts += 1
        folder = self._folder / f"{self._starts:02}"
        folder.mkdir()
        kind, _, name = place.partition(" ")
        started: AbstractContextManager[Running]
        if kind == "sink":
            state = self._folder / f"{name}.state"
            started = builds.sink(build, self.dsn, state, self._load, folder)
        elif kind == "dispatcher":
            started = builds.dispatcher(build, self.dsn, folder)
        else:
            started = builds.server(build, self.dsn, self._token, folder)
        self._running[place] = self._stack.enter_context(started)
        self._versions[place] = build.name

    def stop(self, place: str) -> None:
        """End a process in order."""
        del self._versions[place]
        self._running.pop(place).end()

    def fails(self, place: str) -> str:
        """Wait until a process has failed by itself; returns what it said."""
        del self._versions[place]
        process = self._running.pop(place).process
        assert process.ends(self._patience) == ExitCode.FAILED, process.text()
        return process.text()

    def replace(self, place: str, build: Build) -> None:
        """End a process, and start it on another build."""
        before = self._versions[place]
        self.stop(place)
        self.start(place, build)
        self.say(f"{place}: {before} -> {build.name}")

    def goes_on(self) -> None:
        """Wait until every process has done its share of work."""
        begun = {place: each.progress() for place, each in self._running.items()}

        def worked() -> bool:
            for each in self._running.values():
                each.check()
            return all(
                each.progress() >= begun[place] + self._load.batches
                for place, each in self._running.items()
            )

        eventually(worked, self._patience)
        self._report()

    def replay(self, build: Build, subject: str) -> None:
        """Let an operator of a build send delivered decisions again, and wait for the end."""
        limit = ("--limit", str(REPLAYED_MAX), "--reason", "a test")
        words = ("--subject", subject, "--state", "delivered", *limit)
        plan = build.json(self.dsn, "replay", "plan", *words)
        build.json(self.dsn, "replay", "apply", str(plan["id"]), "--wait")
        self.say(f"operator on {build.name}: {REPLAYED_MAX} decisions of {subject} sent again")

    def revision(self) -> str:
        """Return the revision of the database."""
        return str(self._value("SELECT version_num FROM holdfast.alembic_version"))

    def end(self) -> Proof:
        """End the sinks, let the rest be delivered, end everything; returns what arrived."""
        for place in [each for each in self._running if each.startswith("sink")]:
            self.stop(place)
        eventually(lambda: self._value(UNDELIVERED) == 0, self._patience)
        for place in list(self._running):
            self.stop(place)
        return self._proof()

    def close(self) -> None:
        """End whatever still runs."""
        self._stack.close()

    def _value(self, query: str) -> Any:
        (value,) = self.db.execute(query.encode()).fetchone() or (None,)
        return value

    def _report(self) -> None:
        versions: dict[str, list[str]] = defaultdict(list)
        for place, version in sorted(self._versions.items()):
            versions[version].append(place)
        newest_last = sorted(versions.items(), reverse=True)
        running = "; ".join(f"{each}: {', '.join(where)}" for each, where in newest_last)
        ((applied,),) = self._payouts.rows("SELECT count(*) FROM payouts.hold_history")
        decided = self._value("SELECT count(*) FROM holdfast.entry")
        self.say(f"  schema {self.revision()}   {running}")
        self.say(
            f"  {monotonic() - self._began:.0f} s   decided {decided:,}, applied {applied:,},"
            f" failed attempts {self._value(FAILED)}"
        )

    def _neutral(self, text: str) -> str:
        """Return a text without the machine's name, the folders and the numbers of processes."""
        text = text.replace(platform.node(), "host").replace(str(self._folder), "...")
        return re.sub(r"\bpid \d+", "pid N", text)

    def _proof(self) -> Proof:
        written = sum(
            int(state.read_text()) * self._load.subjects for state in self._folder.glob("*.state")
        )
        entries = self.db.execute(ENTRIES).fetchall()
        hashes = {key: hashlib.sha256(body).digest() for key, body in entries}
        assert len(hashes) == len(entries) == written
        assert self._value(FAILED) == 0
        asked = Counter(dict(self.db.execute(REPLAYED).fetchall()))
        arrived = self._payouts.rows(ARRIVED)
        acted = Counter(key for (key,) in self._payouts.rows(ACTED))
        times = Counter(key for key, *_ in arrived)
        return Proof(
            decided=len(entries),
            resent=asked.total(),
            lost=len(hashes.keys() - acted.keys()),
            repeated=(times - Counter(hashes.keys()) - asked).total()
            + (acted - Counter(hashes.keys())).total(),
            out_of_order=_out_of_order(arrived),
            altered=sum(hashes.get(key) != sha256 for key, _, _, sha256 in arrived),
        )


def _out_of_order(arrived: list[tuple[Any, ...]]) -> int:
    """Return how many decisions did not come right after the one before them of their subject."""
    newest: Counter[str] = Counter()
    met = set()
    wrong = 0
    for key, subject, sequence, _ in arrived:
        if key not in met:
            met.add(key)
            wrong += sequence != newest[subject] + 1
            newest[subject] = sequence
    return wrong


ENTRIES = "SELECT 'hf_' || replace(key::text, '-', ''), body FROM holdfast.entry"
REPLAYED = """
    SELECT 'hf_' || replace(key::text, '-', ''), count(*) FROM holdfast.replay_item
    WHERE settled_at IS NOT NULL GROUP BY key
"""
FAILED = "SELECT count(*) FROM holdfast.attempt WHERE outcome <> 'delivered'"
UNDELIVERED = """
    SELECT count(*) FROM holdfast.entry e WHERE NOT EXISTS (
        SELECT FROM holdfast.attempt a
        WHERE a.subject_id = e.subject_id AND a.sequence = e.sequence AND a.outcome = 'delivered'
    )
"""
ARRIVED = """
    SELECT key, subject, sequence, body_sha256 FROM payouts.delivery_log ORDER BY arrival
"""
ACTED = "SELECT key FROM payouts.hold_history WHERE effect = 'applied'"

JOBS = ("sink a", "sink b")
DISPATCHERS = ("dispatcher 1", "dispatcher 2")
API, OTHER_API = "api 1", "api 2"
"""One replaces the other."""


def steps(text: str) -> list[str]:
    """Return the lines of a transcript that say what was done, without numbers of revisions."""
    texts = [line for line in text.splitlines() if line and not line.startswith("  ")]
    return [re.sub(r"\b00\d\d\b", "N", line) for line in texts]


def roll(stage: Stage, old: Build, new: Build, pair: Pair) -> None:
    """Upgrade what `old` runs to `new`, go back, upgrade again, and contract."""
    _begin(stage, old)
    before = stage.revision()
    _expand(stage, new, pair)
    _dispatchers(stage, new)
    stage.title("Roll the API server: start the other one beside it, then end it")
    stage.start(OTHER_API, new)
    stage.goes_on()
    stage.stop(API)
    stage.replay(old, "m_a_0")
    stage.replay(new, "m_b_0")
    _jobs(stage, new)
    _back(stage, old, new, before)
    _again(stage, new, pair)
    _contract(stage, old, new, pair)


def _begin(stage: Stage, old: Build) -> None:
    stage.title("The previous version runs")
    stage.begin(old)
    for place in (*JOBS, *DISPATCHERS, API):
        stage.start(place, old)
    stage.goes_on()


def _expand(stage: Stage, new: Build, pair: Pair) -> None:
    stage.title("Expand the database; everything that runs continues")
    refused = stage.command(new, "status", code=1)
    assert "holdfast db upgrade" in refused
    stage.command(new, "db", "upgrade", "--plan", "--expand")
    refused = stage.command(new, "db", "upgrade", code=1)
    for kind in ("sink a", "sink b", "dispatcher", "api"):
        assert kind in refused
    stage.command(new, "db", "upgrade", "--expand")
    assert stage.revision() == pair.expand
    stage.goes_on()


def _dispatchers(stage: Stage, build: Build) -> None:
    stage.title("Roll the dispatchers, one after the other")
    for place in DISPATCHERS:
        stage.replace(place, build)
        stage.goes_on()


def _jobs(stage: Stage, build: Build) -> None:
    stage.title("Roll the jobs, one after the other")
    for place in JOBS:
        stage.replace(place, build)
        stage.goes_on()


BACK = ("--reason", "back to the version before", "--yes")


def _back(stage: Stage, old: Build, new: Build, before: str) -> None:
    stage.title("The way back, until the contract: first the processes, then the database")
    refused = stage.command(new, "db", "downgrade", before, *BACK, code=1)
    for kind in ("sink a", "sink b", "dispatcher", "api"):
        assert kind in refused
    for place in (*JOBS, OTHER_API, *DISPATCHERS):
        stage.replace(place, old)
    stage.goes_on()
    stage.command(new, "db", "downgrade", before, *BACK)
    assert stage.revision() == before
    stage.goes_on()


def _again(stage: Stage, new: Build, pair: Pair) -> None:
    stage.title("Forward again: expand, dispatchers, API server")
    stage.command(new, "db", "upgrade", "--expand")
    for place in (*DISPATCHERS, OTHER_API):
        stage.replace(place, new)
    stage.goes_on()
    refused = stage.command(new, "db", "upgrade", code=1)
    assert "sink b" in refused
    assert "dispatcher" not in refused
    assert stage.revision() == pair.expand
    _jobs(stage, new)


def _contract(stage: Stage, old: Build, new: Build, pair: Pair) -> None:
    stage.title("Contract the database")
    stage.command(new, "db", "upgrade")
    assert stage.revision() == pair.contract
    stage.goes_on()
    refused = stage.command(old, "status", code=1)
    assert "upgrade this process" in refused

"""Two versions of Holdfast at once on one database, under load: forward, back, forward, contract.

Real: the code of an older commit and of this tree (or of a next release of it, with an expand and a
contract revision of its own), sinks, dispatchers, API servers, replays by the commands of both, and
the database. Asserted: nothing is lost, repeated or out of order, nobody is refused who is served,
and whoever is not served any more says so.

HOLDFAST_TEST_UPGRADE_BATCHES batches are written by every sink in every stage.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sink.contract.schema import SCHEMA_REVISION
from tests.support.dispatch.dispatching import SECRET, add_endpoint
from tests.support.dispatch.sender import secret_text
from tests.support.dispatch.webhooks import WebhookReceiver
from tests.support.upgrades import builds, sink_load
from tests.support.upgrades.builds import Build, Running
from tests.support.upgrades.revisions import Pair
from tests.support.waiting import eventually

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]

BATCHES = int(os.environ.get("HOLDFAST_TEST_UPGRADE_BATCHES", "15"))
WAIT_SECONDS = 120.0 + BATCHES

EXACT = "61b94d3"
"""The last version that demands exactly its own revision, 0031."""

PREVIOUS = os.environ.get("HOLDFAST_TEST_PREVIOUS", "56d6e1d")
"""A version that accepts a range: a commit or a tag."""

Start = Callable[[Build], AbstractContextManager[Running]]


class Stage:
    """The database, and every process on it by the name of its place."""

    def __init__(
        self, dsn: str, db: psycopg.Connection, folder: Path, receiver: WebhookReceiver
    ) -> None:
        self.dsn, self.db, self.receiver = dsn, db, receiver
        self._folder = folder
        self._stack = ExitStack()
        self._running: dict[str, Running] = {}
        self._token = ""
        self._starts = 0

    def begin(self, build: Build) -> None:
        """Let `build` migrate the database, and add an endpoint and a token."""
        build.json(self.dsn, "db", "upgrade")
        add_endpoint(self.db, self.receiver.url)
        words = ("token", "add", "reader", "--role", "viewer")
        self._token = build.json(self.dsn, *words)["secret"]

    def start(self, place: str, build: Build) -> None:
        """Start `sink NAME`, `dispatcher NAME` or `api NAME` on a build."""
        self._starts += 1
        folder = self._folder / f"{self._starts:02}"
        folder.mkdir()
        kind, _, name = place.partition(" ")
        started: AbstractContextManager[Running]
        if kind == "sink":
            started = builds.sink(build, self.dsn, self._folder / f"{name}.state", folder)
        elif kind == "dispatcher":
            started = builds.dispatcher(build, self.dsn, folder)
        else:
            started = builds.server(build, self.dsn, self._token, folder)
        self._running[place] = self._stack.enter_context(started)

    def stop(self, place: str) -> None:
        """End a process in order."""
        self._running.pop(place).end()

    def fails(self, place: str) -> str:
        """Wait until a process has failed by itself; returns what it said."""
        process = self._running.pop(place).process
        assert process.ends(WAIT_SECONDS) > 0
        return process.text()

    def replace(self, place: str, build: Build) -> None:
        """End a process, and start it on another build."""
        self.stop(place)
        self.start(place, build)

    def goes_on(self) -> None:
        """Wait until every process has done its share of work."""
        begun = {place: each.progress() for place, each in self._running.items()}

        def worked() -> bool:
            for each in self._running.values():
                each.check()
            return all(
                each.progress() >= begun[place] + BATCHES for place, each in self._running.items()
            )

        eventually(worked, WAIT_SECONDS)

    def replay(self, build: Build, subject: str) -> None:
        """Let an operator of a build send ten delivered decisions again, and wait for the end."""
        words = ("--subject", subject, "--state", "delivered", "--limit", "10", "--reason", "test")
        plan = build.json(self.dsn, "replay", "plan", *words)
        build.json(self.dsn, "replay", "apply", str(plan["id"]), "--wait")

    def revision(self) -> str:
        """Return the revision of the database."""
        (found,) = self.db.execute("SELECT version_num FROM holdfast.alembic_version").fetchone()  # type: ignore[misc]
        return str(found)

    def end(self) -> None:
        """End the sinks, let the rest be delivered, end everything, and check what arrived."""
        for place in [each for each in self._running if each.startswith("sink")]:
            self.stop(place)
        eventually(lambda: self._value(UNDELIVERED) == 0, WAIT_SECONDS)
        for place in list(self._running):
            self.stop(place)
        self._check()

    def close(self) -> None:
        """End whatever still runs."""
        self._stack.close()

    def _value(self, query: str) -> Any:
        (value,) = self.db.execute(query.encode()).fetchone() or (None,)
        return value

    def _check(self) -> None:
        written = sum(
            int(state.read_text()) * sink_load.SUBJECTS for state in self._folder.glob("*.state")
        )
        entries = self.db.execute(ENTRIES).fetchall()
        bodies = {key: bytes(body) for key, _, _, body in entries}
        assert len(bodies) == len(entries) == written
        assert self._value(FAILED) == 0
        replayed = dict(self.db.execute(REPLAYED).fetchall())
        arrived = Counter(each.header("webhook-id") for each in self.receiver.seen)
        wanted = {key: 1 + replayed.get(key, 0) for key in bodies}
        assert arrived == wanted
        order: dict[str, list[int]] = defaultdict(list)
        met = set()
        for each in self.receiver.seen:
            key = each.header("webhook-id")
            assert each.body == bodies[key]
            if key not in met:
                order[each.subject].append(each.sequence)
            met.add(key)
        for subject, sequences in order.items():
            assert sequences == list(range(1, len(sequences) + 1)), subject


ENTRIES = """
    SELECT 'hf_' || replace(e.key::text, '-', ''), s.name, e.sequence, e.body
    FROM holdfast.entry e JOIN holdfast.subject s ON s.id = e.subject_id
"""
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


@pytest.fixture
def stage(
    make_database: Callable[[str | None], str],
    tmp_path: Path,
    receiver: WebhookReceiver,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Stage]:
    monkeypatch.setenv(SECRET, secret_text())
    dsn = make_database(None)
    with psycopg.connect(dsn, autocommit=True) as db:
        stage = Stage(dsn, db, tmp_path, receiver)
        try:
            yield stage
        finally:
            stage.close()


OLD_PLACES = ("sink a", "dispatcher 1", "api 1")
NEW_PLACES = ("sink b", "dispatcher 2", "api 2")


def _side_by_side(stage: Stage, old: Build, new: Build) -> None:
    """Beside the old processes start new ones, let operators of both act, go back, go forward."""
    for place in NEW_PLACES:
        stage.start(place, new)
    stage.goes_on()
    stage.replay(old, "m_b_1")
    stage.replay(new, "m_a_1")
    for place in NEW_PLACES:
        stage.replace(place, old)
    stage.goes_on()
    for place in NEW_PLACES:
        stage.stop(place)


def _replace_all(stage: Stage, new: Build) -> None:
    for place in OLD_PLACES:
        stage.replace(place, new)
        stage.goes_on()
    stage.replay(new, "m_a_2")


def test_version_that_demands_its_own_revision_and_this_one_share_its_database(
    stage: Stage, tmp_path: Path
) -> None:
    old, this = builds.build_of(EXACT, tmp_path / "exact"), builds.this_build()
    _run_by(stage, old)
    _side_by_side(stage, old, this)
    _replace_all(stage, this)
    assert stage.revision() == "0031"

    upgraded = this.json(stage.dsn, "db", "upgrade")
    assert upgraded == {"before": "0031", "after": SCHEMA_REVISION, "changed": True}
    stage.goes_on()
    refused = old.run(stage.dsn, "status")
    assert refused.returncode == 1
    assert "0031" in refused.stderr
    stage.end()


def test_version_before_and_a_next_one_share_an_expanded_database_until_it_is_contracted(
    stage: Stage, tmp_path: Path
) -> None:
    old = builds.build_of(PREVIOUS, tmp_path / "previous")
    new, pair = builds.next_build(tmp_path / "next")
    _run_by(stage, old)
    before = stage.revision()

    refused = new.run(stage.dsn, "status")
    assert refused.returncode == 1
    assert "holdfast db upgrade" in refused.stderr
    _expand(stage, new, pair)
    _side_by_side(stage, old, new)

    assert new.json(stage.dsn, "db", "downgrade", before)["after"] == before
    stage.goes_on()
    _expand(stage, new, pair)
    for place in NEW_PLACES:
        stage.start(place, new)
    _replace_all(stage, new)

    assert new.json(stage.dsn, "db", "upgrade")["after"] == pair.contract
    stage.goes_on()
    refused = old.run(stage.dsn, "status")
    assert refused.returncode == 1
    assert "upgrade this process" in refused.stderr
    stage.end()


def test_contract_that_is_forced_ends_the_older_sink_and_loses_nothing(
    stage: Stage, tmp_path: Path
) -> None:
    old = builds.build_of(PREVIOUS, tmp_path / "previous")
    new, pair = builds.next_build(tmp_path / "next")
    stage.begin(old)
    stage.start("sink a", old)
    stage.goes_on()
    assert new.json(stage.dsn, "db", "upgrade", "--force")["after"] == pair.contract
    assert "writer" in stage.fails("sink a")
    stage.start("sink a", new)
    stage.start("dispatcher 1", new)
    stage.goes_on()
    stage.end()


def _run_by(stage: Stage, old: Build) -> None:
    """Make the database with a version, and run every process of it."""
    stage.begin(old)
    for place in OLD_PLACES:
        stage.start(place, old)
    stage.goes_on()


def _expand(stage: Stage, new: Build, pair: Pair) -> None:
    """Expand the database while the older version works on it; more is refused."""
    refused = new.run(stage.dsn, "db", "upgrade")
    assert refused.returncode == 1
    for kind in ("sink a", "dispatcher", "api"):
        assert kind in refused.stderr
    assert new.json(stage.dsn, "db", "upgrade", "--expand")["after"] == pair.expand
    stage.goes_on()

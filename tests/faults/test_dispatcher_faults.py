"""Dispatchers that are killed, stopped for too long, or cut off from the database.

Real: the command in its own process, Postgres, the receiver's socket, the signals. Nothing is
doubled. What is asserted on: what the receiver saw, the rows of lanes and attempts, the log.
"""

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from dispatcher.core.lifecycle import LaneState
from sink.contract.exits import ExitCode
from tests.support import webhooks
from tests.support.decisions import Decisions
from tests.support.delivery import attempts, expire_leases, lanes
from tests.support.dispatching import add_endpoint, dispatching
from tests.support.waiting import eventually
from tests.support.webhooks import Gate, WebhookReceiver, answer

pytestmark = pytest.mark.faults

# Short, so that a lease runs out within the test: an attempt may take 500 ms, a lease lasts 2.5 s.
OPTIONS = ("--drain", "--lease-seconds", "2.5")
TIMEOUTS = {"connect_timeout_ms": 500, "total_timeout_ms": 500}
SUBJECTS = [f"m_{n}" for n in range(5)]


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with webhooks.listening() as receiver:
        yield receiver


@pytest.fixture
def decisions(dsn: str) -> Iterator[Decisions]:
    with Decisions(dsn) as decisions:
        yield decisions


def assert_all_delivered(
    db: psycopg.Connection, receiver: WebhookReceiver, subjects: list[str], count: int
) -> None:
    """Everything arrived, first arrivals in order, duplicates bounded by unknown outcomes."""
    for subject in subjects:
        assert list(dict.fromkeys(receiver.sequences(subject))) == list(range(1, count + 1))
    assert {lane.state for lane in lanes(db).values()} == {LaneState.IDLE}
    rows = attempts(db)
    assert Counter(row.outcome for row in rows)["delivered"] == count * len(subjects)
    unknown = sum(row.outcome == "unknown" for row in rows)
    arrivals = Counter(seen.header("webhook-id") for seen in receiver.seen)
    assert arrivals.total() - len(arrivals) <= unknown
    bodies = {(seen.header("webhook-id"), seen.body) for seen in receiver.seen}
    assert len(bodies) == len(arrivals)
    of_entry: dict[tuple[str, int], list[int]] = {}
    for row in rows:
        of_entry.setdefault((row.subject, row.sequence), []).append(row.number)
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in of_entry.values())


@pytest.mark.parametrize("point", ["D1=kill", "D2=kill", "D8=kill@3", "D10=kill@3", "D11=kill"])
def test_killed_dispatcher_loses_nothing_and_repeats_only_the_unknown(
    dsn: str,
    db: psycopg.Connection,
    decisions: Decisions,
    receiver: WebhookReceiver,
    tmp_path: Path,
    point: str,
) -> None:
    add_endpoint(db, receiver.url, **TIMEOUTS)
    decisions.write(*SUBJECTS * 3)
    with dispatching(dsn, tmp_path / "first", *OPTIONS, failpoints=point) as first:
        assert first.ends() == -signal.SIGKILL, first.text()
    expire_leases(db)
    with dispatching(dsn, tmp_path / "second", *OPTIONS) as second:
        assert second.ends() == ExitCode.OK, second.text()
    assert_all_delivered(db, receiver, SUBJECTS, 3)


@pytest.mark.parametrize(
    ("point", "arrivals"), [("D2", [1, 2]), ("D8", [1, 1, 2]), ("D10", [1, 2, 1, 2])]
)
def test_dispatcher_stopped_beyond_its_lease_does_no_harm_when_it_wakes(
    dsn: str,
    db: psycopg.Connection,
    decisions: Decisions,
    receiver: WebhookReceiver,
    tmp_path: Path,
    point: str,
    arrivals: list[int],
) -> None:
    """It stands still at the point (SIGSTOP), another takes over, then it goes on where it was."""
    add_endpoint(db, receiver.url, **TIMEOUTS)
    decisions.write("m_1", "m_1")
    stop = f"{point}=stop"
    with dispatching(dsn, tmp_path / "first", *OPTIONS, failpoints=stop) as first:
        eventually(lambda: _is_stopped(first.process.pid))
        with dispatching(dsn, tmp_path / "second", *OPTIONS) as second:
            assert second.ends() == ExitCode.OK, second.text()
        before = (lanes(db), attempts(db))
        first.send(signal.SIGCONT)
        assert first.ends() == ExitCode.OK, first.text()
        assert first.lines("lease.lost"), first.text()
    assert (lanes(db), attempts(db)) == before
    assert receiver.sequences("m_1") == arrivals
    assert_all_delivered(db, receiver, ["m_1"], 2)
    assert len(second.lines("lease.expired")) == 2


@contextmanager
def _database_away(server_dsn: str, dsn: str) -> Iterator[None]:
    """Cut the dispatchers' connections and let nobody in, until the block ends."""
    name = sql.Identifier(str(conninfo_to_dict(dsn)["dbname"]))
    allow = sql.SQL("ALTER DATABASE {} WITH ALLOW_CONNECTIONS {}")
    cut = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = %s AND application_name = %s"
    )
    with psycopg.connect(server_dsn, autocommit=True) as server:
        server.execute(allow.format(name, False))
        try:
            server.execute(cut, [name.as_string().strip('"'), "holdfast-dispatcher"])
            yield
        finally:
            server.execute(allow.format(name, True))


def _is_stopped(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "T"


def test_two_dispatchers_never_send_one_lane_at_once(
    dsn: str,
    db: psycopg.Connection,
    decisions: Decisions,
    receiver: WebhookReceiver,
    tmp_path: Path,
) -> None:
    add_endpoint(db, receiver.url)
    subjects = [f"m_{n}" for n in range(20)]
    for _ in range(5):
        decisions.write(*subjects * 2)
    options = ("--drain", "--claim-lanes", "3")
    with (
        dispatching(dsn, tmp_path / "first", *options) as first,
        dispatching(dsn, tmp_path / "second", *options) as second,
    ):
        assert (first.ends(), second.ends()) == (0, 0), first.text() + second.text()
    assert receiver.overlaps == 0
    assert_all_delivered(db, receiver, subjects, 10)


def test_results_are_settled_when_the_database_comes_back_within_the_lease(
    dsn: str,
    server_dsn: str,
    db: psycopg.Connection,
    decisions: Decisions,
    receiver: WebhookReceiver,
    tmp_path: Path,
) -> None:
    add_endpoint(db, receiver.url, total_timeout_ms=20_000)
    gate = Gate(answer(200))
    receiver.script = lambda _seen: gate
    decisions.write("m_1", "m_2")
    with dispatching(dsn, tmp_path / "log", "--drain") as running:
        eventually(lambda: len(receiver.seen) == 2)
        with _database_away(server_dsn, dsn):
            gate.open()
            running.says("store.away")
        assert running.ends() == ExitCode.OK, running.text()
        assert len(running.lines("store.back")) == len(running.lines("store.away")), running.text()
    with psycopg.connect(dsn) as again:
        assert [row.outcome for row in attempts(again)] == ["delivered", "delivered"]
    assert len(receiver.seen) == 2


def test_results_are_dropped_when_the_database_is_away_for_too_long(
    dsn: str,
    server_dsn: str,
    db: psycopg.Connection,
    decisions: Decisions,
    receiver: WebhookReceiver,
    tmp_path: Path,
) -> None:
    add_endpoint(db, receiver.url, **TIMEOUTS)
    decisions.write("m_1")
    with dispatching(dsn, tmp_path / "log", *OPTIONS, failpoints="D10=stop") as running:
        eventually(lambda: _is_stopped(running.process.pid))
        with _database_away(server_dsn, dsn):
            running.send(signal.SIGCONT)
            running.says("result.dropped")
        assert running.ends() == ExitCode.OK, running.text()
    with psycopg.connect(dsn) as again:
        assert [row.outcome for row in attempts(again)] == ["unknown", "delivered"]
    assert receiver.sequences("m_1") == [1, 1]

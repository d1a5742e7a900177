"""What happens to rows of the quarantine while they are put back: by others, and by accidents."""

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from holdfast.dispatcher.cli.quarantine.row_files import write_lines
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.quarantine.actions import open_among, put_entries, put_lines
from holdfast.dispatcher.operators.quarantine.store import Quarantine
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import QuarantineResolution
from holdfast.sink.requeue import requeue
from tests.support.command import holdfast
from tests.support.dispatch.sender import BLOCK, decision
from tests.support.job.driver import Driver, set_aside
from tests.support.waiting import eventually
from tests.support.world import World

RESOLVED = "SELECT id, resolution::text FROM holdfast.quarantine ORDER BY id"
WRITTEN = "SELECT batch_id FROM holdfast.batch WHERE stream LIKE '%.requeue' ORDER BY batch_id"
AUDIT = "SELECT action, target FROM holdfast.operator_action ORDER BY id"
WAITING = """
    SELECT pid FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND datname = current_database()
"""
UNBOOKED = """
    UPDATE holdfast.quarantine SET resolution = NULL, resolved_at = NULL, resolved_by = NULL
"""

CUT = json.dumps({"cut": True, "bytes": 70_000, "beginning": "{"})


def _entry(number: int, type_: str = BLOCK) -> str:
    return json.dumps(
        {
            "subject": f"m_{number}",
            "type": type_,
            "key": [f"k_{number}"],
            "occurred_at": "2026-11-02T12:15:00Z",
            "data": {"exposure_minor": 1},
        }
    )


def _kept(dsn: str, *texts: str, reason: str = "bad_data", stream: str = "payouts") -> list[int]:
    return set_aside(dsn, *((reason, text) for text in texts), stream=stream)


def _put_back(dsn: str, ids: list[int], before: list[Row]) -> tuple[list[int], list[int]]:
    """Return the numbers that were put back, and those that were refused."""
    with Quarantine.connect(dsn) as store:
        rows, _ = open_among(store, ids)
        texts = {row["id"]: row["row"] for row in rows}
        done, refused = put_entries(
            dsn, store, rows, texts, "mended", suppress_repeats=True, before=before
        )
    return [row["id"] for row in done], [row["id"] for row in refused]


def _dismiss(dsn: str, number: int) -> list[int]:
    with Quarantine.connect(dsn) as store:
        return store.resolve([number], QuarantineResolution.DISMISSED, "never")


@contextmanager
def _stopped_at(
    db: psycopg.Connection, dsn: str, number: int, work: Callable[[], Any]
) -> Iterator[Future[Any]]:
    """Run `work` in a thread; in the block it waits for the row `number`, and goes on after it."""
    with ThreadPoolExecutor(1) as pool, psycopg.connect(dsn) as other:
        other.execute("SELECT FROM holdfast.quarantine WHERE id = %s FOR UPDATE", [number])
        future = pool.submit(work)
        eventually(lambda: db.execute(WAITING).fetchall() or future.done())
        yield future


def _entries_of(dsn: str, rows: Mapping[int, str]) -> Iterator[bool]:
    for outcome in requeue(dsn, "payouts", rows, suppress_repeats=True):
        yield outcome.written


def test_row_dismissed_during_a_requeue_is_not_written(world: World) -> None:
    first, second, third = _kept(world.dsn, *map(_entry, range(3)))
    before: list[Row] = []
    work = partial(_put_back, world.dsn, [first, second, third], before)
    with _stopped_at(world.db, world.dsn, second, work) as future:
        assert _dismiss(world.dsn, third) == [third]
    assert future.result() == ([first, second], [])
    assert [(row["id"], row["resolution"], row["resolution_reason"]) for row in before] == [
        (third, "dismissed", "never")
    ]
    assert world.db.execute(WRITTEN).fetchall() == [(first,), (second,)]
    assert world.db.execute(RESOLVED).fetchall() == [
        (first, "requeued"),
        (second, "requeued"),
        (third, "dismissed"),
    ]


def test_rows_resolved_concurrently_are_reported_as_not_done(world: World) -> None:
    [number] = _kept(world.dsn, _entry(0))
    with Quarantine.connect(world.dsn) as store:
        rows, _ = open_among(store, [number])
        _dismiss(world.dsn, number)
        with pytest.raises(CommandError, match="dismissed already, on") as raised:
            put_entries(
                world.dsn, store, rows, {number: _entry(0)}, "x", suppress_repeats=True, before=[]
            )
    assert raised.value.exit_code == ExitCode.NOTHING_MATCHED
    assert world.db.execute(WRITTEN).fetchall() == []


def test_dismissed_source_line_does_not_go_to_the_job(world: World, tmp_path: Path) -> None:
    first, second = _kept(world.dsn, "{", "[", reason="malformed")
    before: list[Row] = []

    def work() -> dict[int, Path]:
        with Quarantine.connect(world.dsn) as store:
            return put_lines(
                store, {first: "{", second: "["}, tmp_path, "mended", before, write_lines
            )

    with _stopped_at(world.db, world.dsn, first, work) as future:
        assert _dismiss(world.dsn, second) == [second]
    [path] = tmp_path.iterdir()
    assert future.result() == {first: path}
    assert [row["id"] for row in before] == [second]
    assert world.db.execute(RESOLVED).fetchall() == [(first, "requeued"), (second, "dismissed")]


def test_two_requeues_of_one_stream_take_turns(dsn: str, db: psycopg.Connection) -> None:
    numbers = _kept(dsn, *map(_entry, range(4)))
    first = _entries_of(dsn, {numbers[0]: _entry(0), numbers[1]: _entry(1)})
    assert next(first)
    assert list(_entries_of(dsn, {numbers[2]: _entry(2), numbers[3]: _entry(3)})) == [True, True]
    assert list(first) == [True]
    assert [number for (number,) in db.execute(WRITTEN).fetchall()] == numbers


def test_cut_off_requeue_says_what_it_did(dsn: str, db: psycopg.Connection) -> None:
    first, second, third = numbers = _kept(dsn, *map(_entry, range(3)))
    with _stopped_at(db, dsn, second, partial(_put_back, dsn, numbers, [])) as future:
        db.execute(f"SELECT pg_terminate_backend(pid) FROM ({WAITING}) w")
        eventually(future.done)
    told = str(future.exception())
    assert isinstance(future.exception(), CommandError)
    assert f"1 row was put back before it (row {first})" in told
    assert f"row {second} " in told
    assert "changed nothing" not in told
    done = holdfast("quarantine", "requeue", *map(str, numbers), "--reason", "x", "--json", dsn=dsn)
    assert done.returncode == ExitCode.OK, done.stderr
    assert [row["id"] for row in json.loads(done.stdout)["requeued"]] == [second, third]
    assert [row["id"] for row in json.loads(done.stdout)["resolved_before"]] == [first]
    assert [number for (number,) in db.execute(WRITTEN).fetchall()] == numbers


@pytest.mark.parametrize(
    ("stream", "kept"), [("payouts", CUT), ("s" * 55, _entry(0, "a b")), ("s" * 56, CUT)]
)
def test_row_already_in_outbox_is_booked(world: World, stream: str, kept: str) -> None:
    """The kept row is of no use; whoever put the corrected one back died before it was booked."""
    first, second = _kept(world.dsn, kept, _entry(1, "a b"), stream=stream)
    assert [
        each.written
        for each in requeue(world.dsn, stream, {first: _entry(0)}, suppress_repeats=True)
    ]
    arguments = ("--reason", "x", "--json")
    dismissed = world.holdfast("quarantine", "dismiss", str(second), str(first), *arguments)
    assert dismissed.returncode == ExitCode.FAILED
    assert f"row {first} was put back already" in dismissed.stderr
    assert f"row {second}" not in dismissed.stderr
    assert f"`holdfast quarantine requeue {first} --reason TEXT`" in dismissed.stderr
    assert world.db.execute(RESOLVED).fetchall() == [(first, None), (second, None)]

    booked = world.holdfast("quarantine", "requeue", str(first), *arguments)
    assert booked.returncode == ExitCode.OK, booked.stderr
    assert "written before" in json.loads(booked.stdout)["requeued"][0]["detail"]
    assert world.db.execute(WRITTEN).fetchall() == [(first,)]
    assert world.holdfast("quarantine", "dismiss", str(second), *arguments).returncode == 0
    assert world.db.execute(RESOLVED).fetchall() == [(first, "requeued"), (second, "dismissed")]
    assert world.db.execute(AUDIT).fetchall() == [
        ("quarantine.requeue", f"quarantine {first}"),
        ("quarantine.dismiss", f"quarantine {second}"),
    ]


def test_batch_of_a_job_is_not_taken_for_a_requeue(dsn: str, db: psycopg.Connection) -> None:
    [number] = _kept(dsn, _entry(1))
    own = uuid4()
    db.execute("INSERT INTO holdfast.stream (name, query_id) VALUES ('payouts.requeue', %s)", [own])
    job = Driver(dsn, stream="payouts.requeue", query_id=own, first_batch=number)
    job.batch(number, decision("m_9"))
    job.sink.close()
    with Quarantine.connect(dsn) as store:
        [row], _ = open_among(store, [number])
    assert not row["put_back"]

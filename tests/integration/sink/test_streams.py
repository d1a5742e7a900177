"""Streams: their names, their roles, and several at once."""

import json
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from holdfast.sink import UnadoptedCheckpoint, Written
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.requeue import REISSUED, REQUEUED
from holdfast.sink.errors import SchemaMismatch
from holdfast.sink.requeue import requeue, stream_of
from tests.support.command import holdfast
from tests.support.dispatch.sender import BLOCK, RELEASE, decision
from tests.support.job.job_outcome import sequences
from tests.support.world import World

STREAMS = "SELECT name, query_id, acts_for FROM holdfast.stream ORDER BY 1"
ENDINGS = pytest.mark.parametrize("suffix", [REQUEUED, REISSUED])


def _by_hand(dsn: str, suffix: str) -> bool:
    text = json.dumps(decision("m_2", 2, RELEASE), default=lambda value: value.isoformat())
    [told] = requeue(dsn, "a", {1: text}, suppress_repeats=True, suffix=suffix)
    return told.written


def _own(db: psycopg.Connection, name: str) -> UUID:
    """A job has written the stream since before such names were refused."""
    query_id = uuid4()
    db.execute("INSERT INTO holdfast.stream (name, query_id) VALUES (%s, %s)", [name, query_id])
    return query_id


@ENDINGS
def test_new_stream_of_a_job_is_not_one_written_by_hand(world: World, suffix: str) -> None:
    job = world.driver(stream=f"a{suffix}")
    with pytest.raises(ValueError, match="Nothing was written"):
        job.sink.check()
    with pytest.raises(ValueError, match="Nothing was written"):
        job.batch(0, decision("m_1"))
    assert world.db.execute(STREAMS).fetchall() == []


@ENDINGS
def test_a_jobs_stream_that_is_there_already_goes_on(world: World, suffix: str) -> None:
    query_id = _own(world.db, f"a{suffix}")
    job = world.driver(stream=f"a{suffix}", query_id=query_id)
    job.sink.check()
    assert job.batch(0, decision("m_1")).counts.entries == 1
    assert world.db.execute(STREAMS).fetchall() == [(f"a{suffix}", query_id, None)]


@ENDINGS
def test_entry_by_hand_is_refused_in_a_stream_of_a_job(world: World, suffix: str) -> None:
    own = world.driver(stream=f"a{suffix}", query_id=_own(world.db, f"a{suffix}"))
    own.batch(0, decision("m_1"))
    world.driver(stream="a").batch(0, decision("m_2"))
    before = world.db.execute(STREAMS).fetchall()
    with pytest.raises(CommandError) as refused:
        _by_hand(world.dsn, suffix)
    # Following that advice would stop the job.
    assert "holdfast stream adopt" not in str(refused.value)
    assert f"a{suffix}" in str(refused.value)
    assert "Nothing was written" in str(refused.value)
    assert world.db.execute(STREAMS).fetchall() == before
    assert own.batch(1, decision("m_1", 2, RELEASE)).counts.entries == 1


@ENDINGS
def test_job_is_refused_the_stream_of_manual_entries(world: World, suffix: str) -> None:
    world.driver(stream="a").batch(0, decision("m_2"))
    assert _by_hand(world.dsn, suffix)
    before = world.db.execute(STREAMS).fetchall()
    with pytest.raises(UnadoptedCheckpoint) as refused:
        world.driver(stream=stream_of("a", suffix)).batch(0, decision("m_1"))
    assert "holdfast stream adopt" not in str(refused.value)
    assert "by hand for 'a'" in str(refused.value)
    assert world.db.execute(STREAMS).fetchall() == before


BATCH = """
    INSERT INTO holdfast.batch (stream, query_id, batch_id, run_id, epoch, row_count, entry_count,
        duplicate_count, differing_count, suppressed_count, quarantined_count, digest, written_at)
    VALUES (%(stream)s, gen_random_uuid(), 9, gen_random_uuid(), 1, 0, 0, 0, 0, 0, 0,
        sha256('x'), now())
"""
HOSTILE = (
    "SELECT holdfast.drop_stages(%(stream)s, 99)",
    "SELECT holdfast.open_stage(%(stream)s, 1, 0)",
    "SELECT holdfast.analyze_stage({stage})",
    "SELECT FROM holdfast.stage_{stage}",
    "INSERT INTO holdfast.stage_{stage} (attempt, row_hash) VALUES (1, sha256('x'))",
    "DROP TABLE holdfast.stage_{stage}",
    BATCH,
    "UPDATE holdfast.stream SET epoch = epoch + 1 WHERE name = %(stream)s",
    "UPDATE holdfast.stream SET query_id = gen_random_uuid() WHERE name = %(stream)s",
    """SELECT holdfast.continue_stream(stream, query_id, batch_id, digest, gen_random_uuid(), 0)
    FROM holdfast.batch WHERE stream = %(stream)s""",
)


class Login(NamedTuple):
    """A login of one stream's job."""

    stream: str
    role: str
    dsn: str


@pytest.fixture
def logins(dsn: str, db: psycopg.Connection) -> Iterator[list[Login]]:
    """Two streams, each with a role of its own and a login that has only that."""
    made: list[Login] = []
    for _ in range(2):
        stream = f"s.{secrets.token_hex(4)}"
        done = holdfast("db", "stream-role", stream, "--json", dsn=dsn, code=ExitCode.OK)
        data = done.json
        user = f"holdfast_test_{secrets.token_hex(4)}"
        db.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'canary'").format(sql.Identifier(user)))
        db.execute(data["grants"][0].replace("my_login", user).encode())
        made.append(Login(stream, data["role"], make_conninfo(dsn, user=user, password="canary")))
    yield made
    for login in made:
        user = psycopg.conninfo.conninfo_to_dict(login.dsn)["user"]
        for role in (str(user), login.role):
            db.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(role)))
            db.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


@pytest.mark.parametrize("staged", [False, True])
def test_stream_of_a_role_has_its_login(world: World, logins: list[Login], staged: bool) -> None:
    for login in logins:
        spark = world.driver(login.dsn, stream=login.stream, staged=staged)
        assert isinstance(spark.batch(0, decision(login.stream), decision("")), Written)
    query = "SELECT stream, entry_count, quarantined_count FROM holdfast.batch ORDER BY batch_no"
    assert world.db.execute(query).fetchall() == [(login.stream, 1, 1) for login in logins]
    assert world.db.execute("SELECT count(*) FROM holdfast.stage").fetchone() == (0,)


@pytest.mark.parametrize("statement", HOSTILE)
def test_role_of_a_stream_is_confined(world: World, logins: list[Login], statement: str) -> None:
    mine, other = logins
    world.driver(other.dsn, stream=other.stream).batch(0, decision())
    with psycopg.connect(other.dsn, autocommit=True) as own:
        own.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(other.role)))
        (stage,) = own.execute(
            "SELECT holdfast.open_stage(%s, 1, 1)", [other.stream]
        ).fetchone() or (0,)
    text = statement.replace("{stage}", str(stage)).encode()
    with psycopg.connect(mine.dsn, autocommit=True) as hostile:
        for role in (mine.role, "holdfast_sink"):
            try:
                hostile.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
            except psycopg.errors.InsufficientPrivilege:
                assert role == "holdfast_sink"
                continue
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                hostile.execute(text, {"stream": other.stream})
    assert world.db.execute("SELECT count(*) FROM holdfast.stage").fetchone() == (1,)


def test_sinks_login_writes_no_roles_stream(
    world: World, logins: list[Login], app_dsn: str
) -> None:
    other = logins[0]
    with pytest.raises(SchemaMismatch, match=other.role):
        world.driver(app_dsn, stream=other.stream).batch(0, decision())
    assert world.db.execute("SELECT count(*) FROM holdfast.stream").fetchone() == (0,)
    assert isinstance(world.driver(app_dsn, stream="free").batch(0, decision()), Written)


def test_role_is_made_once_for_a_possible_name(world: World, logins: list[Login]) -> None:
    again = world.holdfast("db", "stream-role", logins[0].stream, "--json")
    assert again.json["made"] is False
    for name in ("Big", "a b", "x" * 50, "-x"):
        world.holdfast("db", "stream-role", "--", name, code=ExitCode.USAGE)


SUBJECTS = [f"m_{n:03}" for n in range(40)]
BATCHES = 12


def test_sequences_have_no_gap_and_never_go_back_in_time(world: World) -> None:
    def drive(name: str) -> list[Written]:
        spark = world.driver(stream=name, suppress_repeats=False)
        # Opposite orders of arrival: locks must not be taken in them.
        subjects = SUBJECTS if name == "one" else SUBJECTS[::-1]
        outcomes = []
        for batch_id in range(BATCHES):
            rows = [decision(s, batch_id, BLOCK, key=[name, s, str(batch_id)]) for s in subjects]
            outcomes.append(spark.batch(batch_id, *rows))
        assert all(isinstance(outcome, Written) for outcome in outcomes)
        return [outcome for outcome in outcomes if isinstance(outcome, Written)]

    with ThreadPoolExecutor(2) as threads:
        one, two = threads.map(drive, ["one", "two"])

    assert sum(outcome.counts.entries for outcome in one + two) == 2 * BATCHES * len(SUBJECTS)
    for subject in SUBJECTS:
        # `sequences` orders by created_at, so this is both: no gap, and time follows sequence.
        assert sequences(world.db, subject) == list(range(1, 2 * BATCHES + 1))
    moments = sorted((o.batch_no, o.written_at) for o in one + two)
    assert all(earlier[1] < later[1] for earlier, later in pairwise(moments))
    last = world.db.execute("SELECT DISTINCT last_sequence FROM holdfast.subject").fetchall()
    assert last == [(2 * BATCHES,)]


def test_key_that_two_streams_bring_at_once_is_written_once(world: World) -> None:
    def drive(name: str) -> int:
        # Each stream files the same keys under subjects of its own, so only the keys collide.
        rows = [decision(f"{name}_{n}", key=["shared", str(n)]) for n in range(200)]
        outcome = world.driver(stream=name).batch(0, *rows[:: 1 if name == "one" else -1])
        assert outcome.counts.entries + outcome.counts.duplicates == 200
        return outcome.counts.entries

    with ThreadPoolExecutor(2) as threads:
        written = sum(threads.map(drive, ["one", "two"]))
    assert written == 200
    assert world.db.execute("SELECT count(*) FROM holdfast.entry").fetchone() == (200,)
    assert world.db.execute("SELECT count(*) FROM holdfast.entry_key").fetchone() == (200,)

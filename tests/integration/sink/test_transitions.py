"""Suppressed transitions, and several streams in one database."""

import json
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from holdfast.sink import ReplayDiverged, Replayed, UnadoptedCheckpoint, Written
from holdfast.sink import requeue as by_hand
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.requeue import REISSUED, REQUEUED, Overtakes, stream_of
from holdfast.sink.errors import SchemaMismatch
from holdfast.sink.requeue import requeue
from tests.support.command import holdfast
from tests.support.dispatch.sender import BLOCK, RELEASE, decision
from tests.support.job.driver import Driver
from tests.support.job.job_stream import contents, sequences
from tests.support.world import World

DAILY = "report.daily"
FAR = datetime(9999, 12, 31, tzinfo=UTC)
LONG = "p" * 63
"""`LONG.requeue` would be too long for a name, and is shortened."""

STATE = "SELECT last_type, last_occurred_at FROM holdfast.transition WHERE stream = %s"


@pytest.fixture(params=[False, True], ids=["driver", "staged"])
def payouts(request: pytest.FixtureRequest, dsn: str) -> Iterator[Driver]:
    """A stream that writes on the one path or on the other."""
    driver = Driver(dsn, stream="payouts", staged=request.param)
    yield driver
    driver.sink.close()


def _fate(outcome: Written | Replayed) -> tuple[int, int, int]:
    counts = outcome.counts
    return counts.entries, counts.suppressed, counts.quarantined


def _by_hand(dsn: str, stream: str, number: int, row: dict[str, Any], **other: Any) -> bool:
    """Write one entry as an operator's command does; returns whether it is written."""
    text = json.dumps(row, default=lambda value: value.isoformat())
    [reply] = requeue(dsn, stream, {number: text}, **{"suppress_repeats": True, **other})
    return reply.written


def test_later_entry_of_another_stream_overtakes_nothing(world: World, payouts: Driver) -> None:
    world.driver(stream="reports").batch(0, decision("m_1", 2, DAILY))
    assert _fate(payouts.batch(0, decision("m_1", 1, BLOCK))) == (1, 0, 0)
    rows = world.db.execute("SELECT type FROM holdfast.entry ORDER BY sequence").fetchall()
    assert rows == [(DAILY,), (BLOCK,)]


def test_block_stays_a_repeat_beside_another_stream(world: World, payouts: Driver) -> None:
    payouts.batch(0, decision("m_1", 1, BLOCK))
    world.driver(stream="reports").batch(0, decision("m_1", 2, DAILY))
    assert _fate(payouts.batch(1, decision("m_1", 3, BLOCK))) == (0, 1, 0)
    assert _fate(payouts.batch(2, decision("m_1", 4, RELEASE))) == (1, 0, 0)


@pytest.mark.parametrize("suffix", [REQUEUED, REISSUED])
@pytest.mark.parametrize("stream", ["payouts", LONG], ids=["short", "shortened"])
def test_entry_by_hand_moves_its_streams_state(world: World, stream: str, suffix: str) -> None:
    job = world.driver(stream=stream)
    job.batch(0, decision("m_1", 1, RELEASE))
    world.driver(stream="reports").batch(0, decision("m_1", 5, DAILY))
    assert _by_hand(world.dsn, stream, 1, decision("m_1", 2, BLOCK), suffix=suffix)
    assert _fate(job.batch(1, decision("m_1", 3, BLOCK))) == (0, 1, 0)
    job.batch(2, decision("m_1", 4, RELEASE))
    assert not _by_hand(world.dsn, stream, 2, decision("m_1", 6, RELEASE), suffix=suffix)
    assert not _by_hand(
        world.dsn, stream, 3, decision("m_1", 3, BLOCK) | {"key": ["k"]}, suffix=suffix
    )
    rows = world.db.execute("SELECT DISTINCT stream FROM holdfast.transition ORDER BY 1").fetchall()
    assert rows == [(stream,), ("reports",)]


def test_reissue_of_a_requeued_entry_moves_the_state_of_the_job(world: World) -> None:
    job = world.driver(stream="payouts")
    job.batch(0, decision("m_1", 1, RELEASE))
    assert _by_hand(world.dsn, "payouts", 1, decision("m_1", 2, BLOCK))
    again = decision("m_1", 3, RELEASE)
    assert _by_hand(world.dsn, stream_of("payouts"), 2, again, suffix=REISSUED)
    assert _fate(job.batch(1, decision("m_1", 4, RELEASE))) == (0, 1, 0)


def test_suppressed_decisions_are_kept_in_full(world: World, payouts: Driver) -> None:
    payouts.batch(0, decision("m_1", 4))
    overtaken, repeated = decision("m_1", 2, RELEASE, minor=7), decision("m_1", 5, minor=8)
    payouts.batch(1, overtaken, repeated)
    rows = world.db.execute("""
        SELECT name, key, type, occurred_at, cause::text, key_parts, data,
            suppressed_at = written_at, suppressed_count
        FROM holdfast.suppressed
        JOIN holdfast.batch USING (batch_no)
        JOIN holdfast.subject ON id = subject_id ORDER BY occurred_at""").fetchall()
    for (*plain, parts, data, of_batch, count), cause, row in zip(
        rows, ("overtaken", "repeated"), (overtaken, repeated), strict=True
    ):
        of_row = [row["subject"], Key.of(row["key"]).digest, row["type"], row["occurred_at"], cause]
        assert plain == of_row
        assert (json.loads(parts), json.loads(data)) == (row["key"], row["data"])
        assert (of_batch, count) == (True, 2)


def test_a_batch_that_is_rolled_back_keeps_nothing_of_what_it_suppressed(world: World) -> None:
    class Broken(Exception):
        pass

    def fail(*_: object) -> None:
        raise Broken

    first = world.driver()
    first.batch(0, decision("m_1", 1))
    second = world.driver(query_id=first.query_id, also=fail)
    with pytest.raises(Broken):
        second.batch(1, decision("m_1", 2))
    assert contents(world.db)["suppressed"] == []


@pytest.mark.guarantee(8)
def test_row_of_the_year_9999_silences_no_subject(world: World, payouts: Driver) -> None:
    far = decision("m_1", 1, RELEASE, occurred_at=FAR)
    assert _fate(payouts.batch(0, far, decision("m_9", occurred_at=FAR))) == (0, 0, 2)
    assert _fate(payouts.batch(1, decision("m_1", 2, BLOCK))) == (1, 0, 0)
    left = contents(world.db)
    [(_, reason, _rule, row), _] = left["quarantine"]
    assert reason == "future_dated"
    assert json.loads(row)["key"] == far["key"]
    # Neither its key nor a subject of its own is taken, so that it can be put back corrected.
    assert [name for name, *_ in left["subject"]] == ["m_1"]
    assert [key for key, *_ in left["entry_key"]] == [Key.of(decision("m_1", 2)["key"]).digest]


def test_tolerance_is_an_option_and_is_measured_by_the_databases_clock(world: World) -> None:
    now = world.db.execute("SELECT now()").fetchone()[0]  # type: ignore[index]
    near, soon = (decision("m_1", n, occurred_at=now + timedelta(hours=n)) for n in (23, 25))
    assert _fate(world.driver(stream="default").batch(0, near, soon)) == (1, 0, 1)
    patient = world.driver(stream="patient", future_tolerance=timedelta(days=2))
    assert _fate(patient.batch(0, decision("m_2", occurred_at=soon["occurred_at"]))) == (1, 0, 0)
    for wrong in (timedelta(days=-1), timedelta(days=36_501), None, "1", 86_400):
        with pytest.raises(ValueError, match="future_tolerance"):
            world.driver(future_tolerance=wrong)


@pytest.mark.guarantee(8)
@pytest.mark.parametrize(("shifted", "written"), [("-3 days", 0), ("3 days", 2)])
def test_what_is_future_is_told_by_the_database(world: World, shifted: str, written: int) -> None:
    """Its clock differs from that of the driver by days."""
    world.db.execute(f"""
        SET allow_system_table_mods = on;
        ALTER FUNCTION pg_catalog.clock_timestamp() RENAME TO unshifted;
        CREATE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz LANGUAGE sql
            AS $$ SELECT pg_catalog.unshifted() + interval '{shifted}' $$;
        """)
    now = datetime.now(UTC)
    rows = [decision(f"m_{n}", occurred_at=now + timedelta(days=2 * n)) for n in (0, 1)]
    assert _fate(world.driver().batch(0, *rows)) == (written, 0, 2 - written)


@pytest.mark.guarantee(8)
@pytest.mark.parametrize("staged", [False, True], ids=["driver", "staged"])
def test_replay_is_the_same_batch_at_any_time(world: World, staged: bool) -> None:
    rows = [decision("m_1", 1), decision("m_1", 2, RELEASE, occurred_at=FAR)]
    first = world.driver(staged=staged)
    assert _fate(first.batch(0, *rows)) == (1, 0, 1)
    before = contents(world.db)
    # What a later clock would say: the row is not beyond the limit any more.
    later = timedelta(days=36_500)
    second = world.driver(query_id=first.query_id, staged=staged, future_tolerance=later)
    outcome = second.batch(0, *rows)
    assert isinstance(outcome, Replayed)
    assert _fate(outcome) == (1, 0, 1)
    assert contents(world.db) == before


def test_divergence_excludes_rows_set_aside(payouts: Driver) -> None:
    far = decision("m_1", 2, RELEASE, occurred_at=FAR)
    payouts.batch(0, decision("m_1", 1), far)
    with pytest.raises(ReplayDiverged) as raised:
        payouts.batch(0, far, decision("m_2", 1))
    divergence = raised.value.divergence
    assert divergence.only_in_replay.first == (Key.of(decision("m_2", 1)["key"]).digest,)
    assert (divergence.only_in_ledger.count, divergence.quarantined_now) == (1, 1)


def test_row_requeued_with_its_future_date_stays(world: World) -> None:
    world.driver(stream="payouts").batch(0, decision("m_1", 1, occurred_at=FAR))
    before = contents(world.db)
    assert not _by_hand(world.dsn, "payouts", 1, decision("m_1", 1, occurred_at=FAR))
    assert not _by_hand(
        world.dsn, "payouts", 1, decision("m_1", 1, occurred_at=FAR), suppress_repeats=False
    )
    assert contents(world.db) == before
    assert _by_hand(world.dsn, "payouts", 1, decision("m_1", 1))


@pytest.mark.guarantee(11)
def test_older_entry_is_written_by_hand_only_as_approved(world: World, payouts: Driver) -> None:
    newer, older = decision("m_1", 4), decision("m_1", 3, RELEASE)
    payouts.batch(0, newer, decision("m_1", 5, RELEASE))
    world.driver(stream="second").batch(0, decision("m_1", 6))
    world.driver(stream="reports").batch(0, decision("m_1", 7, DAILY))
    newest = decision("m_1", 6)["occurred_at"]
    before = contents(world.db)
    values: dict[str, Any] = {"suppress_repeats": False}
    assert not _by_hand(world.dsn, "payouts", 1, older, **values)
    of_this_stream = decision("m_1", 5)["occurred_at"]
    for wrong in (
        Overtakes(3, newest),
        Overtakes(4, newer["occurred_at"]),
        Overtakes(4, of_this_stream),
    ):
        assert not _by_hand(world.dsn, "payouts", 1, older, overtakes=wrong, **values)
    assert contents(world.db) == before
    assert _by_hand(world.dsn, "payouts", 1, older, overtakes=Overtakes(4, newest), **values)
    assert _by_hand(world.dsn, "payouts", 1, older, **values), "it is written before"
    assert sequences(world.db, "m_1") == [1, 2, 3, 4, 5]


@pytest.mark.guarantee(11)
def test_entry_by_hand_is_compared_again_under_the_lock(
    world: World, payouts: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job decides anew after the entry was found to be the newest."""
    payouts.batch(0, decision("m_1", 1))
    foresee = by_hand._foresee

    def decide_after(*arguments: Any) -> None:
        foresee(*arguments)
        payouts.batch(1, decision("m_1", 4, RELEASE))

    monkeypatch.setattr(by_hand, "_foresee", decide_after)
    older = decision("m_1", 3, RELEASE)
    assert not _by_hand(world.dsn, "payouts", 1, older, suppress_repeats=False)
    assert sequences(world.db, "m_1") == [1, 2]


def test_time_of_a_stream_that_wants_repeats_does_not_go_back(world: World) -> None:
    spark = world.driver(stream="payouts", suppress_repeats=False)
    spark.batch(0, decision("m_1", 4))
    spark.batch(1, decision("m_1", 2, RELEASE))
    newest = (RELEASE, decision("m_1", 4)["occurred_at"])
    assert world.db.execute(STATE, ["payouts"]).fetchall() == [newest]


STREAMS = "SELECT name, query_id, acts_for FROM holdfast.stream ORDER BY 1"
ENDINGS = pytest.mark.parametrize("suffix", [REQUEUED, REISSUED])


def _manual_entry(dsn: str, suffix: str) -> bool:
    text = json.dumps(decision("m_2", 2, RELEASE), default=lambda value: value.isoformat())
    [reply] = requeue(dsn, "a", {1: text}, suppress_repeats=True, suffix=suffix)
    return reply.written


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
def test_existing_stream_of_a_job_continues(world: World, suffix: str) -> None:
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
        _manual_entry(world.dsn, suffix)
    # Following that advice would stop the job.
    assert "holdfast stream adopt" not in str(refused.value)
    assert f"a{suffix}" in str(refused.value)
    assert "Nothing was written" in str(refused.value)
    assert world.db.execute(STREAMS).fetchall() == before
    assert own.batch(1, decision("m_1", 2, RELEASE)).counts.entries == 1


@ENDINGS
def test_job_is_refused_the_stream_of_manual_entries(world: World, suffix: str) -> None:
    world.driver(stream="a").batch(0, decision("m_2"))
    assert _manual_entry(world.dsn, suffix)
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

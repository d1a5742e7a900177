"""A checkpoint that continues a batch of the ledger is adopted by that batch's proof, or not."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from holdfast.sink import Repeated, ReplayDiverged, Replayed, UnadoptedCheckpoint
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.errors import LedgerBehind
from holdfast.sink.transaction.continuation import Continuation
from tests.support.dispatch.sender import RELEASE, decision
from tests.support.job.driver import Driver, MakeDriver
from tests.support.job.job_stream import contents
from tests.support.waiting import eventually
from tests.support.world import World


def _proof(driver: Driver, batch_id: int) -> Continuation:
    proof = driver.sink.proof(driver.query_id, batch_id)
    assert proof is not None
    return proof


def _state(db: psycopg.Connection) -> list[Any]:
    tables = ("stream", "batch", "operator_action")
    rows = [db.execute(f"SELECT * FROM holdfast.{name} ORDER BY 1, 2".encode()) for name in tables]
    return [*(each.fetchall() for each in rows), contents(db)]


def _adopted(db: psycopg.Connection) -> UUID:
    row = db.execute("SELECT query_id FROM holdfast.stream WHERE name = 'payouts'").fetchone()
    assert row is not None
    adopted: UUID = row[0]
    return adopted


def _ledger(db: psycopg.Connection) -> list[tuple[UUID, int, int]]:
    return db.execute(
        "SELECT query_id, batch_id, row_count FROM holdfast.batch ORDER BY batch_no"
    ).fetchall()


def test_proved_checkpoint_continues_without_repeats(world: World) -> None:
    old = world.driver()
    for window in range(3):
        old.batch(window, decision("m_1", window, RELEASE))
    written = contents(world.db)["entry"]
    new = world.driver()
    new.sink.continue_from(_proof(old, 1), new.query_id, 1)
    assert new.batch(2, decision("m_1", 2, RELEASE)).counts.duplicates == 1
    assert contents(world.db)["entry"] == written
    assert _ledger(world.db)[3:] == [(new.query_id, 1, 0), (new.query_id, 2, 1)]
    [(actor, action, target, reason, detail)] = world.db.execute(
        "SELECT actor, action, target, reason, detail FROM holdfast.operator_action"
    ).fetchall()
    digest = _proof(old, 1).digest.hex()
    assert (actor, action, target) == ("sink", "stream.adopt", "payouts")
    assert reason == f"continues batch 1 of query {old.query_id}, proved by its digest {digest}"
    assert (detail["previous"], detail["query_id"]) == (str(old.query_id), str(new.query_id))
    assert detail["proof"] == {"query_id": str(old.query_id), "batch_id": 1, "digest": digest}


def test_old_query_is_refused_at_its_next_batch(world: World) -> None:
    old = world.driver()
    old.batch(0, decision("m_1"))
    new_id = uuid4()
    world.driver().sink.continue_from(_proof(old, 0), new_id, 0)
    before = _state(world.db)
    with pytest.raises(UnadoptedCheckpoint, match=str(new_id)):
        old.batch(1, decision("m_2"))
    assert _state(world.db) == before
    # A restart of it is refused too, and the new one may begin.
    with pytest.raises(UnadoptedCheckpoint):
        world.driver(query_id=old.query_id).batch(1, decision("m_2"))
    assert _state(world.db) == before
    world.driver(query_id=new_id).batch(1, decision("m_2"))


def test_repeated_call_changes_nothing_also_after_the_next_batch(world: World) -> None:
    old, new = world.driver(), world.driver()
    old.batch(0, decision("m_1"))
    arguments = _proof(old, 0), new.query_id, 0
    new.sink.continue_from(*arguments)
    before = _state(world.db)
    new.sink.continue_from(*arguments)
    assert _state(world.db) == before
    new.batch(1, decision("m_2"))
    before = _state(world.db)
    world.driver().sink.continue_from(*arguments)
    assert _state(world.db) == before


def test_empty_batch_proves_the_next_continuation(world: World) -> None:
    first, second, third = world.driver(), world.driver(), world.driver()
    first.batch(0, decision("m_1"))
    second.sink.continue_from(_proof(first, 0), second.query_id, 0)
    third.sink.continue_from(_proof(second, 0), third.query_id, 0)
    third.batch(1, decision("m_2"))
    assert _adopted(world.db) == third.query_id


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"digest": bytes(32)}, "other content"),
        ({"batch_id": 9}, "has no such batch"),
        ({"query_id": UUID(int=9)}, "has adopted query"),
    ],
    ids=["digest", "batch", "query"],
)
def test_wrong_proof_changes_nothing(world: World, wrong: dict[str, Any], message: str) -> None:
    old, new = world.driver(), world.driver()
    old.batch(0, decision("m_1"))
    before = _state(world.db)
    with pytest.raises(UnadoptedCheckpoint, match=message) as raised:
        new.sink.continue_from(replace(_proof(old, 0), **wrong), new.query_id, 0)
    assert "Nothing was written, and the stream keeps its checkpoint" in str(raised.value)
    assert _state(world.db) == before


def test_proof_of_another_stream_is_refused(driver: MakeDriver, db: psycopg.Connection) -> None:
    old, other = driver(), driver(stream="refunds")
    old.batch(0, decision("m_1"))
    other.batch(0, decision("m_2"))
    before = _state(db)
    for sink, message in (
        (other.sink, "has adopted query"),
        (driver(stream="new").sink, "not have"),
    ):
        with pytest.raises(UnadoptedCheckpoint, match=message):
            sink.continue_from(_proof(old, 0), uuid4(), 0)
    # Even where a person gave the stream that query id, the batch is not in its own ledger.
    db.execute("UPDATE holdfast.stream SET query_id = %s WHERE name = 'refunds'", [old.query_id])
    with pytest.raises(UnadoptedCheckpoint, match="has no such batch"):
        other.sink.continue_from(_proof(old, 0), uuid4(), 0)
    assert _state(db)[1:3] == before[1:3]


def test_stream_continued_by_a_third_query_is_not_reverted(world: World) -> None:
    old, taken, late = world.driver(), world.driver(), world.driver()
    old.batch(0, decision("m_1"))
    proof = _proof(old, 0)
    taken.sink.continue_from(proof, taken.query_id, 0)
    before = _state(world.db)
    with pytest.raises(UnadoptedCheckpoint, match=f"has adopted query {taken.query_id} since"):
        late.sink.continue_from(proof, late.query_id, 0)
    assert _state(world.db) == before


def test_batch_id_that_the_new_query_has_already_is_refused(world: World) -> None:
    old = world.driver()
    old.batch(0, decision("m_1"))
    new = world.driver()
    world.db.execute("UPDATE holdfast.stream SET query_id = %s", [new.query_id])
    new.batch(0, decision("m_2"))
    before = _state(world.db)
    with pytest.raises(UnadoptedCheckpoint, match=f"batch 0 of query {new.query_id} already"):
        new.sink.continue_from(_proof(old, 0), new.query_id, 0)
    assert _state(world.db) == before
    with pytest.raises(ValueError, match="query id of its own"):
        old.sink.continue_from(_proof(old, 0), old.query_id, 1)


def test_of_two_continuations_at_once_one_wins(driver: MakeDriver, db: psycopg.Connection) -> None:
    old = driver()
    old.batch(0, decision("m_1"))
    proof = _proof(old, 0)
    racing = [driver(), driver()]
    barrier = Barrier(len(racing))

    def run(each: Driver) -> bool:
        barrier.wait()
        try:
            each.sink.continue_from(proof, each.query_id, 0)
        except UnadoptedCheckpoint:
            return False
        return True

    with ThreadPoolExecutor(len(racing)) as pool:
        won = list(pool.map(run, racing))
    assert sorted(won) == [False, True]
    winner = racing[won.index(True)]
    assert _adopted(db) == winner.query_id
    assert _ledger(db) == [(old.query_id, 0, 1), (winner.query_id, 0, 0)]


def test_second_continuation_waits_for_the_first(
    driver: MakeDriver, dsn: str, db: psycopg.Connection
) -> None:
    """Also of a caller who has not locked the stream."""
    old = driver()
    old.batch(0, decision("m_1"))
    proof = _proof(old, 0)
    call = "SELECT outcome FROM holdfast.continue_stream('payouts', %s, 0, %s, %s, 0)"
    waiting = """
        SELECT pid FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'
    """
    with (
        psycopg.connect(dsn, autocommit=True) as second,
        ThreadPoolExecutor(1) as pool,
        psycopg.connect(dsn) as first,
    ):
        outcome = first.execute(call, [proof.query_id, proof.digest, uuid4()]).fetchone()
        assert outcome == ("continued",)
        running = pool.submit(second.execute, call, [proof.query_id, proof.digest, uuid4()])
        eventually(lambda: db.execute(waiting).fetchone())
        first.commit()
        assert running.result().fetchone() == ("other_query",)


def test_login_with_only_the_sink_role_may_continue(world: World, app_dsn: str) -> None:
    old = world.driver(app_dsn)
    old.batch(0, decision("m_1"))
    new = world.driver(app_dsn)
    new.sink.continue_from(_proof(old, 0), new.query_id, 0)
    assert _adopted(world.db) == new.query_id


def test_null_is_no_proof(driver: MakeDriver, app_dsn: str, db: psycopg.Connection) -> None:
    """Also not for a login that calls the function itself: the audit row would be wrong."""
    old = driver(app_dsn)
    old.batch(0, decision("m_1"))
    proof, before = _proof(old, 0), _state(db)
    full = ["payouts", proof.query_id, proof.batch_id, proof.digest, uuid4(), 0]
    own_batch = [*full[:4], old.query_id, 1]
    wrong = [[*full[:i], None, *full[i + 1 :]] for i in range(len(full))]
    with psycopg.connect(app_dsn, autocommit=True) as login:
        login.execute("SET ROLE holdfast_sink")
        for arguments in (*wrong, own_batch, [*full[:5], -1]):
            with pytest.raises((psycopg.errors.DataError, psycopg.errors.IntegrityError)):
                login.execute("SELECT holdfast.continue_stream(%s, %s, %s, %s, %s, %s)", arguments)
            assert _state(db) == before
        # A temporary table or function is not found before the real one.
        login.execute("CREATE TEMPORARY TABLE batch (stream text)")
        login.execute("SET search_path = pg_temp, holdfast, pg_catalog")
        [(outcome,)] = login.execute(
            "SELECT outcome FROM holdfast.continue_stream(%s, %s, %s, %s, %s, %s)", full
        ).fetchall()
    assert outcome == "continued"


def test_batch_that_was_never_written_has_no_proof(driver: MakeDriver) -> None:
    old = driver()
    old.batch(0, decision("m_1"))
    assert old.sink.proof(old.query_id, 1) is None
    assert old.sink.proof(uuid4(), 0) is None


def test_commands_of_operators_understand_the_empty_batch(world: World) -> None:
    old, new = world.driver(), world.driver()
    old.batch(0, decision("m_1"))
    new.sink.continue_from(_proof(old, 0), new.query_id, 0)
    new.batch(1, decision("m_2"))
    world.db.execute("UPDATE holdfast.stream SET created_at = now() - interval '1 hour'")
    for command in (
        ["check"],
        ["stream", "show", "payouts"],
        ["batch", "list", "payouts"],
        ["batch", "show", "payouts", "0"],
        ["audit", "list"],
    ):
        world.holdfast(*command, code=ExitCode.OK)


def _continued(old: Driver, new: Driver, batch_id: int) -> None:
    """Let `new` continue `old` after a batch, and announce that it repeats the next one."""
    new.sink.continue_from(_proof(old, batch_id), new.query_id, 0)
    again = Repeated(until=1, source=_proof(old, batch_id + 1))
    new.sink.start(new.query_id, new.run_id, repeated=again)


def test_batch_repeating_another_querys_writes_its_ledger_row_only(world: World) -> None:
    old, new = world.driver(), world.driver()
    old.batch(0, decision("m_1"))
    old.batch(1, decision("m_2"), decision("m_3"))
    _continued(old, new, 0)
    before = contents(world.db)
    assert isinstance(new.batch(1, decision("m_3"), decision("m_2")), Replayed)
    after = contents(world.db)
    assert {name for name in after if after[name] != before[name]} == {"batch"}
    assert _ledger(world.db)[2:] == [(new.query_id, 0, 0), (new.query_id, 1, 2)]
    assert isinstance(new.batch(1, decision("m_2"), decision("m_3")), Replayed)
    assert new.batch(2, decision("m_4")).counts.entries == 1


def test_batch_repeating_another_querys_otherwise_is_refused(world: World) -> None:
    old, new = world.driver(), world.driver()
    old.batch(0, decision("m_1"))
    old.batch(1, decision("m_2"))
    _continued(old, new, 0)
    before = contents(world.db)
    with pytest.raises(ReplayDiverged, match=f"batch 1 of query {old.query_id}"):
        new.batch(1, decision("m_2"), decision("m_3"))
    after = contents(world.db)
    assert {name for name in after if after[name] != before[name]} <= {"divergence"}
    assert _ledger(world.db)[2:] == [(new.query_id, 0, 0)]


def test_batch_repeating_a_batch_that_is_another_now_is_refused(world: World) -> None:
    """The database was put back, and the batch was written again with other rows."""
    old, new = world.driver(), world.driver()
    old.batch(0, decision("m_1"))
    old.batch(1, decision("m_2"))
    new.sink.continue_from(_proof(old, 0), new.query_id, 0)
    before = contents(world.db)
    other = replace(_proof(old, 1), digest=bytes(32))
    new.sink.start(new.query_id, new.run_id, repeated=Repeated(until=1, source=other))
    with pytest.raises(LedgerBehind, match=f"repeats batch 1 of query {old.query_id}"):
        new.batch(1, decision("m_2"))
    assert contents(world.db) | {"stream": None} == before | {"stream": None}

"""A renamed stream: all that it wrote has the new name, and the old one begins nothing.

Real: Postgres, the command, the dispatcher. Doubled: Spark.
"""

import json
import shlex
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from holdfast.dispatcher.operators.endpoints.store import Endpoints
from holdfast.dispatcher.operators.streams.acceptance import Acceptances
from holdfast.dispatcher.operators.streams.renaming import Renaming
from holdfast.sink import Fenced, ReplayDiverged, Replayed, UnadoptedCheckpoint, Written
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.requeue import ENDINGS, REISSUED, Opened
from holdfast.sink.requeue import requeue
from holdfast.sink.transaction.database import statement
from tests.support.dispatch.sender import BLOCK, RELEASE, decision
from tests.support.documents.pages import blocks_of
from tests.support.job.driver import Driver
from tests.support.waiting import eventually
from tests.support.world import World

WHY = ("--reason", "of all regions now", "--yes")
TABLES = """
    SELECT c.relname FROM pg_class c
    WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind IN ('r', 'p')
        AND NOT c.relispartition AND c.relname <> 'code_session'
"""

TAKE = b"SELECT FROM holdfast.stream WHERE name = 'payouts' FOR UPDATE"


def _wait_for_lock(world: World) -> None:
    eventually(lambda: world.value("SELECT count(*) FROM pg_locks WHERE NOT granted") > 0)


def _rename(world: World, old: str = "payouts", new: str = "holds", *more: str) -> Any:
    world.closed(old)
    return world.holdfast("stream", "rename", old, new, *WHY, *more, "--json", code=ExitCode.OK)


def _refused(world: World, new: str, *, old: str = "payouts", code: ExitCode) -> dict[str, Any]:
    before = _rows(world.db)
    done = world.holdfast("stream", "rename", old, new, *WHY, "--json", code=code)
    assert _rows(world.db) == before
    return done.error


def _adopt(world: World, new: Driver) -> None:
    words = ("stream", "adopt", "payouts", "--query-id", str(new.query_id), "--force", *WHY[:2])
    world.holdfast(*words, code=ExitCode.OK)


def _rows(db: psycopg.Connection) -> dict[str, list[str]]:
    return {
        table: [row for (row,) in db.execute(_all(table)).fetchall()]
        for (table,) in db.execute(TABLES).fetchall()
    }


def _all(table: str) -> bytes:
    return f"SELECT to_jsonb(t)::text FROM holdfast.{table} t ORDER BY 1".encode()


def _by_hand(dsn: str, stream: str, number: int, row: dict[str, Any], **other: Any) -> Any:
    [reply] = requeue(dsn, stream, {number: _json(row)}, suppress_repeats=True, **other)
    return reply


def _json(row: dict[str, Any]) -> str:
    return json.dumps(row, default=lambda value: value.isoformat())


def _audit(db: psycopg.Connection, new: str) -> None:
    db.execute(
        "INSERT INTO holdfast.operator_action (actor, action, target, reason)"
        " VALUES ('me', 'stream.rename', %s, 'of all regions now')",
        [new],
    )


def _by_sql(
    db: psycopg.Connection, new: str = "holds", query: UUID | None = None, old: str = "payouts"
) -> None:
    _audit(db, new)
    _call(db, new, query, old)


def _call(
    db: psycopg.Connection, new: str, query: UUID | None = None, old: str = "payouts"
) -> None:
    names = [[old], [new], [query]]
    db.execute("SELECT holdfast.rename_stream(%s, %s, %s::uuid[])", names)


@pytest.mark.guarantee(3)
def test_renamed_stream_continues_where_it_was(world: World) -> None:
    job = world.driver()
    job.batch(0, decision("m_1", 1, BLOCK), decision(""))
    row, again = decision("m_2", 1, BLOCK), decision("m_3", 1, BLOCK)
    assert _by_hand(world.dsn, "payouts", 1, row).written
    assert _by_hand(world.dsn, "payouts.requeue", 2, again, suffix=REISSUED).written
    world.db.execute(
        "UPDATE holdfast.stream SET created_at = now() - '1 hour'::interval WHERE acts_for IS NULL"
    )
    adopted = world.driver()
    _adopt(world, adopted)
    adopted.batch(0, decision("m_1", 1, BLOCK), decision(""))
    adopted.sink.close()
    job.sink.close()

    entries = _rows(world.db)["entry"]
    renamed = _rename(world).json
    assert renamed["by_hand"] == {
        "payouts.requeue": "holds.requeue",
        "payouts.requeue.reissue": "holds.requeue.reissue",
    }
    assert renamed["batches"] == 2
    named = {table: rows for table, rows in _rows(world.db).items() if '"payouts' in str(rows)}
    assert set(named) == {"operator_action", "stream"}
    former = [json.loads(row)["former_names"] for row in named["stream"]]
    assert sorted(map(tuple, former)) == [
        ("payouts",),
        ("payouts.requeue",),
        ("payouts.requeue.reissue",),
    ]
    assert _rows(world.db)["entry"] == entries

    # The same batch is known, and the last transition of each subject is too.
    new = world.driver(stream="holds", query_id=adopted.query_id)
    assert isinstance(new.batch(0, decision("m_1", 1, BLOCK), decision("")), Replayed)
    repeats = [decision(f"m_{n}", 2, BLOCK) for n in (1, 2, 3)]
    assert new.batch(1, *repeats).counts.suppressed == 3
    assert (
        _by_hand(world.dsn, "holds", 1, row).detail == "was written before in stream holds.requeue"
    )
    assert _by_hand(world.dsn, "holds", 3, decision("m_4", 3)).written
    world.holdfast("check", code=ExitCode.OK)
    assert world.holdfast("stream", "show", "holds", "--json").json["former_names"] == ["payouts"]


def test_acceptance_before_a_rename_is_still_audited(world: World) -> None:
    job = world.driver()
    job.batch(0, decision("m_1"))
    with pytest.raises(Exception, match="batch accept payouts 0"):
        job.batch(0, decision("m_1"), decision("m_2"))
    world.holdfast("batch", "accept", "payouts", "0", *WHY, code=ExitCode.OK)
    job.sink.close()
    _rename(world)
    world.holdfast("check", code=ExitCode.OK)
    new = world.driver(stream="holds", query_id=job.query_id)
    assert isinstance(new.batch(0, decision("m_1"), decision("m_2")), Written)
    targets = "SELECT action, target FROM holdfast.operator_action ORDER BY id"
    assert world.db.execute(targets.encode()).fetchall() == [
        ("batch.accept", "batch payouts 0"),
        ("stream.rename", "holds"),
    ]


def test_endpoint_of_a_stream_gets_what_it_decides_after_a_rename(world: World) -> None:
    world.endpoint(streams=["payouts"])
    job = world.driver()
    job.batch(0, decision("m_1", 1, BLOCK))
    job.sink.close()
    assert _rename(world).json["endpoints"] == ["payouts"]
    new = world.driver(stream="holds", query_id=job.query_id)
    new.batch(1, decision("m_1", 2, RELEASE))
    world.driver(stream="other").batch(0, decision("m_2"))
    world.drain()
    assert [each.sequence for each in world.receiver.seen] == [1, 2]


def test_endpoint_is_not_given_the_former_name_of_a_stream(world: World) -> None:
    """It would never get a decision."""
    world.endpoint(state="paused")
    job = world.driver()
    job.batch(0, decision("m_1"))
    job.sink.close()
    _rename(world)
    before = _rows(world.db)
    change = ("endpoint", "set", "payouts", "--reason", "test", "--json", "--stream")
    error = world.holdfast(*change, "payouts", code=ExitCode.FAILED).error
    assert error["code"] == "stream_renamed"
    assert "'payouts' is called 'holds' now" in error["error"]
    assert _rows(world.db) == before
    world.holdfast(*change, "holds", code=ExitCode.OK)


def test_stream_with_entries_written_by_hand_gets_its_name_back(world: World) -> None:
    job = world.driver()
    job.batch(0, decision("m_1", 1, BLOCK))
    job.sink.close()
    row = decision("m_2", 1, BLOCK)
    assert _by_hand(world.dsn, "payouts", 1, row).written
    _rename(world)
    assert _rename(world, "holds", "payouts").json["by_hand"] == {
        "holds.requeue": "payouts.requeue"
    }
    again = _by_hand(world.dsn, "payouts", 1, row)
    assert again.detail == "was written before in stream payouts.requeue"


@pytest.mark.parametrize("queries", ["same", "another"])
def test_old_name_begins_no_new_ledger(world: World, queries: str) -> None:
    """Under it, the block that repeats the subject's state would be news."""
    job = world.driver()
    job.batch(0, decision("m_1", 1, BLOCK))
    job.sink.close()
    _rename(world)
    before = _rows(world.db)
    query_id = job.query_id if queries == "same" else uuid4()
    for batch_id in (0, 1):
        old = world.driver(query_id=query_id, first_batch=batch_id)
        with pytest.raises(UnadoptedCheckpoint, match="'payouts' is called 'holds' now"):
            old.batch(batch_id, decision("m_1", 2, BLOCK))
        old.sink.close()
    assert _rows(world.db) == before
    _rename(world, "holds", "payouts")
    back = world.driver(query_id=job.query_id)
    assert back.batch(1, decision("m_1", 2, BLOCK)).counts.suppressed == 1
    assert world.value("SELECT former_names FROM holdfast.stream") == ["holds"]


@pytest.mark.parametrize("is_renamed", [True, False], ids=["renamed", "locked"])
def test_start_during_a_rename_begins_no_new_ledger(world: World, is_renamed: bool) -> None:
    """The rename that it waits for has renamed the stream, or only locked it."""
    world.driver().batch(0, decision("m_1", 1, BLOCK))
    with psycopg.connect(world.dsn) as renaming, ThreadPoolExecutor(1) as thread:
        renaming.execute(TAKE)
        if is_renamed:
            _by_sql(renaming)
        old = thread.submit(world.driver().batch, 0, decision("m_1", 2, BLOCK))
        _wait_for_lock(world)
        if not is_renamed:
            _by_sql(renaming)
        renaming.commit()
        with pytest.raises(UnadoptedCheckpoint, match="'payouts' is called 'holds' now"):
            old.result(60)
    assert world.value("SELECT array_agg(name) FROM holdfast.stream") == ["holds"]


@pytest.mark.parametrize("suffix", ENDINGS)
@pytest.mark.parametrize("is_over", [True, False], ids=["before", "during"])
def test_first_entry_by_hand_acts_for_the_renamed_stream(
    world: World, suffix: str, is_over: bool
) -> None:
    """With the old name, the job would block again what that entry has blocked."""
    job = world.driver()
    job.batch(0, decision("m_1", 1, BLOCK))
    job.sink.close()
    text = _json(decision("m_2", 1, BLOCK))
    with (
        closing(Opened()) as opened,
        psycopg.connect(world.dsn) as renaming,
        ThreadPoolExecutor(1) as thread,
    ):
        # It reads the stream that it acts for with its first row.
        by_hand = partial(requeue, world.dsn, "payouts", suppress_repeats=True, suffix=suffix)
        [_] = by_hand({1: text}, foresee=True, opened=opened)
        _by_sql(renaming)
        if is_over:
            renaming.commit()
        written = thread.submit(lambda: list(by_hand({1: text}, opened=opened)))
        if not is_over:
            _wait_for_lock(world)
            renaming.commit()
        with pytest.raises(CommandError, match=r"'payouts'.* is called 'holds' now.*repeat"):
            written.result(60)
    assert world.value("SELECT array_agg(name) FROM holdfast.stream") == ["holds"]

    assert _by_hand(world.dsn, "holds", 1, decision("m_2", 1, BLOCK), suffix=suffix).written
    new = world.driver(stream="holds", query_id=job.query_id)
    assert new.batch(1, decision("m_2", 2, BLOCK)).counts.suppressed == 1


def test_stream_by_hand_that_is_added_meanwhile_is_renamed_too(world: World) -> None:
    job = world.driver()
    job.batch(0, decision("m_1", 1, BLOCK))
    job.sink.close()
    with psycopg.connect(world.dsn) as adding, ThreadPoolExecutor(1) as thread:
        adding.execute(statement("batch/keep_name"), {"stream": "payouts"})
        added = {"stream": "payouts.requeue", "acts_for": "payouts"}
        adding.execute(statement("batch/add_stream"), added)
        renamed = thread.submit(_rename, world)
        _wait_for_lock(world)
        adding.commit()
        assert renamed.result(60).json["by_hand"] == {"payouts.requeue": "holds.requeue"}
    assert (
        world.value("SELECT acts_for FROM holdfast.stream WHERE name = 'holds.requeue'") == "holds"
    )


def test_stream_is_not_renamed_while_its_first_entry_by_hand_is_written(world: World) -> None:
    job = world.driver()
    job.batch(0, decision("m_1", 1, BLOCK))
    job.sink.close()
    row = _json(decision("m_2", 1, BLOCK))
    with closing(Opened()) as opened:
        by_hand = partial(requeue, world.dsn, "payouts", suppress_repeats=True, opened=opened)
        [_] = by_hand({1: row}, foresee=True)
        assert _refused(world, "holds", code=ExitCode.FAILED)["code"] == "stream_in_use"
        [written] = by_hand({1: row})
        assert written.written


@pytest.mark.parametrize("first", ["endpoint", "rename"])
def test_streams_of_an_endpoint_are_chosen_before_a_rename_or_after_it(
    world: World, first: str
) -> None:
    """Between its steps, an endpoint would keep the old name, and get nothing for ever."""
    world.endpoint(state="paused")
    job = world.driver()
    job.batch(0, decision("m_1"))
    job.sink.close()
    change = ("endpoint", "set", "payouts", "--reason", "test", "--json", "--stream", "payouts")
    with ThreadPoolExecutor(1) as thread, Renaming.connect(world.dsn) as store:
        if first == "rename":
            with store._transaction():
                store.rename("payouts", "holds", "test")
                error = world.holdfast(*change, code=ExitCode.FAILED).error
            assert error["code"] == "stream_renaming"
        else:
            with Endpoints.connect(world.dsn) as endpoints, endpoints._transaction():
                endpoints.set_endpoint(
                    "payouts", lambda settings: {**settings, "streams": ["payouts"]}, "test"
                )
                renamed = thread.submit(store.rename, "payouts", "holds", "test")
                _wait_for_lock(world)
            assert renamed.result(60)["endpoints"] == ["payouts"]
    streams = world.value("SELECT streams FROM holdfast.endpoint")
    assert streams == ([] if first == "rename" else ["holds"])


def test_endpoint_has_each_stream_once_and_in_order_after_a_rename(world: World) -> None:
    """As a file of endpoints has them: otherwise each plan would show a change."""
    world.endpoint(streams=["holds", "other", "payouts"])
    job = world.driver()
    job.batch(0, decision("m_1"))
    job.sink.close()
    _rename(world, "payouts", "a_first")
    assert world.value("SELECT streams FROM holdfast.endpoint") == ["a_first", "holds", "other"]
    _rename(world, "a_first", "holds")
    assert world.value("SELECT streams FROM holdfast.endpoint") == ["holds", "other"]


def test_replay_is_accepted_before_a_rename_or_after_it(world: World) -> None:
    """Between its steps, the newer decision of the old name would not count."""
    job = world.driver()
    job.batch(0, decision("m_1"))
    with pytest.raises(ReplayDiverged):
        job.batch(0, decision("m_1"), decision("m_2"))
    job.sink.close()
    with Acceptances.connect(world.dsn) as store, ThreadPoolExecutor(1) as thread:
        with psycopg.connect(world.dsn) as renaming:
            renaming.execute(TAKE)
            accepted = thread.submit(store.accept, "payouts", 0, None, None, "test", 10)
            _wait_for_lock(world)
            _by_sql(renaming)
        with pytest.raises(CommandError, match="no stream is called 'payouts'"):
            accepted.result(60)
    assert world.value("SELECT accepted_at FROM holdfast.divergence") is None


def test_query_is_adopted_before_a_rename_or_after_it(world: World) -> None:
    job = world.driver()
    job.batch(0, decision("m_1"))
    job.sink.close()
    words = ("stream", "adopt", "payouts", "--query-id", str(uuid4()), "--force", *WHY[:2])
    with psycopg.connect(world.dsn) as renaming, ThreadPoolExecutor(1) as thread:
        renaming.execute(TAKE)
        adopted = thread.submit(world.holdfast, *words, "--json", code=ExitCode.NOTHING_MATCHED)
        _wait_for_lock(world)
        _by_sql(renaming)
        renaming.commit()
        assert adopted.result(60).error["code"] == "unknown_stream"


def test_run_whose_stream_is_renamed_writes_nothing_more(world: World) -> None:
    job = world.driver()
    job.batch(0, decision("m_1"))
    # Behind a pooler, the server does not know whose sessions they are.
    with world.db.transaction():
        _by_sql(world.db)
    with pytest.raises(Fenced, match="renamed"):
        job.batch(1, decision("m_2"))
    assert world.value("SELECT count(*) FROM holdfast.batch") == 1


def test_stream_of_a_connected_sink_is_not_renamed(world: World) -> None:
    job = world.driver()
    job.batch(0, decision("m_1"))
    error = _refused(world, "holds", code=ExitCode.FAILED)
    assert error["code"] == "stream_in_use"
    assert "Nothing was changed; stop the job" in error["error"]
    world.driver(stream="payouts2").batch(0, decision("m_2"))
    job.sink.close()
    eventually(
        lambda: (
            not world.value(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE application_name = 'holdfast sink payouts'"
            )
        )
    )
    _rename(world)


def test_commands_of_the_page_show_a_rename_and_do_it(world: World) -> None:
    job = world.driver()
    job.batch(0, decision("m_1"))
    job.sink.close()
    before = _rows(world.db)
    block = blocks_of("docs/spark/deploying.md", "sh")[1]
    shows, renames = (shlex.split(line)[1:] for line in block.splitlines())
    done = world.holdfast(*shows, code=ExitCode.OK)
    assert "payouts becomes holds, with its 1 batch" in done.stdout
    assert _rows(world.db) == before
    done = world.holdfast(*renames, "--yes", code=ExitCode.OK)
    assert "stream payouts is called holds now" in done.stdout


@pytest.mark.parametrize(
    ("new", "code", "why"),
    [
        ("other", ExitCode.FAILED, "name_taken"),
        ("former", ExitCode.FAILED, "name_taken"),
        ("payouts", ExitCode.FAILED, "name_taken"),
        ("Big", ExitCode.USAGE, "invalid_name"),
        ("holds.requeue", ExitCode.USAGE, "invalid_name"),
    ],
)
def test_name_that_a_stream_has_or_had_is_refused(
    world: World, new: str, code: ExitCode, why: str
) -> None:
    for stream in ("payouts", "former", "other"):
        driver = world.driver(stream=stream)
        driver.batch(0, decision(f"m_{stream}"))
        driver.sink.close()
    _rename(world, "former", "latter")
    assert _refused(world, new, code=code)["code"] == why


@pytest.mark.parametrize(
    ("new", "query", "why"),
    [
        ("payouts", None, "is or was a stream's name"),
        ("other", None, "is or was a stream's name"),
        ("former", None, "is or was a stream's name"),
        ("holds", uuid4(), "keeps its query id"),
    ],
)
def test_rename_by_sql_alone_changes_only_the_name(
    world: World, new: str, query: UUID | None, why: str
) -> None:
    for stream in ("payouts", "former", "other"):
        driver = world.driver(stream=stream)
        driver.batch(0, decision(f"m_{stream}"))
        driver.sink.close()
    _rename(world, "former", "latter")
    before = _rows(world.db)
    with pytest.raises(psycopg.Error, match=why), world.db.transaction():
        _by_sql(world.db, new, query)
    assert _rows(world.db) == before


def test_rename_by_sql_alone_needs_its_audit_row(world: World) -> None:
    job = world.driver()
    job.batch(0, decision("m_1"))
    job.sink.close()
    _audit(world.db, "holds")  # of an earlier transaction
    before = _rows(world.db)
    with pytest.raises(psycopg.Error, match="needs its row in operator_action"):
        _call(world.db, "holds")
    assert _rows(world.db) == before


def test_only_the_stream_of_a_job_is_renamed(world: World) -> None:
    job = world.driver()
    job.batch(0, decision("m_1", 1, BLOCK))
    job.sink.close()
    assert _by_hand(world.dsn, "payouts", 1, decision("m_2")).written
    error = _refused(world, "holds", old="payouts.requeue", code=ExitCode.FAILED)
    assert error["code"] == "stream_written_by_hand"
    error = _refused(world, "holds", old="nothing", code=ExitCode.NOTHING_MATCHED)
    assert error["code"] == "unknown_stream"


def test_stream_with_a_role_is_renamed_to_one_with_a_role(world: World) -> None:
    names = [f"s{uuid4().hex[:8]}" for _ in range(2)]
    old, new = names
    user = conninfo_to_dict(world.app_dsn)["user"]
    try:
        world.holdfast("db", "stream-role", old, code=ExitCode.OK)
        job = world.driver(stream=old)
        job.batch(0, decision("m_1"))
        job.sink.close()
        world.closed(old)
        error = _refused(world, new, old=old, code=ExitCode.FAILED)
        assert error["code"] == "stream_role_missing"
        refused = pytest.raises(psycopg.errors.InsufficientPrivilege, match="no such role")
        with refused, world.db.transaction():
            _by_sql(world.db, new, old=old)

        world.holdfast("db", "stream-role", new, code=ExitCode.OK)
        _rename(world, old, new)
        stranger = world.driver(world.app_dsn, stream=new, query_id=job.query_id)
        with pytest.raises(Exception, match=f"cannot act as holdfast_sink_{new}"):
            stranger.batch(1, decision("m_2"))
        world.db.execute(f'GRANT "holdfast_sink_{new}" TO "{user}"'.encode())
        assert isinstance(stranger.batch(1, decision("m_2")), Written)
        stranger.sink.close()
    finally:
        for name in names:
            role = sql.Identifier(f"holdfast_sink_{name}")
            world.db.execute(sql.SQL("DROP OWNED BY {}").format(role))
            world.db.execute(sql.SQL("DROP ROLE {}").format(role))

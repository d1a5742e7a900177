"""Expand and contract, and the versions that are recorded as running."""

import json
import os
import pwd
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from click.testing import Result
from typer.testing import CliRunner

from holdfast.dispatcher.operators.common.pool import OperatorPool
from holdfast.dispatcher.operators.common.session import OperatorSession
from holdfast.dispatcher.operators.database.store import Database
from holdfast.migrations import plan as planning
from holdfast.migrations import upgrade as module
from holdfast.migrations.cli import app
from holdfast.migrations.prune import prune
from holdfast.migrations.upgrade import downgrade, head, running, upgrade
from holdfast.sink import SchemaMismatch
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.roles import READER
from holdfast.sink.contract.schema import SCHEMA_REVISION, WORKS_FROM
from holdfast.sink.transaction.writer import Writer
from tests.support.dispatch.dispatching import drain
from tests.support.job.decisions import Decisions
from tests.support.upgrades.builds import Pair, write_pair
from tests.support.waiting import eventually
from tests.support.world import World

SINK = """
    INSERT INTO holdfast.stream (name, query_id, epoch, run_id, started_at)
    VALUES ('payouts', gen_random_uuid(), 1, gen_random_uuid(), now() - interval '40 days');
    INSERT INTO holdfast.code_session (kind, name, revision, works_from, seen_at)
    VALUES ('sink', 'payouts', '0032', '0031', now() - interval '40 days');
"""
BATCH = """
    INSERT INTO holdfast.batch (stream, query_id, batch_id, run_id, epoch, row_count, entry_count,
        duplicate_count, differing_count, suppressed_count, quarantined_count, digest, written_at)
    SELECT name, query_id, 0, run_id, 1, 0, 0, 0, 0, 0, 0, sha256('x'), now() FROM holdfast.stream
"""
DISPATCHER = """
    INSERT INTO holdfast.dispatcher_instance (id, host, pid, version, heartbeat_at)
    VALUES ('018f3a1e-0000-4000-8000-000000000000', 'host-1', 42, '0.1.0', now() - interval '2 h');
"""
RECORDED = """
    INSERT INTO holdfast.code_session (kind, name, revision, works_from)
    VALUES ('dispatcher', '018f3a1e-0000-4000-8000-000000000000', '{revision}', '{works_from}');
"""
SERVER = """
    INSERT INTO holdfast.code_session (kind, name, revision, works_from, seen_at)
    VALUES ('api', 'host-2 pid 7', '0032', '0031', now() - interval '{age}');
"""


pytestmark = pytest.mark.usefixtures("template_database")
"""Migrated before `pair` adds revisions, which the databases of other tests do not have."""


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    """The revisions of this version, and two of the next one."""
    versions = tmp_path / "versions"
    shutil.copytree(module.VERSIONS, versions)
    pair = write_pair(versions, SCHEMA_REVISION)
    monkeypatch.setattr(module, "VERSIONS", versions)
    return pair


def _run(*arguments: str) -> Result:
    return CliRunner(env={"HOLDFAST_DSN": None}).invoke(app, list(arguments))


def _downgrade(revision: str, *arguments: str) -> Result:
    return _run("downgrade", revision, "--reason", "the next version is slow", "--yes", *arguments)


def _revision(db: psycopg.Connection) -> tuple[str, str]:
    return db.execute(
        "SELECT version_num, serves_from FROM holdfast.alembic_version"
    ).fetchone() or ("", "")


def _refused(dsn: str, match: str) -> None:
    with pytest.raises(CommandError, match=match) as caught:
        upgrade(dsn)
    assert "Nothing was changed" in str(caught.value)
    assert "--force" in str(caught.value)


def test_without_older_code_an_upgrade_runs_both_phases(world: World, pair: Pair) -> None:
    assert upgrade(world.dsn).after == pair.contract == head()
    assert _revision(world.db) == (pair.contract, pair.expand)


def test_expand_stops_before_the_contract_revision(world: World, pair: Pair) -> None:
    world.db.execute(DISPATCHER)
    done = _run("upgrade", "--expand", "--dsn", world.dsn, "--json")
    assert json.loads(done.output)["after"] == pair.expand
    assert _revision(world.db) == (pair.expand, "0032")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (DISPATCHER, r"dispatcher host-1 pid 42 \(built for 0031 or before, last seen"),
        (DISPATCHER + RECORDED.format(revision="0032", works_from="0031"), r"built for 0032, last"),
        (SINK + BATCH, "sink payouts"),
        (SERVER.format(age="23 h"), "api host-2 pid 7"),
    ],
    ids=["an unrecorded dispatcher", "an older dispatcher", "a sink with a batch", "a server"],
)
def test_contract_waits_for_older_code(world: World, pair: Pair, text: str, named: str) -> None:
    world.db.execute(text.encode())
    _refused(world.dsn, named)
    assert _revision(world.db) == (SCHEMA_REVISION, "0032")
    assert upgrade(world.dsn, force=True).after == pair.contract


def test_sink_with_an_open_connection_counts_as_running(world: World, pair: Pair) -> None:
    """Neither its batch nor its start is of this day, and the upgrade's user is no superuser."""
    stream = "a" * 63
    with closing(Writer(world.dsn, stream)) as writer:
        writer.begin_run(uuid4(), uuid4())
        world.db.execute("UPDATE holdfast.stream SET started_at = now() - interval '40 days'")
        world.db.execute("UPDATE holdfast.code_session SET seen_at = now() - interval '40 days'")
        _refused(world.dsn, f"sink {stream}")
        (seen,) = world.db.execute(f"SET ROLE {READER}") and running(world.db)
        assert (seen.kind, seen.name, seen.revision) == ("sink", stream, SCHEMA_REVISION)
    world.db.execute("RESET ROLE")
    eventually(lambda: running(world.db) == [])
    assert upgrade(world.dsn).after == pair.contract


def test_contract_is_made_when_all_older_code_has_ended(world: World, pair: Pair) -> None:
    world.db.execute((SINK + SERVER.format(age="25 h")).encode())
    newer = RECORDED.format(revision=pair.expand, works_from="0032")
    world.db.execute((DISPATCHER + newer).encode())
    assert upgrade(world.dsn).after == pair.contract


def test_contract_is_refused_from_a_database_that_recorded_nothing(
    world: World, pair: Pair
) -> None:
    downgrade(world.dsn, "0031")
    world.db.execute(DISPATCHER)
    _refused(world.dsn, "built for 0031 or before")
    assert world.db.execute("SELECT version_num FROM holdfast.alembic_version").fetchone() == (
        "0031",
    )
    assert upgrade(world.dsn, expand=True).after == pair.expand


def test_upgrade_forgets_dispatchers_that_are_gone(dsn: str, db: psycopg.Connection) -> None:
    db.execute(RECORDED.format(revision="0032", works_from="0031").encode())
    db.execute((SINK + SERVER.format(age="31 days")).encode())
    upgrade(dsn)
    kinds = db.execute("SELECT kind FROM holdfast.code_session").fetchall()
    assert kinds == [("sink",)]


def test_expand_can_be_undone(pair: Pair, dsn: str, db: psycopg.Connection) -> None:
    db.execute(DISPATCHER)
    upgrade(dsn, expand=True)
    undone = _downgrade(SCHEMA_REVISION, "--dsn", dsn, "--json")
    assert undone.exit_code == ExitCode.OK, undone.output
    assert json.loads(undone.output) == {
        "before": pair.expand,
        "after": SCHEMA_REVISION,
        "changed": True,
    }
    assert _revision(db) == (SCHEMA_REVISION, "0032")
    again = _downgrade(SCHEMA_REVISION, "--dsn", dsn)
    assert again.exit_code == ExitCode.NOTHING_MATCHED
    [row] = db.execute(
        "SELECT actor, target, reason, detail FROM holdfast.operator_action"
        " WHERE action = 'db.downgrade'"
    ).fetchall()
    detail = {"before": pair.expand, "after": SCHEMA_REVISION, "forced": False}
    name = pwd.getpwuid(os.getuid()).pw_name
    assert row == (name, f"revision {SCHEMA_REVISION}", "the next version is slow", detail)


@pytest.mark.parametrize("arguments", [(), ("--reason", " ", "--yes"), ("--reason", "it is slow")])
def test_downgrade_needs_a_reason_and_a_yes(
    world: World, pair: Pair, arguments: tuple[str, ...]
) -> None:
    upgrade(world.dsn, expand=True)
    refused = _run("downgrade", SCHEMA_REVISION, *arguments, "--dsn", world.dsn)
    code = getattr(refused.exception, "exit_code", None) or refused.exit_code
    assert code == ExitCode.USAGE
    assert _revision(world.db)[0] == pair.expand


def test_expand_is_not_undone_while_code_runs_that_needs_it(world: World, pair: Pair) -> None:
    upgrade(world.dsn, expand=True)
    newer = RECORDED.format(revision=pair.contract, works_from=pair.expand)
    world.db.execute((DISPATCHER + newer).encode())
    refused = _downgrade(SCHEMA_REVISION, "--dsn", world.dsn)
    assert isinstance(refused.exception, CommandError)
    assert "dispatcher host-1" in str(refused.exception)
    assert "--force" in str(refused.exception)
    assert _revision(world.db)[0] == pair.expand
    forced = _downgrade(SCHEMA_REVISION, "--force", "--dsn", world.dsn)
    assert forced.exit_code == ExitCode.OK, forced.output


def test_contract_and_older_revisions_cannot_be_undone(pair: Pair, dsn: str) -> None:
    upgrade(dsn)
    for revision, named in ((pair.expand, f"{pair.contract}_contract"), ("0020", "0021_")):
        refused = _downgrade(revision, "--force", "--dsn", dsn)
        assert isinstance(refused.exception, CommandError)
        assert f"revision {named}" in str(refused.exception)
        assert "Nothing was changed" in str(refused.exception)


def test_empty_databases_plan_is_catalogue_only(make_database: Callable[[str | None], str]) -> None:
    planned = planning.plan(dsn := make_database(None))
    assert (planned.before, planned.after) == (None, SCHEMA_REVISION)
    assert all(
        each.catalogue_only for revision in planned.revisions for each in revision.statements
    )
    with psycopg.connect(dsn) as db:
        assert db.execute("SELECT to_regnamespace('holdfast')").fetchone() == (None,)


@pytest.mark.parametrize("revision", ["9999", "base", "head"])
def test_revision_to_go_back_to_must_exist(dsn: str, revision: str) -> None:
    refused = _downgrade(revision, "--dsn", dsn)
    assert isinstance(refused.exception, CommandError)
    assert refused.exception.exit_code == ExitCode.USAGE


def _sink(dsn: str) -> None:
    with closing(Writer(dsn, "payouts")) as writer:
        writer.check()


def _dispatcher(dsn: str) -> None:
    drain(dsn)


def _operator(dsn: str) -> None:
    with OperatorSession.connect(dsn):
        pass


def _janitor(dsn: str) -> None:
    prune(dsn, days=400, dry_run=True, reason="a test")


SESSIONS = pytest.mark.parametrize("session", [_sink, _dispatcher, _operator, _janitor])


def _sessions(db: psycopg.Connection) -> list[tuple[str, str, str]]:
    return db.execute(
        "SELECT kind, revision, works_from FROM holdfast.code_session ORDER BY kind"
    ).fetchall()


@SESSIONS
def test_further_expanded_database_serves(world: World, session: Callable[[str], None]) -> None:
    world.db.execute("UPDATE holdfast.alembic_version SET version_num = '9998'")
    session(world.dsn)


@SESSIONS
def test_contracted_database_is_refused(world: World, session: Callable[[str], None]) -> None:
    world.db.execute(
        "UPDATE holdfast.alembic_version SET version_num = '9999', serves_from = '9998'"
    )
    with pytest.raises(
        (SchemaMismatch, CommandError), match=r"from 9998 on.*[Uu]pgrade this process"
    ):
        session(world.dsn)


@SESSIONS
def test_too_old_revision_is_refused(world: World, session: Callable[[str], None]) -> None:
    downgrade(world.dsn, f"{int(WORKS_FROM) - 1:04}")
    with pytest.raises(
        (SchemaMismatch, CommandError), match=r"(?=.*[Nn]othing).*holdfast db upgrade"
    ):
        session(world.dsn)


def test_oldest_revision_carries_a_decision_to_its_receiver(world: World) -> None:
    downgrade(world.dsn, WORKS_FROM)
    world.add_endpoint()
    with Decisions(world.dsn) as decisions:
        decisions.write("m_1", "m_2")
        world.drain()
        assert upgrade(world.dsn).after == SCHEMA_REVISION
        decisions.write("m_1")
    world.drain()
    assert len(world.receiver.seen) == 3


def _served(dsn: str) -> None:
    """Open and close what a server has of the database, which is of its revision."""
    pool = OperatorPool(dsn, 1)
    pool.open()
    try:
        with pool.lend(Database, "api") as store:
            assert store.schema_mismatch() is None
    finally:
        pool.close()


def test_sinks_dispatchers_and_servers_are_recorded_with_their_range(world: World) -> None:
    with Decisions(world.dsn):
        world.drain()
    _served(world.dsn)
    assert _sessions(world.db) == [
        (kind, SCHEMA_REVISION, WORKS_FROM) for kind in ("api", "dispatcher", "sink")
    ]


def test_server_that_ends_in_order_does_not_count_as_running(world: World) -> None:
    pool = OperatorPool(world.dsn, 1)
    pool.open()
    with pool.lend(Database, "api"):
        assert [each.kind for each in running(world.db)] == ["api"]
    pool.close()
    assert running(world.db) == []


def test_commands_are_not_recorded(dsn: str, db: psycopg.Connection) -> None:
    _operator(dsn)
    assert _sessions(db) == []


def test_server_on_a_read_only_database_is_not_recorded(dsn: str, db: psycopg.Connection) -> None:
    _served(f"{dsn} options='-c default_transaction_read_only=on'")
    assert _sessions(db) == []

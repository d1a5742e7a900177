"""`db upgrade --plan`: locks and work of each statement, times by the sizes of this database.

Real: the server, the revisions, the command; an expand and a contract revision of a next release.
"""

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import Result
from psycopg import sql
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner

from holdfast.migrations import plan
from holdfast.migrations import upgrade as module
from holdfast.migrations.cli import app
from holdfast.migrations.plan import MEASURED, Kind, Size
from holdfast.migrations.upgrade import downgrade
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.roles import ALL
from holdfast.sink.contract.schema import SCHEMA_REVISION
from tests.support.upgrades.builds import Pair, write_pair
from tests.support.world import World

pytestmark = pytest.mark.rest


ROWS = 20_000
BATCHES = f"""
    INSERT INTO holdfast.stream (name) VALUES ('payouts');
    INSERT INTO holdfast.batch (stream, query_id, batch_id, run_id, epoch, row_count, entry_count,
        duplicate_count, differing_count, suppressed_count, quarantined_count, digest, written_at)
    SELECT 'payouts', md5('q')::uuid, n, md5('r')::uuid, 1, 0, 0, 0, 0, 0, 0, sha256('x'), now()
    FROM generate_series(1, {ROWS}) AS n;
    ANALYZE holdfast.batch;
"""
SCRATCH = "SELECT count(*) FROM pg_database WHERE datname LIKE 'holdfast_plan_%'"


@pytest.fixture
def pair(template_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:  # noqa: ARG001 - migrated before there are more revisions
    """The revisions of this version, and two of the next one."""
    shutil.copytree(module.VERSIONS, tmp_path / "versions")
    monkeypatch.setattr(module, "VERSIONS", tmp_path / "versions")
    return write_pair(tmp_path / "versions", SCHEMA_REVISION)


def _add(name: str, statement: str) -> None:
    """Let the revision of the next release whose file has this name begin with a statement."""
    [file] = module.VERSIONS.glob(f"*_{name}.py")
    first = "def upgrade() -> None:\n"
    file.write_text(file.read_text().replace(first, f'{first}    op.execute("{statement}")\n'))


def _run(*arguments: str) -> Result:
    return CliRunner(env={"HOLDFAST_DSN": None}).invoke(app, ["upgrade", "--plan", *arguments])


def _planned(dsn: str, *arguments: str) -> Any:
    done = _run("--dsn", dsn, "--json", *arguments)
    assert done.exit_code == ExitCode.OK, done.output
    return json.loads(done.output)


def _statement(planned: Any, text: str) -> Any:
    """The one statement with this text."""
    [statement] = [
        each
        for revision in planned["revisions"]
        for each in revision["statements"]
        if text in each["sql"]
    ]
    return statement


def test_plan_names_size_and_estimate_of_each_table(world: World, pair: Pair) -> None:
    world.db.execute(BATCHES.encode())
    planned = _planned(world.dsn)
    assert (planned["before"], planned["after"]) == (SCHEMA_REVISION, pair.contract)
    assert planned["unit_costs"] == asdict(MEASURED)
    for text, kind in (
        ("batch ALTER COLUMN writer SET NOT NULL", "read"),
        ("UPDATE holdfast.batch", "change_rows"),
    ):
        statement = _statement(planned, text)
        [work] = statement["work"]
        assert (work["table"], work["kind"], work["rows"]) == ("batch", kind, ROWS)
        assert work["total_bytes"] > work["bytes"] > ROWS * 50
        assert statement["seconds"] > work["seconds"] > 0
        assert not statement["catalogue_only"]
    shown = _run("--dsn", world.dsn).output
    assert f"reads batch: {ROWS:,} rows" in shown
    assert MEASURED.command in shown


def test_plan_says_what_is_catalogue_only_and_what_locks(world: World, pair: Pair) -> None:
    world.db.execute(BATCHES.encode())
    planned = _planned(world.dsn)
    statement = _statement(planned, "batch ADD COLUMN writer")
    assert (statement["catalogue_only"], statement["work"]) == (True, [])
    assert statement["locks"] == [{"table": "batch", "mode": "AccessExclusiveLock"}]
    assert statement["seconds"] == MEASURED.catalogue_ms / 1000
    assert [(each["name"], each["phase"]) for each in planned["revisions"]] == [
        (f"{pair.expand}_expand_writer", "expand"),
        (f"{pair.contract}_contract_writer", "contract"),
    ]
    assert "catalogue only" in _run("--dsn", world.dsn).output


@pytest.mark.usefixtures("pair")
def test_plan_of_an_empty_database_has_no_work_worth_a_millisecond(dsn: str) -> None:
    planned = _planned(dsn)
    [work] = _statement(planned, "batch ALTER COLUMN writer SET NOT NULL")["work"]
    assert work["table"] == "batch"
    assert work["rows"] in {None, 0}
    assert work["seconds"] < 0.001


@pytest.mark.usefixtures("pair")
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("CREATE INDEX ix_batch_some ON holdfast.batch (written_at, run_id)", "build_index"),
        ("ALTER TABLE holdfast.batch ADD COLUMN tag uuid DEFAULT gen_random_uuid()", "rewrite"),
    ],
)
def test_plan_tells_an_index_from_a_rewrite(world: World, text: str, kind: str) -> None:
    world.db.execute(BATCHES.encode())
    _add("expand_writer", text)
    [work] = _statement(_planned(world.dsn, "--expand"), text)["work"]
    assert (work["table"], work["kind"]) == ("batch", kind)
    assert work["seconds"] > 0


@pytest.mark.usefixtures("pair")
def test_plan_includes_days_and_indexes_added_to_the_database(world: World) -> None:
    world.db.execute(
        "CREATE TABLE holdfast.entry_20200101 PARTITION OF holdfast.entry"
        " FOR VALUES FROM ('2020-01-01 00:00+00') TO ('2020-01-02 00:00+00')"
    )
    world.db.execute("CREATE INDEX ix_batch_some ON holdfast.batch (run_id)")
    _add("expand_writer", "CREATE INDEX IF NOT EXISTS ix_batch_some ON holdfast.batch (run_id)")
    _add("expand_writer", "CREATE INDEX ix_entry_some ON holdfast.entry (type)")
    planned = _planned(world.dsn, "--expand")
    assert _statement(planned, "ix_batch_some")["catalogue_only"]
    built = {work["table"] for work in _statement(planned, "ix_entry_some")["work"]}
    assert "entry_20200101" in built


def test_plan_locks_and_changes_nothing(pair: Pair, dsn: str, db: psycopg.Connection) -> None:
    with psycopg.connect(dsn) as other:
        # Any revision that alters the table would wait for this writer.
        other.execute("LOCK TABLE holdfast.batch IN ROW EXCLUSIVE MODE")
        planned = _planned(dsn)
    assert planned["after"] == pair.contract
    assert db.execute("SELECT version_num FROM holdfast.alembic_version").fetchone() == (
        SCHEMA_REVISION,
    )
    assert db.execute(SCRATCH).fetchone() == (0,)


def test_plan_does_not_wait_long_for_a_locked_table(dsn: str) -> None:
    with psycopg.connect(dsn) as other:
        other.execute("LOCK TABLE holdfast.batch IN ACCESS EXCLUSIVE MODE")
        refused = _run("--dsn", dsn)
    assert isinstance(refused.exception, CommandError)
    assert "exclusively" in str(refused.exception)


def test_expand_plan_stops_before_the_contract_revision(world: World, pair: Pair) -> None:
    planned = _planned(world.dsn, "--expand")
    assert planned["after"] == pair.expand
    assert [each["phase"] for each in planned["revisions"]] == ["expand"]


def test_plan_of_the_newest_schema_has_nothing_to_do(dsn: str) -> None:
    done = _run("--dsn", dsn)
    assert done.exit_code == ExitCode.NOTHING_MATCHED
    assert "nothing is to be done" in done.output


def test_plan_from_an_older_schema_omits_phases_of_old_revisions(dsn: str) -> None:
    downgrade(dsn, "0030")
    phases = [each["phase"] for each in _planned(dsn)["revisions"]]
    assert phases[:2] == [None, "expand"]


def test_plan_takes_no_force(dsn: str) -> None:
    refused = _run("--force", "--dsn", dsn)
    assert isinstance(refused.exception, CommandError)
    assert refused.exception.exit_code == ExitCode.USAGE


def test_plan_names_missing_rights_of_a_user_without_createdb(world: World) -> None:
    user = f"planner_{world.db.info.dbname[-12:]}"
    world.db.execute(f"CREATE ROLE {user} LOGIN PASSWORD 'p'".encode())
    world.db.execute(f"GRANT {', '.join(ALL)} TO {user}".encode())
    try:
        refused = _run("--dsn", make_conninfo(world.dsn, user=user, password="p"))
        assert isinstance(refused.exception, CommandError)
        assert f'ALTER ROLE "{user}" CREATEDB' in str(refused.exception)
    finally:
        world.db.execute(f"DROP ROLE {user}".encode())


@pytest.mark.usefixtures("pair")
def test_one_database_names_plan_no_change(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a pooler whose configuration names the database."""
    monkeypatch.setattr(plan, "make_conninfo", lambda text, **_parameters: text)
    refused = _run("--dsn", world.dsn)
    assert world.db.execute("SELECT version_num FROM holdfast.alembic_version").fetchone() == (
        SCHEMA_REVISION,
    )
    assert isinstance(refused.exception, CommandError)
    assert world.db.info.dbname in str(refused.exception)
    assert world.db.execute(SCRATCH).fetchone() == (0,)


def test_plan_drops_databases_of_killed_plans_only(dsn: str, db: psycopg.Connection) -> None:
    left, used = f"holdfast_plan_0_{'a' * 12}", f"holdfast_plan_{db.info.backend_pid}_{'b' * 12}"
    names = (left, used, "holdfast_plan_0_mine")
    for name in names:
        db.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        assert _run("--dsn", dsn).exit_code == ExitCode.NOTHING_MATCHED
        databases = db.execute(
            "SELECT datname FROM pg_database WHERE datname = ANY (%s)", [[*names]]
        )
        assert {name for (name,) in databases} == {used, names[2]}
    finally:
        for name in names:
            db.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name)))


def test_plan_says_that_a_server_is_read_only(dsn: str) -> None:
    refused = _run("--dsn", make_conninfo(dsn, options="-c default_transaction_read_only=on"))
    assert isinstance(refused.exception, CommandError)
    assert "read-only" in str(refused.exception)


def test_plan_grants_no_role(dsn: str, db: psycopg.Connection) -> None:
    user = f"grantee_{db.info.dbname[-12:]}"
    member = "pg_has_role(%s::name, 'holdfast_owner', %s)"
    modern = db.info.server_version >= 16_00_00
    db.execute(f"CREATE ROLE {user} LOGIN CREATEDB CREATEROLE PASSWORD 'p'".encode())
    db.execute(f"GRANT holdfast_reader TO {user}".encode())
    if modern:
        options = " WITH ADMIN TRUE, INHERIT FALSE, SET FALSE"
        others = ", ".join({*ALL} - {"holdfast_reader"})
        db.execute(f"GRANT {others} TO {user}{options}".encode())
    try:
        refused = _run("--dsn", make_conninfo(dsn, user=user, password="p"))
        may = db.execute(f"SELECT {member}".encode(), [user, "SET" if modern else "MEMBER"])
        assert may.fetchone() == (False,)
        assert isinstance(refused.exception, CommandError)
        assert "holdfast_owner" in str(refused.exception)
    finally:
        for statement in ("DROP OWNED BY {} CASCADE", "DROP ROLE {}"):
            db.execute(sql.SQL(statement).format(sql.Identifier(user)))


def test_page_has_the_unit_costs() -> None:
    page = (Path(module.__file__).parents[1] / "docs" / "migrations.md").read_text()
    costs = asdict(MEASURED)
    shown = [
        f"| {costs[name]:{'.2f' if costs[name] < 1 else 'g'}} ms |"
        for name in costs
        if "_ms" in name
    ]
    assert [each for each in shown if each not in page] == []


def test_estimate_of_an_index_counts_rows_also_before_the_first_analyze() -> None:
    known = MEASURED.seconds(Kind.INDEX, Size(1_000_000, 10**9, 10**9))
    assert known == pytest.approx(MEASURED.index_ms_per_million_rows / 1000)
    assert MEASURED.seconds(Kind.INDEX, Size(-1, 10**8, 10**8)) == pytest.approx(known)
    assert MEASURED.seconds(Kind.INDEX, Size(1_000_000, 1, 1), 2) == pytest.approx(2 * known)

"""The session: which databases the sink writes to, as whom, and what it says of the others."""

import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from sink import SchemaMismatch, Written
from sink.database import Timeouts, _refuse_unfit
from sink.errors import SinkUnavailable
from tests.support.driver import Driver
from tests.support.entries import decision

MakeDriver = Callable[..., Driver]


@pytest.fixture
def app_dsn(dsn: str, db: psycopg.Connection) -> Iterator[str]:
    """DSN of a login user that may act as holdfast_sink and has no other right."""
    name = f"holdfast_test_app_{secrets.token_hex(4)}"
    user = sql.Identifier(name)
    db.execute(sql.SQL("CREATE ROLE {} LOGIN NOINHERIT PASSWORD 'canary'").format(user))
    db.execute(sql.SQL("GRANT holdfast_sink TO {}").format(user))
    yield make_conninfo(dsn, user=name, password="canary")
    db.execute(sql.SQL("DROP ROLE {}").format(user))


def _database(dsn: str) -> sql.Identifier:
    return sql.Identifier(str(conninfo_to_dict(dsn)["dbname"]))


def test_the_sinks_role_is_all_that_a_batch_needs(driver: MakeDriver, app_dsn: str) -> None:
    seen: list[tuple[str, ...]] = []

    def also(connection: psycopg.Connection, _rows: object) -> None:
        row = connection.execute(
            "SELECT session_user::text, current_user::text, current_setting('lock_timeout')"
        ).fetchone()
        assert row is not None
        seen.append(row)

    spark = driver(app_dsn, also=also)
    assert isinstance(spark.batch(0, decision()), Written)
    assert seen == [(conninfo_to_dict(app_dsn)["user"], "holdfast_sink", "20s")]
    spark.sink.close()


def test_user_who_may_not_act_as_the_sink_is_told_so(
    driver: MakeDriver, app_dsn: str, db: psycopg.Connection
) -> None:
    user = str(conninfo_to_dict(app_dsn)["user"])
    db.execute(sql.SQL("REVOKE holdfast_sink FROM {}").format(sql.Identifier(user)))
    with pytest.raises(SchemaMismatch, match=rf"GRANT holdfast_sink TO {user}"):
        driver(app_dsn).batch(0)


def test_database_without_the_schema_is_refused(
    driver: MakeDriver, make_database: Callable[[str | None], str]
) -> None:
    with pytest.raises(SchemaMismatch, match=r"no Holdfast schema; run `holdfast db upgrade`"):
        driver(make_database(None)).sink.check()


def test_other_schema_revision_is_refused(driver: MakeDriver, db: psycopg.Connection) -> None:
    db.execute("UPDATE holdfast.alembic_version SET version_num = '0003'")
    with pytest.raises(SchemaMismatch, match=r"revision 0003, this version .*holdfast db upgrade"):
        driver().batch(0)


def test_missing_column_is_a_mismatch_and_nothing_is_written(
    driver: MakeDriver, db: psycopg.Connection
) -> None:
    db.execute("ALTER TABLE holdfast.entry RENAME COLUMN traceparent TO trace")
    with pytest.raises(SchemaMismatch, match=r"traceparent.*holdfast db doctor"):
        driver().batch(0, decision())
    assert db.execute("SELECT count(*) FROM holdfast.batch").fetchone() == (0,)


def test_read_only_server_is_refused_in_words(
    driver: MakeDriver, dsn: str, db: psycopg.Connection
) -> None:
    statement = "ALTER DATABASE {} SET default_transaction_read_only = on"
    db.execute(sql.SQL(statement).format(_database(dsn)))
    with pytest.raises(SchemaMismatch, match="read-only or a standby"):
        driver().batch(0)


def test_server_that_may_forget_a_commit_is_refused() -> None:
    server = {"read_only": False, "durable": False, "encoding": "UTF8", "installed": True}
    with pytest.raises(SchemaMismatch, match="may forget what it committed"):
        _refuse_unfit(server)
    with pytest.raises(SchemaMismatch, match="encoding is LATIN1"):
        _refuse_unfit(server | {"durable": True, "encoding": "LATIN1"})


def test_database_that_does_not_flush_by_default_flushes_for_the_sink(
    driver: MakeDriver, dsn: str, db: psycopg.Connection
) -> None:
    db.execute(sql.SQL("ALTER DATABASE {} SET synchronous_commit = off").format(_database(dsn)))
    seen: list[object] = []

    def also(connection: psycopg.Connection, _rows: object) -> None:
        seen.append(connection.execute("SHOW synchronous_commit").fetchone())

    driver(also=also).batch(0)
    assert seen == [("on",)]


def test_nobody_at_the_address_ends_in_one_line_without_the_password(
    driver: MakeDriver, tmp_path: Path
) -> None:
    nobody = make_conninfo(host=str(tmp_path), user="app", password="canary", dbname="holdfast")
    spark = driver(nobody, timeouts=Timeouts(connect_seconds=2, deadline_seconds=0.5))
    for attempt in (lambda: spark.batch(0, decision()), spark.sink.check):
        with pytest.raises(SinkUnavailable) as raised:
            attempt()
        words = str(raised.value)
        assert "canary" not in words
        assert "\n" not in words
    with pytest.raises(SinkUnavailable, match=r"was not there for 0\.5 s .*restart the query"):
        spark.batch(0)


def test_partitions_are_made_again_when_the_day_of_the_database_turns(
    driver: MakeDriver, db: psycopg.Connection
) -> None:
    spark = driver()
    spark.batch(0)
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    partition = sql.Identifier("holdfast", f"entry_{tomorrow:%Y%m%d}")
    db.execute(sql.SQL("DROP TABLE {}").format(partition))
    exists = "SELECT to_regclass(%s) IS NOT NULL"

    spark.batch(1)
    assert db.execute(exists, [partition.as_string()]).fetchone() == (False,)
    spark.sink._writer._partitions_of = tomorrow - timedelta(days=2)
    spark.batch(2)
    assert db.execute(exists, [partition.as_string()]).fetchone() == (True,)

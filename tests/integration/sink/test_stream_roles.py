"""Streams with roles of their own, on a real database, by logins that have nothing else."""

import json
import secrets
from collections.abc import Callable, Iterator
from typing import NamedTuple

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from sink import Written
from sink.contract.exits import ExitCode
from sink.errors import SchemaMismatch
from tests.support.command import holdfast
from tests.support.dispatch.entries import decision
from tests.support.job.driver import Driver

MakeDriver = Callable[..., Driver]

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
        done = holdfast("db", "stream-role", stream, "--json", dsn=dsn)
        assert done.returncode == ExitCode.OK, done.stderr
        found = json.loads(done.stdout)
        user = f"holdfast_test_{secrets.token_hex(4)}"
        db.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'canary'").format(sql.Identifier(user)))
        db.execute(found["grants"][0].replace("my_login", user).encode())
        made.append(Login(stream, found["role"], make_conninfo(dsn, user=user, password="canary")))
    yield made
    for login in made:
        user = psycopg.conninfo.conninfo_to_dict(login.dsn)["user"]
        for role in (str(user), login.role):
            db.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(role)))
            db.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


@pytest.mark.parametrize("staged", [False, True])
def test_stream_with_a_role_of_its_own_is_written_by_its_login(
    logins: list[Login], driver: MakeDriver, db: psycopg.Connection, staged: bool
) -> None:
    for login in logins:
        spark = driver(login.dsn, stream=login.stream, staged=staged)
        assert isinstance(spark.batch(0, decision(login.stream), decision("")), Written)
    query = "SELECT stream, entry_count, quarantined_count FROM holdfast.batch ORDER BY batch_no"
    assert db.execute(query).fetchall() == [(login.stream, 1, 1) for login in logins]
    assert db.execute("SELECT count(*) FROM holdfast.stage").fetchone() == (0,)


@pytest.mark.parametrize("statement", HOSTILE)
def test_role_of_a_stream_does_nothing_to_another_stream(
    logins: list[Login], driver: MakeDriver, db: psycopg.Connection, statement: str
) -> None:
    mine, other = logins
    driver(other.dsn, stream=other.stream).batch(0, decision())
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
    assert db.execute("SELECT count(*) FROM holdfast.stage").fetchone() == (1,)


def test_login_of_all_sinks_does_not_write_a_stream_that_has_a_role(
    logins: list[Login], driver: MakeDriver, app_dsn: str, db: psycopg.Connection
) -> None:
    other = logins[0]
    with pytest.raises(SchemaMismatch, match=other.role):
        driver(app_dsn, stream=other.stream).batch(0, decision())
    assert db.execute("SELECT count(*) FROM holdfast.stream").fetchone() == (0,)
    assert isinstance(driver(app_dsn, stream="free").batch(0, decision()), Written)


def test_role_is_made_once_and_for_a_name_that_a_stream_may_have(
    logins: list[Login], dsn: str
) -> None:
    again = holdfast("db", "stream-role", logins[0].stream, "--json", dsn=dsn)
    assert json.loads(again.stdout)["made"] is False
    for name in ("Big", "a b", "x" * 50, "-x"):
        refused = holdfast("db", "stream-role", "--", name, dsn=dsn)
        assert refused.returncode == ExitCode.USAGE, name

"""`holdfast config`: on real databases, with secrets that can and cannot be read."""

import json
import os
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.schema import SCHEMA_REVISION
from tests.support.command import holdfast
from tests.support.dispatch.dispatching import SECRET
from tests.support.dispatch.sender import secret_text
from tests.support.servers.databases import copy_of
from tests.support.world import World


@pytest.fixture(scope="module")
def dsn(server_dsn: str, template_database: str) -> Iterator[str]:
    """One database for all: both commands only read."""
    with copy_of(server_dsn, template_database) as dsn:
        yield dsn


@pytest.fixture
def db(dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("TRUNCATE holdfast.endpoint CASCADE")
        yield connection


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what the tests themselves are set up with."""
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)


def checked(dsn: str | None, **environment: str) -> tuple[int, dict[str, dict[str, str]]]:
    done = holdfast("config", "check", "--json", dsn=dsn, environment=environment)
    assert done.stdout, done.stderr
    checks = json.loads(done.stdout)["checks"]
    return done.returncode, {check["name"]: check for check in checks}


def shown(dsn: str | None, *options: str, **environment: str) -> dict[str, Any]:
    return holdfast(
        "config", "show", "--json", *options, dsn=dsn, environment=environment, code=ExitCode.OK
    ).json


def test_valid_configuration_exits_0_and_lists_checks(world: World) -> None:
    world.add_endpoint("https://payouts.example/")
    code, checks = checked(world.dsn, **{SECRET: secret_text()})
    assert code == ExitCode.OK, checks
    assert list(checks) == [
        *("variables", "engine", "database", "schema", "roles", "clock", "secrets")
    ]
    assert checks["schema"]["detail"] == f"revision {SCHEMA_REVISION}"


def test_what_needs_a_person_is_a_warning(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_ALLOW_SECRET_DIR", str(world.tmp_path))
    open_to_all = world.tmp_path / "secret"
    open_to_all.write_text(secret_text())
    open_to_all.chmod(0o644)
    world.add_endpoint("https://a.example/", name="a", secret_refs=[f"file:{open_to_all}"])
    world.add_endpoint("https://b.example/", name="b", secret_refs=["env:HOLDFAST_SECRET_ABSENT"])
    world.add_endpoint("https://c.example/", name="c", secret_refs=["env:PAYOUTS_SECRET"])
    code, checks = checked(
        world.dsn, HOLDFAST_DNS="x", HOLDFAST_FAILPOINTS="S8=raise", PAYOUTS_SECRET=secret_text()
    )
    assert code == ExitCode.DEGRADED
    assert "env:PAYOUTS_SECRET is not allowed" in checks["secrets of c"]["detail"]
    assert "HOLDFAST_SECRET_" in checks["secrets of c"]["detail"]
    assert "HOLDFAST_DNS (did you mean HOLDFAST_DSN?)" in checks["variables"]["detail"]
    assert "HOLDFAST_FAILPOINTS" in checks["values"]["detail"]
    assert "every user of this machine can read" in checks["secrets of a"]["detail"]
    assert "HOLDFAST_SECRET_ABSENT" in checks["secrets of b"]["detail"]
    open_to_all.chmod(0o600)
    assert "secrets of a" not in checked(world.dsn)[1]


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (None, "no database is named"),
        ("postgresql://app:hunter2 x@h/d", "cannot be read"),
        ("host=/nowhere user=app password=hunter2", "/nowhere"),
    ],
)
def test_unusable_database_fails_without_its_password(address: str | None, words: str) -> None:
    for command in ("check", "show"):
        done = holdfast("config", command, "--json", dsn=address)
        assert done.returncode == (ExitCode.FAILED if command == "check" else ExitCode.OK)
        assert words in done.stdout
        assert "hunter2" not in done.stdout + done.stderr


def test_login_that_may_not_act_as_operator_fails(dsn: str, db: psycopg.Connection) -> None:
    name = f"holdfast_test_login_{db.info.dbname.rpartition('_')[2]}"
    db.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'x'").format(sql.Identifier(name)))
    try:
        code, checks = checked(make_conninfo(dsn, user=name, password="x"))
    finally:
        db.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))
    assert code == ExitCode.FAILED
    assert "may not act as holdfast_owner" in checks["roles"]["detail"]


def test_settings_are_shown_with_their_source_and_without_passwords(dsn: str) -> None:
    # A server that trusts its users takes any.
    password = str(conninfo_to_dict(dsn).get("password") or "hunter2")
    address = make_conninfo(dsn, password=password)
    content = shown(address, PGSSLMODE="prefer", HOLDFAST_REISSUE_LIMIT="3")
    settings = {each["name"]: each for each in content["settings"]}
    assert settings["HOLDFAST_DSN"]["from"] == "environment"
    assert "password=***" in settings["HOLDFAST_DSN"]["value"]
    assert settings["HOLDFAST_REISSUE_LIMIT"]["value"] == "3"
    assert settings["HOLDFAST_SPARK_LOG"]["from"] == "default"
    assert password not in json.dumps(content)
    assert "PGSSLMODE" in content["libpq_variables"]
    assert content["versions"]["holdfast"]
    assert content["versions"]["pyspark"]
    assert content["database"]["schema_revision"] == SCHEMA_REVISION
    assert content["engine"].startswith("asyncio, httptools ")
    by_option = shown(None, "--dsn", dsn)["settings"][0]
    assert (by_option["name"], by_option["from"]) == ("HOLDFAST_DSN", "option")


def test_people_see_tables(dsn: str) -> None:
    done = holdfast("config", "show", dsn=dsn, code=ExitCode.OK)
    for words in ("Settings", "HOLDFAST_DSN", "Versions", "engine: ", "database: Postgres "):
        assert words in done.stdout
    assert "Configuration" in holdfast("config", "check", dsn=dsn).stdout

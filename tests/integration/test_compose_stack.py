"""What the compose file gives to a real Postgres, and what its endpoint file says, works."""

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from stat import S_IMODE

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.deploy.compose.prepare import FOLDER, LOGINS, prepare
from holdfast.deploy.local.postgres import EmbeddedPostgres
from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.documents.pages import ROOT
from tests.support.job.jobs import event
from tests.support.servers.databases import server_directory

pytestmark = pytest.mark.rest


COMPOSE = ROOT / "deploy" / "compose"


@dataclass(frozen=True)
class Stack:
    """A server after the services `postgres`, `migrate` and `grants`."""

    dsn: str
    secrets: Path

    def environment(self, login: str) -> dict[str, str]:
        """Return the variables of a service, with this server's address in its file."""
        file = self.secrets / f"{login}.conf"
        address = conninfo_to_dict(self.dsn)
        result = self.secrets.parent / f"here-{login}.conf"
        text = file.read_text().replace("host=postgres", f"host={address['host']}")
        result.write_text(text.replace("port=5432", f"port={address['port']}"))
        return {"HOLDFAST_DSN": f"service={login}", "PGSERVICEFILE": str(result)}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("stack") / "secrets"
    assert prepare(folder)
    with server_directory() as directory, EmbeddedPostgres(directory) as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("CREATE DATABASE holdfast")
            for statement in (folder / "logins.sql").read_text().splitlines():
                connection.execute(statement.encode())
        dsn = make_conninfo(server.dsn, dbname="holdfast")
        assert holdfast("db", "upgrade", dsn=dsn).returncode == ExitCode.OK
        with psycopg.connect(dsn, autocommit=True) as connection:
            for _ in range(2):  # every start repeats it
                connection.execute((COMPOSE / "grants.sql").read_bytes())
        yield Stack(dsn, folder)


@pytest.mark.parametrize(
    ("login", "roles"),
    [
        ("job", {"holdfast_sink"}),
        ("dispatcher", {"holdfast_dispatcher"}),
        ("api", {"holdfast_operator", "holdfast_sink"}),
        ("payouts", set()),
    ],
)
def test_login_may_take_on_only_its_roles(stack: Stack, login: str, roles: set[str]) -> None:
    with psycopg.connect(stack.dsn) as connection:
        rows = connection.execute(
            "SELECT rolname FROM pg_roles WHERE rolname LIKE 'holdfast%%'"
            " AND pg_has_role(%s, oid, 'SET')",
            [login],
        ).fetchall()
    assert {name for (name,) in rows} == roles


def test_commands_connect_by_the_service_file_of_a_login(stack: Stack) -> None:
    environment = stack.environment("api")
    shown = holdfast("status", environment=environment, process=True)
    assert shown.returncode in {ExitCode.OK, ExitCode.DEGRADED}, shown.stderr
    holdfast("status", environment=stack.environment("job"), process=True, code=ExitCode.FAILED)


def test_dispatcher_of_the_stack_drains_with_its_login(stack: Stack) -> None:
    done = holdfast(
        "dispatch", "--drain", environment=stack.environment("dispatcher"), process=True
    )
    assert done.returncode == ExitCode.OK, done.stderr


def test_second_apply_of_an_endpoint_file_changes_nothing(stack: Stack) -> None:
    words = ("endpoint", "apply", str(COMPOSE / "endpoints.toml"), "--reason", "the stack", "--yes")
    environment = stack.environment("api")
    for _ in range(2):
        holdfast(*words, environment=environment, process=True, code=ExitCode.OK)
    holdfast(*words[:3], "--check", environment=environment, process=True, code=ExitCode.OK)


def test_network_of_the_endpoint_is_that_of_the_stack() -> None:
    [subnet] = re.findall(r"^SUBNET=(.*)$", (COMPOSE / "stack.env").read_text(), re.MULTILINE)
    assert f'"{subnet}"' in (COMPOSE / "endpoints.toml").read_text()


def test_event_of_the_page_is_one() -> None:
    text = (ROOT / "docs" / "deploying" / "compose.md").read_text()
    [line] = re.findall(r"echo '(\{.*?\})'", text)
    assert json.loads(line).keys() == json.loads(event("e1", "12:01", 1)).keys()


def test_secrets_are_for_their_owner_and_are_made_once(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    assert prepare(folder)
    before = {path.name: path.read_text() for path in folder.iterdir()}
    assert not prepare(folder)
    assert {path.name: path.read_text() for path in folder.iterdir()} == before
    assert S_IMODE(folder.stat().st_mode) == 0o700
    assert {S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o444}
    assert len(set(before.values())) == len(before)
    assert {f"{name}.conf" for name in LOGINS} < before.keys()


def test_secrets_are_neither_committed_nor_in_an_image() -> None:
    place = FOLDER.relative_to(ROOT).as_posix()
    done = subprocess.run(
        ["git", "check-ignore", "--quiet", f"{place}/api.conf"],  # noqa: S607 - as for a developer
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert lines.index(place) > lines.index("!deploy")

"""A cluster of its own for tests of what a cluster has only once: roles and users; old days."""

import secrets
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from holdfast.deploy.local.postgres import EmbeddedPostgres
from holdfast.sink.contract.roles import ALL
from tests.support.dispatch.delivery import OLD, age
from tests.support.dispatch.dispatching import add_endpoint, drain
from tests.support.dispatch.webhooks import WebhookReceiver
from tests.support.job.decisions import Decisions
from tests.support.servers.databases import server_directory


@pytest.fixture(scope="session", params=[16, 18], ids=["postgres-16", "postgres-18"])
def bare_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """Superuser DSN of a server that has never seen Holdfast."""
    with (
        server_directory() as directory,
        EmbeddedPostgres(directory, major=request.param) as server,
    ):
        yield server.dsn


@pytest.fixture
def bare(bare_server: str) -> Iterator[str]:
    """`bare_server` for one test: without databases, users and roles of another one."""
    yield bare_server
    with psycopg.connect(bare_server, autocommit=True) as admin:
        names = admin.execute(
            "SELECT datname FROM pg_database WHERE datname LIKE 'holdfast\\_test\\_%'"
        ).fetchall()
        for (name,) in names:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
        users = admin.execute("SELECT rolname FROM pg_roles WHERE rolname LIKE 'user\\_%'")
        # Roles first: a user that made them is the grantor of memberships in them.
        for name in (*ALL, *(name for (name,) in users.fetchall())):
            admin.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(name)))


@pytest.fixture
def bare_database(bare: str) -> Callable[..., str]:
    """Make an empty database on `bare`, owned by the user whose DSN is given, if one is."""

    def make(owner: str | None = None) -> str:
        name = f"holdfast_test_{secrets.token_hex(6)}"
        with psycopg.connect(bare, autocommit=True) as admin:
            admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
            if owner:
                user = psycopg.conninfo.conninfo_to_dict(owner)["user"]
                admin.execute(
                    sql.SQL("ALTER DATABASE {} OWNER TO {}").format(
                        sql.Identifier(name), sql.Identifier(str(user))
                    )
                )
        return make_conninfo(owner or bare, dbname=name)

    return make


@pytest.fixture
def bare_user(bare: str) -> Callable[..., str]:
    """Make a user on `bare` that may log in and, with createrole=True, make roles; its DSN."""

    def make(*, createrole: bool = False) -> str:
        name, password = f"user_{secrets.token_hex(6)}", secrets.token_hex(16)
        with psycopg.connect(bare, autocommit=True) as admin:
            admin.execute(
                sql.SQL("CREATE ROLE {} LOGIN {} PASSWORD {}").format(
                    sql.Identifier(name),
                    sql.SQL("CREATEROLE" if createrole else "NOCREATEROLE"),
                    sql.Literal(password),
                )
            )
        return make_conninfo(bare, user=name, password=password)

    return make


@pytest.fixture
def delivered(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    """Three decisions of a day long past, delivered on that day."""
    add_endpoint(db, receiver.url)
    decisions.write("m_1", "m_1", "m_2")
    drain(dsn)
    age(db, OLD)

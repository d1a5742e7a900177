"""The one server of a run, and databases that are dropped at the end of it.

The server is HOLDFAST_DSN's, or an embedded one that listens on the loopback address. The product's
has a Unix socket alone, which Java's driver cannot open: this is the same cluster, with the same
settings, and one more way in, which every case takes.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psutil
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.deploy.local import binaries, process
from holdfast.deploy.local.account import account_for
from holdfast.deploy.local.cluster import SUPERUSER, Cluster
from holdfast.deploy.local.ports import free_port
from holdfast.deploy.local.postgres import EmbeddedPostgres
from holdfast.migrations.upgrade import upgrade
from tests.benchmarks.common.processes import processor_seconds
from tests.benchmarks.common.trees import HERE, Tree
from tests.support.waiting import eventually

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Server:
    """Where it is; `pid` is that of an embedded one, whose processor time can be read."""

    dsn: str
    pid: int | None = None

    def used_s(self) -> float:
        """Processor seconds so far; 0 where the server is not ours."""
        return processor_seconds(self.pid) if self.pid else 0.0

    @contextmanager
    def fresh(self, tree: Tree = HERE, *, copy_of: str | None = None) -> Iterator[str]:
        """Yield the DSN of a new database with a tree's tables, or of a copy of another one."""
        template = f" TEMPLATE {conninfo_to_dict(copy_of)['dbname']}" if copy_of else ""
        with self.empty(template) as dsn:
            if copy_of is None and tree.names is None:
                upgrade(dsn)
            elif copy_of is None:
                tree.call("tests.benchmarks.common.server:upgraded", dsn)
            yield dsn

    @contextmanager
    def empty(self, template: str = "") -> Iterator[str]:
        """Yield the DSN of a new database."""
        name = f"holdfast_bench_{uuid4().hex[:8]}"
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}{template}".encode())
            try:
                yield make_conninfo(self.dsn, dbname=name)
            finally:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    def checkpoint(self) -> None:
        """Let a run begin with clean pages, where we may."""
        with (
            psycopg.connect(self.dsn, autocommit=True) as connection,
            suppress(psycopg.errors.InsufficientPrivilege),
        ):
            connection.execute("CHECKPOINT")


def upgraded(dsn: str) -> None:
    """Make the tables of the tree that this process imports."""
    upgrade(dsn)


def sized() -> dict[str, str]:
    """Return settings for large tables, by the usual rules: buffers, and few checkpoints."""
    quarter = psutil.virtual_memory().total // 4
    return {"shared_buffers": f"{quarter >> 20}MB", "max_wal_size": "16GB"}


@contextmanager
def server(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Yield the server; an embedded one is stopped and deleted at the end.

    `settings` are an embedded server's, in place of those it comes with.
    """
    dsn = os.environ.get("HOLDFAST_DSN")
    if dsn:
        yield Server(dsn)
        return
    embedded = EmbeddedPostgres(folder / f"postgres-{uuid4().hex[:4]}")
    try:
        with embedded:
            known = embedded.cluster
        if known is None:
            raise RuntimeError(f"no cluster in {folder}")
        with _listening(known, settings or {}) as running:
            yield running
    finally:
        embedded.remove()


@contextmanager
def _listening(known: Cluster, settings: Mapping[str, str]) -> Iterator[Server]:
    account = account_for(known.data)
    programs = binaries.reachable(binaries.shipped(known.major), account)
    port = free_port()
    command: list[str | Path] = [programs.postgres, "-D", known.data, "-p", str(port)]
    command += ["-c", f"listen_addresses={HOST}", "-c", "unix_socket_directories="]
    command += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    dsn = make_conninfo(
        host=HOST, port=port, user=SUPERUSER, password=known.password, dbname="postgres"
    )
    with known.log.open("ab") as log:
        child = account.spawn(command, log)
    process.keep(child)
    try:
        eventually(lambda: child.poll() is not None or _answers(dsn))
        yield Server(dsn, child.pid)
    finally:
        if child.poll() is None:
            process.stop(psutil.Process(child.pid))


def _answers(dsn: str) -> bool:
    try:
        psycopg.connect(dsn, connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True

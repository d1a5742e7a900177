"""The one server of a run: HOLDFAST_DSN's, or an embedded one that listens on the loopback address.

The product's embedded server has a Unix socket alone, which Java's driver cannot open. This is the
same cluster, with the same settings, and one more way in; every case takes that way.
"""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg
from psycopg.conninfo import make_conninfo

from holdfast.deploy.local import binaries, process
from holdfast.deploy.local.account import account_for
from holdfast.deploy.local.cluster import SUPERUSER, Cluster
from holdfast.deploy.local.postgres import EmbeddedPostgres
from tests.support.waiting import eventually

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Server:
    """Where it is; `pid` is that of an embedded one, whose processor time can be read."""

    dsn: str
    pid: int | None


def sized() -> dict[str, str]:
    """Return settings for large tables, by the usual rules: buffers, and few checkpoints."""
    quarter = psutil.virtual_memory().total // 4
    return {"shared_buffers": f"{quarter >> 20}MB", "max_wal_size": "16GB"}


@contextmanager
def server(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Yield the server; an embedded one is stopped and deleted at the end.

    `settings` are an embedded server's, in place of those it comes with.
    """
    given = os.environ.get("HOLDFAST_DSN")
    if given:
        yield Server(given, None)
        return
    embedded = EmbeddedPostgres(folder / "postgres")
    try:
        with embedded:
            known = embedded.cluster
        if known is None:
            raise RuntimeError(f"no cluster in {folder}")
        with _listening(known, settings or {}) as running:
            yield running
    finally:
        embedded.remove()


def version(dsn: str) -> str:
    """Return the server's version."""
    with psycopg.connect(dsn) as connection:
        return connection.info.parameter_status("server_version") or "unknown"


@contextmanager
def _listening(known: Cluster, settings: Mapping[str, str]) -> Iterator[Server]:
    account = account_for(known.data)
    programs = binaries.reachable(binaries.shipped(known.major), account)
    port = _free_port()
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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])

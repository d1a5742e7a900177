"""Waits for a starting server; crash recovery may take minutes."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
from psycopg import pq

from holdfast.deploy.local import log, process
from holdfast.deploy.local.cluster import Cluster
from holdfast.deploy.local.locks import POLL_SECONDS
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.transaction.refusal import is_denied

CONNECT_SECONDS = 10


def wait_until_ready(
    cluster: Cluster,
    dsn: Callable[[process.Postmaster], str],
    *,
    child: subprocess.Popen[bytes] | None,
    seconds: float,
    log_offset: int,
) -> None:
    """Poll until the server of `cluster` answers a query.

    Raises `CommandError`, with the end of the server's log, if `child` (the server, if this process
    started it) ends or `seconds` have passed.
    """
    deadline = time.monotonic() + seconds
    while True:
        found = process.find(cluster.data)
        ended = found is None if child is None else child.poll() is not None
        if found and not ended and found.socket_folder and _answers(cluster, dsn(found)):
            return
        if ended or time.monotonic() >= deadline:
            what = "ended" if ended else f"was not ready after {seconds:.0f} s"
            raise CommandError(
                f"the Postgres in {cluster.data} {what} while it started; the data are kept."
                f" {cluster.log} ends with: {log.tail(cluster.log, log_offset)}",
                code="server_start_failed",
            )
        time.sleep(POLL_SECONDS)


def _answers(cluster: Cluster, dsn: str) -> bool:
    """Return whether the server of `cluster` answers; False while it starts (SQLSTATE 57P03)."""
    if pq.PGconn.ping(f"{dsn}&connect_timeout=5".encode()) != pq.Ping.OK:
        return False
    try:
        with psycopg.connect(dsn, connect_timeout=CONNECT_SECONDS, autocommit=True) as connection:
            row = connection.execute("SHOW data_directory").fetchone()
    except psycopg.OperationalError as error:
        if is_denied(error, dsn, CONNECT_SECONDS):
            raise CommandError(
                f"the Postgres in {cluster.data} does not accept the password in"
                f" {cluster.directory}; the data are kept. Restore credentials.json, or use"
                " another --directory for a new cluster.",
                code="wrong_password",
            ) from error
        return False  # it ended, or has no free connection: retry
    if row is None or Path(row[0]).resolve() != cluster.data.resolve():
        raise CommandError(
            f"the socket of {cluster.data} belongs to the server of {row and row[0]}. Nothing was"
            " changed. Stop that server.",
            code="socket_in_use",
        )
    return True

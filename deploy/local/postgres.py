"""The embedded Postgres: start, find and stop the server of a directory."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import psutil
import psycopg
from psycopg import sql

from holdfast.deploy.local import binaries, cluster, log, process, sockets
from holdfast.deploy.local.account import Account, account_for
from holdfast.deploy.local.cluster import SUPERUSER, Cluster
from holdfast.deploy.local.locks import locked
from holdfast.deploy.local.process import Postmaster
from holdfast.deploy.local.readiness import wait_until_ready
from holdfast.sink.contract.exits import CommandError, ExitCode

START_SECONDS = 600.0
"""Time limit of a start: crash recovery may replay more WAL than `max_wal_size`."""


class EmbeddedPostgres:
    """A Postgres server with its cluster in `directory`.

    As a context manager it owns the server: the end of the block stops it, even if it was already
    running (left behind by a killed owner). `start` and `stop` may be called from different
    processes; concurrent starts give one server. The server survives its starter, and Ctrl-C in the
    starter's terminal.

    `major` applies only to a new cluster; an existing one uses its own version. `keep=False`
    deletes the cluster at the end of the block. Every failure is a `CommandError`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        major: int = binaries.MAJOR,
        keep: bool = True,
        start_seconds: float = START_SECONDS,
    ) -> None:
        self.directory = directory.resolve()
        self._major = major
        self._keep = keep
        self._start_seconds = start_seconds

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        if not self._keep:
            self.remove()

    @property
    def cluster(self) -> Cluster | None:
        """The cluster on disk, or None before the first start."""
        return cluster.load(self.directory)

    @property
    def running(self) -> Postmaster | None:
        """The server's process, or None if it is not running."""
        known = self.cluster
        return process.find(known.data) if known and known.made else None

    @property
    def dsn(self) -> str:
        """DSN of the superuser for the database `postgres`, with the password."""
        return self.dsn_of("postgres")

    def dsn_of(self, database: str) -> str:
        """DSN of the superuser for `database`; raises `CommandError` if no server is running."""
        known, running = self.cluster, self.running
        if known is None or running is None or running.socket_folder is None:
            raise CommandError(
                f"no embedded Postgres is running in {self.directory}. Start it with `holdfast"
                " local up` (its data are kept), or set HOLDFAST_DSN.",
                ExitCode.NOTHING_MATCHED,
                code="not_running",
            )
        return _dsn(known, running, database)

    def make_database(self, name: str) -> str:
        """Create the database `name` if it does not exist; returns its DSN."""
        with (
            psycopg.connect(self.dsn, autocommit=True, connect_timeout=10) as connection,
            # UniqueViolation: another session is creating it concurrently.
            contextlib.suppress(psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation),
        ):
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.dsn_of(name)

    def start(self) -> bool:
        """Start the server and wait until it accepts connections; False if it was running."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CommandError(
                f"{self.directory} cannot be used for the embedded Postgres ({error.strerror})."
                " Nothing was changed. Choose another --directory, or set HOLDFAST_DSN.",
                code="directory_unusable",
            ) from error
        with self._exclusive():
            known = self.cluster
            account = account_for(known.data if known and known.made else None)
            programs = binaries.shipped(known.major if known else self._major)
            programs = binaries.reachable(programs, account)
            if known is None:
                known = cluster.place(self.directory, account, self._major)
            if not known.made:
                cluster.make(known, programs, account)
            found = process.find(known.data)
            if found and not _deaf(found):
                self._wait(known)
                return False
            if found:
                process.stop(found.process)
            self._launch(known, programs, account)
            return True

    def stop(self) -> bool:
        """Stop the server; False if none was running. Data and credentials are kept."""
        if not self.directory.exists():
            return False
        with self._exclusive():
            running = self.running
            if running:
                process.stop(running.process)
                if running.socket_folder:
                    _remove_empty(running.socket_folder)
        return running is not None

    def remove(self) -> None:
        """Delete the cluster with all its data; raises `CommandError` while the server runs."""
        with self._exclusive():
            known = self.cluster
            if known is None:
                return
            if process.find(known.data):
                raise CommandError(
                    f"the server in {known.data} runs; stop it first.", code="directory_in_use"
                )
            inside = known.data.is_relative_to(self.directory)
            shutil.rmtree(known.data if inside else known.data.parent)
            for name in ("credentials.json", "cluster.json", "postgres.log"):
                (self.directory / name).unlink(missing_ok=True)

    def _exclusive(self) -> contextlib.AbstractContextManager[int]:
        """Allow one process at a time to start or stop this server."""
        return locked(
            self.directory / "start.lock",
            self._start_seconds,
            f"another process has been starting or stopping the server in {self.directory} for"
            f" {self._start_seconds:.0f} s. Nothing was changed. Wait for it, or stop it.",
        )

    def _launch(self, known: Cluster, programs: binaries.Binaries, account: Account) -> None:
        life = cluster.acquire_life(known)
        try:
            process.remove_stale_lock_file(known.data)
            folder = sockets.make_socket_folder(known.data, account, sockets.candidates())
            command: list[str | Path] = [programs.postgres, "-D", known.data, "-k", folder]
            command += ["-p", str(sockets.PORT), "-c", "listen_addresses="]
            with log.open_for_append(known.log) as output:
                offset = output.tell()
                child = account.spawn(command, output, pass_fds=[life])
        finally:
            os.close(life)
        process.keep(child)
        try:
            self._wait(known, child, offset)
        except BaseException:
            if child.poll() is None:
                process.stop(psutil.Process(child.pid))
            _remove_empty(folder)
            raise

    def _wait(
        self, known: Cluster, child: subprocess.Popen[bytes] | None = None, log_offset: int = 0
    ) -> None:
        wait_until_ready(
            known,
            lambda found: _dsn(known, found, "postgres"),
            child=child,
            seconds=self._start_seconds,
            log_offset=log_offset,
        )


@contextlib.contextmanager
def resolve_server(dsn: str | None, directory: Path) -> Iterator[str]:
    """Yield `dsn`, else HOLDFAST_DSN, else the DSN of an embedded server.

    The embedded server is stopped at the end only if this call started it.
    """
    given = dsn or os.environ.get("HOLDFAST_DSN")
    if given:
        yield given
        return
    server = EmbeddedPostgres(directory)
    started = server.start()
    try:
        yield server.dsn
    finally:
        if started:
            server.stop()


def _dsn(known: Cluster, running: Postmaster, database: str) -> str:
    host = quote(str(running.socket_folder), safe="/")
    return (
        f"postgresql://{SUPERUSER}:{quote(known.password)}@/{quote(database)}"
        f"?host={host}&port={sockets.PORT}"
    )


def _deaf(found: Postmaster) -> bool:
    """Return whether a running server has lost its socket, for example to tmpfiles cleanup."""
    folder = found.socket_folder
    return found.ready and folder is not None and not sockets.socket_path(folder).exists()


def _remove_empty(folder: Path) -> None:
    """Remove a socket folder if it is empty."""
    with contextlib.suppress(OSError):
        folder.rmdir()

"""The embedded Postgres: start, find and stop the server of a directory."""

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import psutil
import psycopg
from psycopg import pq, sql

from holdfast.deploy.local import binaries, cluster, process
from holdfast.deploy.local.account import Account, account_for
from holdfast.deploy.local.cluster import SUPERUSER, Cluster
from holdfast.deploy.local.locks import POLL_SECONDS, locked
from holdfast.deploy.local.process import Postmaster
from holdfast.sink.contract.exits import CommandError, ExitCode
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
        postmaster = process.find(cluster.data)
        ended = postmaster is None if child is None else child.poll() is not None
        if (
            postmaster
            and not ended
            and postmaster.socket_folder
            and _answers(cluster, dsn(postmaster))
        ):
            return
        if ended or time.monotonic() >= deadline:
            what = "ended" if ended else f"was not ready after {seconds:.0f} s"
            raise CommandError(
                f"the Postgres in {cluster.data} {what} while it started; the data are kept."
                f" {cluster.log} ends with: {process.log_tail(cluster.log, log_offset)}",
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


PORT = 5432
"""Part of the socket's name; the server does not listen on the network."""

LENGTH_MAX = 107 if sys.platform == "linux" else 103
"""Maximum bytes of a socket path: `sun_path` without its NUL (unix(7); 104 on BSD and macOS)."""


def socket_path(folder: Path) -> Path:
    """Return the path of the server's socket in `folder`."""
    return folder / f".s.PGSQL.{PORT}"


def candidates() -> list[Path]:
    """Return possible parents of the socket folder, best first."""
    return [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]  # noqa: S108 - made 0700


def make_socket_folder(data: Path, account: Account, bases: Iterable[Path]) -> Path:
    """Create the socket folder of a data directory: mode 0700, owned by `account`.

    Its name is derived from the data directory, so that it can be found again. Raises
    `CommandError` if no base is usable and short enough.
    """
    name = f"holdfast-{hashlib.sha256(os.fsencode(data)).hexdigest()[:12]}"
    refused = []
    for base in dict.fromkeys(bases):
        folder = base / name
        length = len(os.fsencode(socket_path(folder)))
        if length > LENGTH_MAX:
            refused.append(f"{base} makes a path of {length} bytes, the limit is {LENGTH_MAX}")
        elif problem := _make_private(folder, account):
            refused.append(problem)
        else:
            return folder
    raise CommandError(
        f"no folder for the server's socket: {'; '.join(refused)}. Nothing was changed. Set TMPDIR"
        " to a writable folder with a short path.",
        code="no_writable_folder",
    )


def _make_private(folder: Path, account: Account) -> str | None:
    """Make `folder` private to `account`; returns the problem with it, or None."""
    try:
        folder.mkdir(mode=0o700)
        account.own(folder)
    except FileExistsError:
        owners = {account.uid, os.geteuid()}
        if folder.is_symlink() or not folder.is_dir() or folder.stat().st_uid not in owners:
            return f"{folder} belongs to another account"
        folder.chmod(0o700)
        account.own(folder)
    except OSError as error:
        return f"{folder}: {error.strerror}"
    if not account.can_enter(folder):
        folder.rmdir()
        return f"the account {account.name} cannot enter {folder}"
    return None


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
        return process.find(known.data) if known and known.initialised else None

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
            account = account_for(known.data if known and known.initialised else None)
            programs = binaries.shipped(known.major if known else self._major)
            programs = binaries.reachable(programs, account)
            if known is None:
                known = cluster.choose_cluster(self.directory, account, self._major)
            if not known.initialised:
                cluster.make(known, programs, account)
            postmaster = process.find(known.data)
            if postmaster and not _deaf(postmaster):
                self._wait(known)
                return False
            if postmaster:
                process.stop(postmaster.process)
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
            folder = make_socket_folder(known.data, account, candidates())
            command: list[str | Path] = [programs.postgres, "-D", known.data, "-k", folder]
            command += ["-p", str(PORT), "-c", "listen_addresses="]
            with process.open_log(known.log) as output:
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
            lambda postmaster: _dsn(known, postmaster, "postgres"),
            child=child,
            seconds=self._start_seconds,
            log_offset=log_offset,
        )


@contextlib.contextmanager
def resolve_server(dsn: str | None, directory: Path) -> Iterator[str]:
    """Yield `dsn`, else HOLDFAST_DSN, else the DSN of an embedded server.

    The embedded server is stopped at the end only if this call started it.
    """
    named = dsn or os.environ.get("HOLDFAST_DSN")
    if named:
        yield named
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
        f"?host={host}&port={PORT}"
    )


def _deaf(postmaster: Postmaster) -> bool:
    """Return whether a running server has lost its socket, for example to tmpfiles cleanup."""
    folder = postmaster.socket_folder
    return postmaster.ready and folder is not None and not socket_path(folder).exists()


def _remove_empty(folder: Path) -> None:
    """Remove a socket folder if it is empty."""
    with contextlib.suppress(OSError):
        folder.rmdir()

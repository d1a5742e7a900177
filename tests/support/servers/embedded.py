import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from signal import SIGINT

import psutil
import psycopg

from holdfast.deploy.local.account import Account, account_for
from holdfast.deploy.local.postgres import EmbeddedPostgres
from holdfast.deploy.local.process import keep, remove_stale_lock_file
from holdfast.migrations.upgrade import upgrade
from tests.support.servers.databases import processes_on
from tests.support.waiting import eventually


class Server:
    """An embedded server that can be killed and started on the same address."""

    def __init__(self, directory: Path) -> None:
        self._embedded = EmbeddedPostgres(directory)
        self._embedded.start()
        self.dsn = self._embedded.make_database("holdfast")
        self._postmaster = self._process()
        self._command = self._postmaster.cmdline()
        known = self._embedded.cluster
        assert known is not None
        self.data = known.data
        self._log = known.log
        upgrade(self.dsn)

    def kill(self) -> None:
        """SIGKILL the postmaster, and wait until none of its children is left."""
        self._postmaster.kill()
        for each in processes_on(self.data):
            # One that is stopped does not see that its parent is gone; others end by themselves.
            with suppress(psutil.NoSuchProcess):
                if psutil.Process(each).status() == psutil.STATUS_STOPPED:
                    psutil.Process(each).kill()
        # As long as its pid is there, also as a zombie's, the next one takes the socket for used.
        self._postmaster.wait(60)
        eventually(lambda: not processes_on(self.data))
        remove_stale_lock_file(self.data)

    def start(self) -> None:
        """Start again as it was started, on the same socket."""
        with self._log.open("ab") as log:
            keep(account_for(self.data).spawn(self._command, log))
        try:
            eventually(self._answers)
        except AssertionError as late:
            raise AssertionError(self._log.read_text(errors="replace")[-4000:]) from late
        self._postmaster = self._process()

    def stop(self) -> None:
        """Shut down in order, without waiting for clients."""
        self._postmaster.send_signal(SIGINT)
        eventually(lambda: not processes_on(self.data))

    def _process(self) -> psutil.Process:
        running = self._embedded.running
        assert running is not None
        return running.process

    def _answers(self) -> bool:
        try:
            with psycopg.connect(self.dsn, connect_timeout=2):
                return True
        except psycopg.OperationalError:
            return False


_STANDBY_PORT = 5439


class BackedUp(Server):
    """A server with an archive of its WAL."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._account: Account = account_for(self.data)
        self._home = Path(self._command[0]).parent
        self._archive = self._folder("archive")
        self._backup = self.data.with_name("backup")
        self._standby = self.data.with_name("standby")
        for name, value in (
            ("archive_mode", "on"),
            ("archive_command", f"cp %p {self._archive}/%f"),
            ("wal_level", "replica"),
            ("max_wal_senders", "4"),
        ):
            self._tell(f"ALTER SYSTEM SET {name} = '{value}'")
        self.stop()
        self.start()

    def backup(self) -> None:
        """Take a base backup."""
        self._run("pg_basebackup", "-D", self._folder("backup"), "-d", self.dsn, "-c", "fast")

    def restore(self, at: datetime) -> None:
        """Lose the server, and restore the backup to a moment after it."""
        self._tell("SELECT pg_switch_wal()")
        newest = self._value("SELECT pg_walfile_name(pg_current_wal_lsn() - 1)")
        self._tell("CHECKPOINT")
        eventually((self._archive / str(newest)).exists)
        self.kill()
        self._replace(self._backup)
        with (self.data / "postgresql.auto.conf").open("a") as settings:
            settings.write(
                f"restore_command = 'cp {self._archive}/%f %p'\n"
                f"recovery_target_time = '{at.isoformat()}'\n"
                "recovery_target_action = 'promote'\n"
            )
        self._signal("recovery.signal")
        self.start()
        self._await_primary()

    def follow(self) -> None:
        """Have a standby that has everything so far, and nothing from now on."""
        standby = self._folder("standby")
        self._run("pg_basebackup", "-D", standby, "-d", self.dsn, "-c", "fast", "-R")
        command = [self._command[0], "-D", str(standby), "-k", str(self._folder("socket"))]
        command += ["-p", str(_STANDBY_PORT), "-c", "listen_addresses="]
        with (self.data.parent / "standby.log").open("ab") as log:
            started = self._account.spawn(command, log)
        keep(started)
        try:
            newest = self._value("SELECT pg_current_wal_lsn()::text")
            caught_up = (
                "SELECT count(*) FROM pg_stat_replication"
                f" WHERE state = 'streaming' AND replay_lsn >= '{newest}'"
            )
            eventually(lambda: self._value(caught_up) == 1)
        finally:
            psutil.Process(started.pid).terminate()
            eventually(lambda: not processes_on(standby))

    def fail_over(self) -> None:
        """Lose the server, and promote its standby in its place."""
        self.kill()
        self._replace(self._standby)
        self.start()
        self._tell("SELECT pg_promote()")
        self._await_primary()

    def _replace(self, by: Path) -> None:
        self.data.rename(self.data.with_name("lost"))
        by.rename(self.data)

    def _await_primary(self) -> None:
        eventually(lambda: self._value("SELECT pg_is_in_recovery()") is False)

    def _folder(self, name: str) -> Path:
        folder = self.data.with_name(name)
        folder.mkdir(mode=0o700)
        self._account.own(folder)
        return folder

    def _signal(self, name: str) -> None:
        path = self.data / name
        path.touch()
        self._account.own(path)

    def _run(self, program: str, *words: str | Path) -> None:
        done = self._account.spawn([self._home / program, *words], subprocess.PIPE)
        output = done.communicate()[0]
        assert done.returncode == 0, output.decode()

    def _tell(self, statement: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement.encode())

    def _value(self, query: str) -> object:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return (connection.execute(query.encode()).fetchone() or (None,))[0]


_BYTES = 192 << 20
"""Room for a new cluster, several segments of WAL and some thousand decisions."""

_MORE_BYTES = 64 << 20


class CannotMountError(Exception):
    """This user may not mount a file system here."""


@contextmanager
def volume() -> Iterator[Path]:
    """Yield the folder of a small file system; raises `CannotMountError`.

    The server below it is stopped at the end, and the file system is gone.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"holdfast-test-{os.getpid()}-"))
    done = _mount(folder, f"size={_BYTES},mode=755")
    if done.returncode:
        folder.rmdir()
        raise CannotMountError(done.stderr.strip())
    try:
        yield folder
    finally:
        EmbeddedPostgres(folder / "local").stop()
        subprocess.run(["umount", "--lazy", folder], check=True)  # noqa: S607 - of the system
        folder.rmdir()


class FullDisk(Server):
    """A server on a volume that something else fills as well."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "local")
        self._volume = folder

    def fill(self) -> None:
        """Leave not one block free."""
        size = _BYTES
        with (self._volume / "dump").open("ab") as dump:
            while size:
                try:
                    os.posix_fallocate(dump.fileno(), os.fstat(dump.fileno()).st_size, size)
                except OSError:
                    size //= 2

    def end_log(self, before: psycopg.Connection) -> None:
        """Fill the last segment of WAL, by a connection from before, until nobody is answered."""
        with suppress(psycopg.Error):
            while True:
                before.execute("SELECT pg_logical_emit_message(false, 'full', repeat('x', 99999))")
        eventually(lambda: not self._answers())

    def make_larger(self) -> None:
        """Make the volume larger, and start the server if it went down."""
        done = _mount(self._volume, f"remount,size={_BYTES + _MORE_BYTES}")
        assert done.returncode == 0, done.stderr
        if not processes_on(self.data):
            self.start()
        eventually(self._answers)


def _mount(folder: Path, options: str) -> subprocess.CompletedProcess[str]:
    command = ["mount", "-t", "tmpfs", "-o", options, "holdfast-test", folder]
    return subprocess.run(command, capture_output=True, text=True, check=False)


_STOP_BEFORE_WRAP = 2**31 - 1 - 3_000_000
_MARGIN = 1_000
"""More than is vacuumed before the slot, so that the server refuses however far it has got."""

_SEGMENT_IDS = 1 << 20
_SEGMENT_BYTES = 256 << 10
"""A file of `pg_xact`: two bits of each transaction ID."""


class OldIds(Server):
    """A server with a logical slot that nobody reads."""

    SLOT = "forgotten"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._account: Account = account_for(self.data)
        # The autovacuum that recovers the server looks around at once.
        for name, value in (("wal_level", "logical"), ("autovacuum_naptime", "1s")):
            self._tell(f"ALTER SYSTEM SET {name} = '{value}'")
        self.stop()
        self.start()
        self._tell(f"SELECT pg_create_logical_replication_slot('{self.SLOT}', 'pgoutput')")

    def run_out(self) -> None:
        """Restart with so many transactions behind it that it gives out no further ID."""
        self.grow_old(_STOP_BEFORE_WRAP + _MARGIN)

    def grow_old(self, transactions: int) -> None:
        """Restart with so many transactions since the oldest row that is not frozen."""
        oldest = self._number("SELECT min(datfrozenxid::text::bigint) FROM pg_database")
        reached = oldest + transactions
        self.stop()
        segment = self.data / "pg_xact" / f"{reached // _SEGMENT_IDS:04X}"
        segment.write_bytes(bytes(_SEGMENT_BYTES))
        self._account.own(segment)
        program = Path(self._command[0]).with_name("pg_resetwal")
        command = [program, "-x", str(reached), "-D", self.data]
        done = self._account.spawn(command, subprocess.PIPE)
        output = done.communicate()[0]
        assert done.returncode == 0, output.decode()
        self.start()

    def drop_slot(self) -> None:
        """End what keeps the old rows from being frozen."""
        self._tell(f"SELECT pg_drop_replication_slot('{self.SLOT}')")

    def _tell(self, statement: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement.encode())

    def _number(self, query: str) -> int:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            (value,) = connection.execute(query.encode()).fetchone() or (0,)
            return int(value)

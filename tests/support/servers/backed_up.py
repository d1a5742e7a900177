"""A Postgres that is put back to an older moment, on the address that its clients know.

Either from a base backup and the WAL that it archived, or by the promotion of a standby that was
behind. What it had is kept beside it.
"""

import subprocess
from datetime import datetime
from pathlib import Path

import psutil
import psycopg

from holdfast.deploy.local.account import Account, account_for
from holdfast.deploy.local.process import keep
from tests.support.servers.databases import processes_on
from tests.support.servers.embedded import Server
from tests.support.waiting import eventually

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

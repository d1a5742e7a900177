"""The real pgbouncer in transaction mode, as its own process before a test's server.

Its pool is so small that the sessions behind it are really shared.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from signal import SIGKILL
from typing import Self

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.deploy.local.account import account_for
from tests.support.waiting import eventually

PORT = 6432
FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/sbin")
"""Where distributions put it, and an ordinary user's PATH does not look."""

_CONFIGURATION = """\
[databases]
* = {server}

[pgbouncer]
pool_mode = transaction
default_pool_size = {pool}
min_pool_size = 0
unix_socket_dir = {folder}
unix_socket_mode = 0777
listen_port = {port}
auth_type = any
logfile = {folder}/pgbouncer.log
pidfile = {folder}/pgbouncer.pid
query_wait_timeout = 20
server_login_retry = 0.2
"""


def program() -> str:
    """The installed pgbouncer; skips the test where there is none."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *FOLDERS])
    program_path = shutil.which("pgbouncer", path=path)
    if program_path is None:
        pytest.skip("pgbouncer is not installed")
    return program_path


class PgBouncer:
    """`with PgBouncer(dsn, pool=1) as pooler:`; `pooler.dsn` is the same database through it."""

    def __init__(self, dsn: str, *, pool: int) -> None:
        self._program = program()
        # Root may not run it; whoever runs a test's Postgres may run this.
        self._account = account_for(None)
        self._folder = Path(tempfile.mkdtemp(prefix="hfpool"))
        target = conninfo_to_dict(dsn)
        kept = ("host", "port", "user", "password")
        server = " ".join(f"{name}={target[name]}" for name in kept if target.get(name))
        (self._folder / "pgbouncer.ini").write_text(
            _CONFIGURATION.format(server=server, pool=pool, folder=self._folder, port=PORT)
        )
        for path in (self._folder / "pgbouncer.ini", self._folder):
            self._account.own(path)
        self._process: subprocess.Popen[bytes] | None = None
        self.dsn = make_conninfo(
            dbname=target.get("dbname"), user="app", host=str(self._folder), port=PORT
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()
        shutil.rmtree(self._folder)

    def start(self) -> None:
        """Start it, also after `kill`, and wait until it hands out sessions."""
        command = [self._program, "-q", self._folder / "pgbouncer.ini"]
        self._process = self._account.spawn(command, subprocess.DEVNULL)
        eventually(self._answers)

    def kill(self) -> None:
        """SIGKILL: what it was carrying is lost in the middle of a byte."""
        if self._process:
            self._process.send_signal(SIGKILL)
            self._process.wait()
            self._process = None
            for path in self._folder.glob("*.pid"):
                path.unlink()
            for path in self._folder.glob(".s.PGSQL.*"):
                path.unlink()

    def _answers(self) -> bool:
        assert self._process
        assert self._process.poll() is None, (self._folder / "pgbouncer.log").read_text()
        try:
            with psycopg.connect(self.dsn, autocommit=True, connect_timeout=2) as connection:
                connection.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

from contextlib import suppress
from pathlib import Path
from signal import SIGINT

import psutil
import psycopg

from holdfast.deploy.local.account import account_for
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

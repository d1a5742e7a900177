"""A Postgres on a file system of its own, which fills up."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

from holdfast.deploy.local.postgres import EmbeddedPostgres
from tests.support.servers.databases import processes_on
from tests.support.servers.embedded import Server
from tests.support.waiting import eventually

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

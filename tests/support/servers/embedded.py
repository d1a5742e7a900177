"""Directories for embedded servers of one test, with nothing left of them afterwards."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from deploy.local.postgres import EmbeddedPostgres


@contextmanager
def server_directory(copy_of: Path | None = None) -> Iterator[Path]:
    """Yield a directory that every account reaches; stops and deletes what is started there.

    It does not exist yet, or is a copy of a stopped server's directory: initdb costs seconds. Not
    pytest's `tmp_path`: that is closed to other accounts, so root's data would go elsewhere.
    """
    parent = Path(tempfile.mkdtemp(prefix="holdfast-test-"))
    parent.chmod(0o755)
    directory = parent / "local"
    try:
        if copy_of:
            subprocess.run(["/bin/cp", "-a", str(copy_of), str(directory)], check=True)
        yield directory
    finally:
        if (directory / "cluster.json").exists():
            server = EmbeddedPostgres(directory)
            server.stop()
            server.remove()
        shutil.rmtree(parent)


@contextmanager
def prepared_directory() -> Iterator[Path]:
    """Yield the directory of a server that was started once and stopped, to be copied."""
    with server_directory() as directory:
        with EmbeddedPostgres(directory):
            pass
        yield directory


def processes_on(data: Path) -> list[int]:
    """Every living process that works in a data directory: the server and its children."""
    return [
        each.pid
        for each in psutil.process_iter(["cwd", "status"])
        if each.info["cwd"] == str(data) and each.info["status"] != psutil.STATUS_ZOMBIE
    ]

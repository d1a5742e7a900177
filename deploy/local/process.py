"""The server as a process: is it ours, is its lock file stale, how it is stopped."""

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from deploy.local.locks import POLL_SECONDS
from sink.contract.exits import CommandError

FAST_SECONDS = 60.0
IMMEDIATE_SECONDS = 15.0

_children: dict[int, subprocess.Popen[bytes]] = {}
"""Servers that this process started and that outlive the object that started them; reaped here."""


@dataclass(frozen=True, slots=True)
class Postmaster:
    """A running server, as its `postmaster.pid` describes it."""

    process: psutil.Process
    socket_folder: Path | None
    """None while the server is still opening its socket."""
    ready: bool


def keep(child: subprocess.Popen[bytes]) -> None:
    """Look after a server that this process started, so that it never stays a zombie."""
    _children[child.pid] = child


def reap() -> None:
    """Collect the servers of this process that have ended, whoever stopped them."""
    for pid, child in list(_children.items()):
        if child.poll() is not None:
            _children.pop(pid, None)


def find(data: Path) -> Postmaster | None:
    """Return the server that runs on `data`.

    The number in `postmaster.pid` alone proves nothing: after a crash or in a restarted container
    it may belong to any process. It counts only if that process is a living `postgres`, run by the
    owner of the data, that works in this very directory (a postmaster changes into it).
    """
    reap()
    lines = _lock_file(data)
    try:
        process = psutil.Process(int(lines[0]))
        with process.oneshot():
            ours = (
                process.status() != psutil.STATUS_ZOMBIE
                and process.name().startswith("postgres")
                and process.uids().effective == data.stat().st_uid
                and process.cwd() == os.path.realpath(data)
            )
    except (IndexError, ValueError, OSError, psutil.Error):
        return None
    if not ours:
        return None
    folder = lines[4].strip() if len(lines) > 4 else ""
    ready = len(lines) > 7 and lines[7].strip() == "ready"
    return Postmaster(process, Path(folder) if folder else None, ready)


def remove_stale_lock_file(data: Path) -> None:
    """Remove a `postmaster.pid` whose server is gone.

    Call it only with the server's life lock in hand (`EmbeddedPostgres`), which proves that not one
    process of an earlier server is left. Postgres itself refuses to start while the number in the
    file belongs to any living process of the account, and for an empty file.
    """
    if (data / "postmaster.pid").exists() and find(data) is None:
        (data / "postmaster.pid").unlink()


def stop(process: psutil.Process) -> None:
    """Stop a server: fast (open transactions roll back), else at once, else by SIGKILL."""
    with contextlib.suppress(psutil.NoSuchProcess):
        children = process.children(recursive=True)
        for number, seconds in ((signal.SIGINT, FAST_SECONDS), (signal.SIGQUIT, IMMEDIATE_SECONDS)):
            process.send_signal(number)
            if _gone([process], seconds):
                return
        for each in (process, *children):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        if not _gone([process, *children], IMMEDIATE_SECONDS):
            raise CommandError(
                f"the server (process {process.pid}) does not end even on SIGKILL; its data are"
                " safe on disk. The kernel holds it, perhaps on a disk that does not answer."
            )


def _gone(processes: list[psutil.Process], seconds: float) -> bool:
    """Wait until every process has ended; one that only waits to be reaped has ended too."""
    deadline = time.monotonic() + seconds
    while any(_alive(process) for process in processes):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    reap()
    return True


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _lock_file(data: Path) -> list[str]:
    try:
        return (data / "postmaster.pid").read_text().splitlines()
    except OSError:
        return []

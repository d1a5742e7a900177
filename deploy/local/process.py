"""The server process: identify it, remove its stale lock file, stop it; its log."""

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from holdfast.deploy.local.locks import POLL_SECONDS
from holdfast.sink.contract.exits import CommandError

FAST_SECONDS = 60.0
IMMEDIATE_SECONDS = 15.0

_children: dict[int, subprocess.Popen[bytes]] = {}
"""Servers started by this process, kept to reap them."""


@dataclass(frozen=True, slots=True)
class Postmaster:
    """A running server, from its `postmaster.pid`."""

    process: psutil.Process
    socket_folder: Path | None
    """None while the server is still opening its socket."""
    ready: bool


def keep(child: subprocess.Popen[bytes]) -> None:
    """Keep a server that this process started, so that `reap` can collect it."""
    _children[child.pid] = child


def reap() -> None:
    """Collect the servers of this process that have ended."""
    for pid, child in list(_children.items()):
        if child.poll() is not None:
            _children.pop(pid, None)


def find(data: Path) -> Postmaster | None:
    """Return the server that runs on `data`, or None.

    The pid in `postmaster.pid` alone proves nothing: after a crash or in a restarted container it
    may belong to any process. That process must be a live `postgres` of the owner of the data with
    `data` as its working directory (a postmaster changes into it).
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

    The caller must hold the life lock (`EmbeddedPostgres`), which proves that no process of an
    earlier server is alive. Postgres itself refuses to start if the pid belongs to any live process
    of the account, or if the file is empty.
    """
    if (data / "postmaster.pid").exists() and find(data) is None:
        (data / "postmaster.pid").unlink()


def stop(process: psutil.Process) -> None:
    """Stop a server: fast shutdown (rolls back transactions), else immediate, else SIGKILL."""
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
                f"the server (process {process.pid}) survives SIGKILL; its data are"
                " safe on disk. It is blocked in the kernel, perhaps by a disk.",
                code="process_not_ended",
            )


def _gone(processes: list[psutil.Process], seconds: float) -> bool:
    """Wait until all processes have ended; a zombie has ended."""
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


BYTES_MAX = 16 * 2**20
LINES = 5


def open_log(path: Path) -> IO[bytes]:
    """Open the log for append; a log larger than `BYTES_MAX` is first renamed to `<name>.1`."""
    if path.exists() and path.stat().st_size > BYTES_MAX:
        path.rename(path.with_name(f"{path.name}.1"))
    path.touch(mode=0o600)
    file = path.open("ab")
    file.seek(0, 2)
    return file


def log_tail(path: Path, offset: int = 0) -> str:
    """Return the last lines written after `offset`, on one line."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            text = file.read(BYTES_MAX).decode(errors="replace")
    except OSError as error:
        return f"({error.strerror})"
    return " | ".join(line.strip() for line in text.splitlines()[-LINES:]) or "(nothing)"

"""The processes of a stack, found and ended when whoever started them was killed.

Each has the stack's directory in its environment, which its own children inherit. Postgres stops in
order by `EmbeddedPostgres`, which finds its server by itself.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from holdfast.deploy.local.demo.layout import Layout
from holdfast.deploy.local.locks import locked
from holdfast.deploy.local.postgres import EmbeddedPostgres
from holdfast.sink.contract.exits import CommandError

VARIABLE = "STACK_DIRECTORY"

TERM_SECONDS = 10.0
STOP_SECONDS = 60.0
"""How long a running stack may take to end after SIGTERM."""

KILL_SECONDS = 10.0
POLL_SECONDS = 0.1


def mark(layout: Layout, lock: int) -> None:
    """Mark what this process starts from now on, and write its own id into its locked file."""
    os.environ[VARIABLE] = str(layout.root)
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)


def end(layout: Layout) -> int:
    """End what an earlier stack left running, by SIGTERM and then SIGKILL; returns how many.

    The caller holds the stack's lock. Raises `CommandError` for a process that cannot be ended.
    """
    first = list(_marked(layout.root))
    for process in first:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    deadline = time.monotonic() + TERM_SECONDS
    while (left := list(_marked(layout.root))) and time.monotonic() < deadline + KILL_SECONDS:
        if time.monotonic() >= deadline:
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        time.sleep(POLL_SECONDS)
    if left:
        pids = ", ".join(str(process.pid) for process in left)
        raise CommandError(
            f"processes of the stack in {layout.root} cannot be ended: {pids}.",
            code="process_not_ended",
        )
    return len(first)


def down(layout: Layout) -> int:
    """End the stack in a directory, running or left over; returns how many processes there were.

    Raises `CommandError` when it does not end, or is not a stack's.
    """
    if not layout.lock.exists():
        return 0
    ended = _stopped(layout)
    with locked(layout.lock, STOP_SECONDS, f"the stack in {layout.root} does not end."):
        ended += end(layout)
        return ended + EmbeddedPostgres(layout.postgres).stop()


def _stopped(layout: Layout) -> int:
    """Send SIGTERM to the process that holds the lock; returns how many there are."""
    with suppress(CommandError), locked(layout.lock, 0, "taken"):
        return 0
    text = layout.lock.read_text(encoding="ascii")
    if not text:
        raise CommandError(
            f"{layout.root} is used by `make demo`, not by a stack; end that first.",
            code="directory_in_use",
        )
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(text)).terminate()
    return 1


def _marked(root: Path) -> Iterator[psutil.Process]:
    """Yield the living processes of the stack in `root`, but not Postgres."""
    for process in psutil.process_iter():
        # A zombie has no environment; the process of another account hides it.
        with suppress(psutil.Error, OSError):
            ours = process.pid != os.getpid() and process.environ().get(VARIABLE) == str(root)
            if ours and not process.name().startswith("postgres"):
                yield process

"""Named points at which a test, or the demo, can stop a real process.

A point does nothing unless `HOLDFAST_FAILPOINTS` names it when the process starts: `S8=kill`,
`D10=pause:/path`, `D8=stop` or `S4=raise`, several separated by `;`, each with an optional `@n` for
the nth pass (`S8=kill@3`). `pause` creates the file and waits for ever, so that another process can
send the signal; `stop` sends SIGSTOP, and SIGCONT lets the process continue. The names are those of
the table in docs/failures.md.
"""

import os
import signal
from pathlib import Path
from threading import Event, Lock, get_ident

ENVIRONMENT = "HOLDFAST_FAILPOINTS"


class FailpointHit(RuntimeError):
    """Raised by a point armed with `raise`."""


_armed = os.environ.get(ENVIRONMENT)
"""Read once: code passes points thousands of times a second."""

_passed: dict[str, int] = {}
_lock = Lock()


def failpoint(name: str) -> None:
    """Pass the point `name`; a no-op in a process that was not armed."""
    if not _armed:
        return
    for spec in _armed.split(";"):
        point, _, action = spec.strip().partition("=")
        if point == name:
            _act(name, action)


def _act(name: str, action: str) -> None:
    action, _, nth = action.partition("@")
    with _lock:
        _passed[name] = _passed.get(name, 0) + 1
        if _passed[name] != int(nth or 1):
            return
    verb, _, argument = action.partition(":")
    match verb:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            # To this thread: a signal to the process may let this thread run on for a moment.
            signal.pthread_kill(get_ident(), signal.SIGSTOP)
        case "pause":
            Path(argument).touch()
            Event().wait()
        case "raise":
            raise FailpointHit(name)
        case _:
            raise ValueError(f"{ENVIRONMENT}: unknown action {verb!r} for point {name}")

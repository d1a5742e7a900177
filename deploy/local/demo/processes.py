"""The processes of the demo: each has its own session and log, and none is left running."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

import psutil

from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.failpoints import ENVIRONMENT
from holdfast.sink.contract.failpoints import ENVIRONMENT as FAILPOINTS

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NOTICE_SECONDS = 0.05


class Interrupted(Exception):
    """A signal requested the end of the demo."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class Interrupts:
    """Records SIGINT, SIGTERM and SIGHUP while the block runs.

    The demo checks the record where it can stop cleanly: an exception in the middle of a process
    start would leave an unknown process behind.
    """

    def __init__(self) -> None:
        self._noted: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in SIGNALS:
            # Under nohup, SIGHUP is ignored: the demo should outlive the terminal.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raise `Interrupted` if a signal was received."""
        if self._noted is not None:
            raise Interrupted(self._noted)

    def pause(self, seconds: float) -> None:
        """Sleep; raises `Interrupted` on a signal."""
        deadline = time.monotonic() + seconds
        self.check()
        while (left := deadline - time.monotonic()) > 0:
            # time.sleep continues after a signal whose handler does not raise.
            time.sleep(min(left, NOTICE_SECONDS))
            self.check()

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - signal's form
        if self._noted is None:
            self._noted = number


GRACE_SECONDS = 4.0
"""How long a process may take to end after SIGTERM."""

KILL_SECONDS = 10.0
POLL_SECONDS = 0.05
LINES = 12
"""Number of log lines to show for a failed process."""


class Failed(CommandError):
    """A process of the demo ended early, or did not reach its goal in time."""

    def __init__(self, name: str, what: str, lines: Sequence[str], log: Path) -> None:
        super().__init__(
            f"the process `{name}` {what}. Only the databases that this command made are affected."
            f" Read {log}, fix the cause, and run it again; it starts from scratch.",
            code="process_failed",
        )
        self.lines = tuple(lines)


@dataclass
class Child:
    """A running `holdfast` command."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    log_offset: int
    _gone: bool = False

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for the signal that ended it."""
        return self.process.poll()

    def must_run(self) -> None:
        """Raise `Failed` if it has ended."""
        match self.exit_code:
            case None:
                return
            case code if code < 0:
                raise self.failure(f"was ended by {signal.Signals(-code).name}")
            case code:
                raise self.failure(f"ended with exit code {code}")

    def failure(self, what: str) -> "Failed":
        """Return the error for this process, with `what` as predicate."""
        lines = [line for line in self.output().splitlines() if line.strip()]
        return Failed(self.name, what, lines[-LINES:], self.log)

    def output(self) -> str:
        """Return the output of this process, without that of earlier ones with its name."""
        with self.log.open("rb") as log:
            log.seek(self.log_offset)
            return log.read().decode(errors="replace")

    def terminate(self) -> None:
        """Send SIGTERM."""
        with suppress(ProcessLookupError):
            self.process.terminate()

    def kill(self) -> None:
        """Send SIGKILL to it and all its descendants: the JVM, the Python workers."""
        if self._gone:
            # The pid may have been reused.
            return
        deadline = time.monotonic() + KILL_SECONDS
        while (members := _session(self.process.pid)) and time.monotonic() < deadline:
            # A process may fork while its siblings die, so repeat until none is left.
            for pid in members:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.poll()
            time.sleep(POLL_SECONDS)
        self.process.wait(KILL_SECONDS)
        self._gone = True


@dataclass
class Processes:
    """Starts `holdfast` commands with this Python, and stops them all at the end of the block."""

    logs: Path
    environment: Mapping[str, str]
    _children: list[Child] = field(default_factory=list)

    def __enter__(self) -> Self:
        self.logs.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def start(
        self,
        name: str,
        arguments: Sequence[str],
        environment: Mapping[str, str] | None = None,
    ) -> Child:
        """Start `holdfast ARGUMENTS`; its output is appended to the log `name`.log."""
        command = [sys.executable, "-m", "holdfast.dispatcher.cli.main", *arguments]
        return self._spawn(name, command, f"holdfast {' '.join(arguments)}", environment or {})

    def start_program(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Child:
        """Start another program, by its path; as `start`."""
        return self._spawn(name, command, " ".join(command), environment or {})

    def _spawn(
        self, name: str, command: Sequence[str], shown: str, environment: Mapping[str, str]
    ) -> Child:
        log = self.logs / f"{name}.log"
        inherited = {key: value for key, value in os.environ.items() if key != FAILPOINTS}
        with log.open("ab") as output:
            output.write(f"$ {shown}\n".encode())
            output.flush()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**inherited, **self.environment, **environment},
                start_new_session=True,
            )
            child = Child(name, process, log, output.tell())
        self._children.append(child)
        return child

    def close(self) -> None:
        """Stop all running processes: SIGTERM, then SIGKILL."""
        for child in reversed(self._children):
            if child.exit_code is None:
                child.terminate()
        deadline = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < deadline and any(c.exit_code is None for c in self._children):
            time.sleep(POLL_SECONDS)
        for child in reversed(self._children):
            child.kill()
        self._children.clear()


def _session(leader: int) -> list[int]:
    """Return the live processes of a session; PySpark's workers leave the process group."""
    members = []
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                members.append(process.pid)
    return members


@dataclass
class Kill:
    """One planned kill, at pass number `turn` of `point`.

    An armed process pauses at a named failpoint and creates a file. The demo sees the file and
    sends SIGKILL from outside, like an out-of-memory killer. The process cannot react.
    """

    point: str
    turn: int
    flag: Path
    done: bool = False
    proved: bool = False

    @property
    def environment(self) -> dict[str, str]:
        """The environment that arms a process for this kill."""
        return {ENVIRONMENT: f"{self.point}=pause:{self.flag}@{self.turn}"}

    @property
    def due(self) -> bool:
        """Whether the process is paused at its point."""
        return not self.done and self.flag.exists()


def spark_has_recorded(checkpoint: Path, batch_id: int) -> bool:
    """Return whether Spark would continue after this batch on a restart."""
    return (checkpoint / "commits" / str(batch_id)).exists()

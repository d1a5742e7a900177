"""Several dispatcher processes with one parent. They share nothing but the database.

The parent passes on what it is told, and starts a process again that ended by itself.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Final

from holdfast.dispatcher.delivery.process.orders import Failed, Order, Orders, Ready
from holdfast.dispatcher.delivery.process.single import deliver
from holdfast.dispatcher.delivery.settings import Settings, address
from holdfast.dispatcher.delivery.telemetry.log import Line, Telemetry, configure
from holdfast.dispatcher.shared.errors import UnservedCommandError
from holdfast.sink.contract import standard_error
from holdfast.sink.contract.exits import CommandError, ExitCode

PAUSE_S: Final = 1.0
"""Before the first restart; each further one waits twice as long, up to `PAUSE_MAX_S`."""

PAUSE_MAX_S: Final = 30.0

STEADY_S: Final = 60.0
"""A process that ran so long restarts after the shortest pause again."""

_ORDERS: Final = {
    signal.SIGTERM: Order.STOP,
    signal.SIGINT: Order.STOP,
    signal.SIGHUP: Order.RELOAD,
}


def settings_of(settings: Settings, number: int) -> Settings:
    """Return the settings of the process `number`, from 0: its port is so much above the first.

    >>> settings_of(Settings("dbname=outbox", listen="127.0.0.1:9464"), 2).listen
    '127.0.0.1:9466'
    """
    if settings.listen is None:
        return settings
    host, port = address(settings.listen)
    host_quoted = f"[{host}]" if ":" in host else host
    return replace(settings, listen=f"{host_quoted}:{port + number}")


@dataclass
class _Process:
    """A place among the processes, and who has it now."""

    settings: Settings
    process: SpawnProcess
    orders: Connection
    since: float
    failed: Failed | None = None
    pause_s: float = PAUSE_S


class Processes:
    """The parent of `count` dispatcher processes."""

    def __init__(self, settings: Settings, count: int) -> None:
        """Raises CommandError (usage) where the port of a process would be none."""
        try:
            self._settings = [settings_of(settings, number) for number in range(count)]
        except ValueError as error:
            raise CommandError(
                f"{count} processes need as many ports: {error}. Nothing was sent.",
                ExitCode.USAGE,
                code="invalid_setting",
            ) from None
        self._drain = settings.drain
        self._running: list[_Process] = []
        self._due: list[tuple[float, _Process]] = []
        self._failures: list[Failed] = []
        self._any_ready = False
        self._stopping = False
        self._telemetry = Telemetry()

    def run(self) -> None:
        """Run until every process has ended. Raises CommandError for what the worst of them says.

        A process that ends by itself is started again, unless no process could begin at all, or
        the database does not serve this version any more: then all end.
        """
        configure()
        with self._signals() as signal_fd:
            try:
                self._running += [self._started(each) for each in self._settings]
                while self._running or self._due:
                    self._wait(signal_fd)
                    self._restart()
            finally:
                self._order(Order.ABORT)
                for each in self._running:
                    each.process.join()
        if self._failures:
            worst = min(self._failures, key=lambda failed: failed.exit_code is ExitCode.DEGRADED)
            raise CommandError(worst.message, worst.exit_code, code=worst.code)

    def _started(self, settings: Settings, pause_s: float = PAUSE_S) -> _Process:
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_run, args=(settings, theirs))
        process.start()
        theirs.close()
        return _Process(settings, process, ours, time.monotonic(), pause_s=pause_s)

    def _wait(self, signal_fd: int) -> None:
        """Wait for whatever comes first: a signal, a word of a process, an end, a restart."""
        timeout = None
        if self._due:
            timeout = max(0.0, min(at for at, _ in self._due) - time.monotonic())
        by_orders = {each.orders: each for each in self._running}
        ends = {each.process.sentinel: each for each in self._running}
        for ready in connection.wait([signal_fd, *by_orders, *ends], timeout):
            if ready == signal_fd:
                self._obey(signal.Signals(os.read(signal_fd, 1)[0]))
            elif isinstance(ready, Connection):
                self._hear(by_orders[ready])
            elif isinstance(ready, int):
                self._ended(ends[ready])

    def _obey(self, number: signal.Signals) -> None:
        order = _ORDERS[number]
        if order is not Order.STOP:
            self._order(order)
        elif self._stopping:
            self._order(Order.ABORT)
        else:
            self._stop()

    def _stop(self) -> None:
        self._stopping = True
        self._due.clear()
        self._order(Order.STOP)

    def _order(self, order: Order) -> None:
        for each in self._running:
            with suppress(OSError):  # it has just ended
                each.orders.send(order)

    def _hear(self, each: _Process) -> None:
        with suppress(EOFError, OSError):  # it has ended, or is about to
            while each.orders.poll():
                message = each.orders.recv()
                if isinstance(message, Ready):
                    self._any_ready = True
                elif isinstance(message, Failed):
                    each.failed = message
            return
        each.process.join()

    def _ended(self, each: _Process) -> None:
        each.process.join()
        self._hear(each)
        each.orders.close()
        self._running.remove(each)
        code = each.process.exitcode
        drained = self._drain and code in {ExitCode.OK, ExitCode.DEGRADED}
        hopeless = each.failed is not None and (each.failed.for_good or not self._any_ready)
        if self._stopping or drained or hopeless:
            if each.failed is not None:
                self._failures.append(each.failed)
            if hopeless:
                self._stop()
            return
        lived = time.monotonic() - each.since
        pause = PAUSE_S if lived > STEADY_S else each.pause_s
        self._telemetry.warn(
            Line.PROCESS_ENDED,
            pid=each.process.pid,
            exit_code=code,
            error=each.failed.message if each.failed else None,
            restart_s=pause,
        )
        each.pause_s = min(2 * pause, PAUSE_MAX_S)
        self._due.append((time.monotonic() + pause, each))

    def _restart(self) -> None:
        now = time.monotonic()
        due = [each for at, each in self._due if at <= now]
        self._due = [(at, each) for at, each in self._due if at > now]
        self._running += [self._started(each.settings, each.pause_s) for each in due]

    @contextmanager
    def _signals(self) -> Iterator[int]:
        """Yield a file descriptor on which the number of each signal arrives."""
        signal_fd, wakeup = os.pipe()
        os.set_blocking(wakeup, False)
        before = {number: signal.getsignal(number) for number in _ORDERS}
        for number in _ORDERS:
            signal.signal(number, _nothing)
        fd_before = signal.set_wakeup_fd(wakeup)
        try:
            yield signal_fd
        finally:
            signal.set_wakeup_fd(fd_before)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(wakeup)
            os.close(signal_fd)


def _nothing(_number: int, _frame: object) -> None:
    """Leave the signal to the descriptor on which its number arrives."""


def _run(settings: Settings, parent: Connection) -> None:
    """Be one of the processes."""
    # Until it can stop in good order, Ctrl-C is for the parent.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    standard_error.install()
    try:
        deliver(settings, Orders(parent))
    except CommandError as error:
        with suppress(OSError):  # a parent that is gone
            for_good = isinstance(error, UnservedCommandError)
            parent.send(Failed(str(error), error.exit_code, error.code, for_good))
        sys.exit(error.exit_code)

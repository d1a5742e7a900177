"""SIGTERM and SIGINT: the running batch is finished, then the query stops."""

import signal
import sys
from collections.abc import Callable
from threading import Event
from types import FrameType, TracebackType
from typing import Any, Self

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

_PRIORITY = 1000
"""Hooks run in descending order; Spark's own has 40."""

_LONGEST_HOURS = 24
"""Whoever sent the signal decides how long a batch may take: after it comes SIGKILL."""


class JvmStop:
    """A shutdown hook of the JVM, which calls `request` and waits for `release`."""

    def __init__(self, request: Callable[[str], None]) -> None:
        self._request = request
        self._released = Event()
        self._gateway: Any = None

    def install(self, spark: SparkSession) -> None:
        """Install the hook in the session's JVM, once for each JVM."""
        context: Any = spark.sparkContext
        gateway = context._gateway  # noqa: SLF001 - PySpark has no public way
        if gateway is self._gateway:
            return
        self._gateway = gateway
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        jvm = gateway.jvm
        hooks = jvm.org.apache.hadoop.util.ShutdownHookManager.get()
        hours = jvm.java.util.concurrent.TimeUnit.HOURS
        # A thread is also a Runnable. Of ours, Java would ask its hash code.
        hook = jvm.java.lang.Thread(_Hook(self._run))
        hooks.addShutdownHook(hook, _PRIORITY, _LONGEST_HOURS, hours)

    def release(self) -> None:
        """Let the JVM end: the job has ended."""
        self._released.set()

    def _run(self) -> None:
        if not self._released.is_set():
            self._request("Spark's JVM got a signal")
            self._released.wait()


class _Hook:
    """A `java.lang.Runnable` whose calls arrive on a thread of Py4J."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work

    def run(self) -> None:
        self._work()

    class Java:
        implements = ("java.lang.Runnable",)


_NUMBERS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """While entered, the first signal sets `requested`; a second one ends the process at once.

    `install` sets the handlers, and again after other code has replaced them.
    """

    def __init__(self) -> None:
        self.requested = Event()
        self._before = {number: signal.getsignal(number) for number in _NUMBERS}

    def install(self) -> None:
        if not self.requested.is_set():
            for number in _NUMBERS:
                signal.signal(number, self._on_signal)

    def __enter__(self) -> Self:
        self.install()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def request(self, why: str) -> None:
        """Ask for the stop, from any thread; reports it once."""
        if not self.requested.is_set():
            self.requested.set()
            print(f"{why}: stopping after the running batch", file=sys.stderr, flush=True)  # noqa: T201 - the command's own report

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        for each in _NUMBERS:
            signal.signal(each, signal.SIG_DFL)
        self.request(signal.Signals(number).name)

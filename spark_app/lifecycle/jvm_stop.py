"""A signal that reaches Spark's JVM instead of the job: the job stops as if it had got it.

The process that a service manager or a pod stops is not always this one: `spark-submit` is a JVM,
and this process its child. A JVM runs its shutdown hooks before it ends. Spark's own hook stops the
running query at once; the one here runs before it, and returns when the job has ended.
"""

from collections.abc import Callable
from threading import Event
from typing import Any

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

"""The Spark session of the job: started when needed, and again when its JVM has died.

PySpark keeps one JVM per process, in class attributes, and has no call to release a dead one. So
this module resets them. The JVM of `spark-submit` is not ours: when it dies, the job ends.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryFile
from textwrap import shorten
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession
from pyspark.sql.context import SQLContext
from rich.console import Console

from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.lifecycle.failure import Cause, Failure, QueryFailed, one_line
from holdfast.spark_app.runtime import session
from holdfast.spark_app.runtime.java import WAY_OUT
from holdfast.spark_app.runtime.launch import Launch

_GONE = (Py4JError, OSError)
"""What a call raises when the JVM does not answer."""

_END_SECONDS = 10

_STDERR = 2
_CHARACTERS_SHOWN = 300


class Engine:
    """One Spark session at a time. Not thread-safe."""

    def __init__(
        self,
        name: str,
        state_memory_mb: int,
        launch: Launch,
        on_start: Callable[[SparkSession], object],
    ) -> None:
        """`on_start` is called after each start: Spark's context installs a SIGINT handler."""
        self._name = name
        self._launch = launch
        self._state_memory_mb = state_memory_mb
        self._on_start = on_start
        self._spark: SparkSession | None = None
        self._starts = 0

    def spark(self) -> SparkSession:
        """Return a working session.

        Raises CommandError when the first start fails, and QueryFailed when a later one does.
        """
        if self._spark is not None and not self._works():
            self.stop()
        if self._spark is None:
            self._spark = self._start()
            self._starts += 1
            self._on_start(self._spark)
        return self._spark

    def jvm_gone(self) -> bool:
        """Whether the JVM has died."""
        return self._spark is not None and not _answers(self._spark)

    def stop(self) -> None:
        """Stop Spark, or release a JVM that has died."""
        spark, self._spark = self._spark, None
        if spark is not None:
            if _answers(spark):
                with suppress(*_GONE):
                    spark.stop()
            else:
                forget_jvm()

    def _start(self) -> SparkSession:
        try:
            spark = session.create(self._name, self._state_memory_mb, self._launch)
        except (PySparkRuntimeError, *_GONE) as error:
            forget_jvm()
            said = f"Spark did not start: {one_line(str(error))}"
            if self._starts:
                raise QueryFailed(Failure(Cause.JAVA, said), wrote=False) from error
            raise CommandError(f"{said}. {WAY_OUT}", code="spark_not_started") from error
        _silence_accumulators(spark)
        return spark

    def _works(self) -> bool:
        try:
            context: Any = self._spark.sparkContext if self._spark else None
            return not context._jsc.sc().isStopped()  # noqa: SLF001 - PySpark has no public way to ask
        except _GONE:
            return False


def _answers(spark: SparkSession) -> bool:
    try:
        spark.sparkContext._jvm.java.lang.System.nanoTime()  # type: ignore[union-attr]  # noqa: SLF001 - as above
    except _GONE:
        return False
    return True


def _silence_accumulators(spark: SparkSession) -> None:
    """Keep the accumulator server's thread from printing a stack trace when the JVM dies."""
    context: Any = spark.sparkContext
    context._accumulatorServer.handle_error = lambda *_: None  # noqa: SLF001 - as above


def forget_jvm() -> None:
    """Reset PySpark after a JVM that does not answer, so that it starts another one."""
    context: Any = SparkContext._active_spark_context  # noqa: SLF001 - PySpark has no public way
    gateway: Any = SparkContext._gateway  # noqa: SLF001 - as above
    if context is not None:
        context._jsc = None  # noqa: SLF001 - as above
        with suppress(*_GONE):
            context.stop()
    if gateway is not None:
        with suppress(*_GONE):
            gateway.shutdown_callback_server()
        with suppress(*_GONE):
            gateway.close()
        _end(gateway.proc)
    SparkContext._gateway = None  # noqa: SLF001 - as above
    SparkContext._jvm = None  # noqa: SLF001 - as above
    SparkContext._active_spark_context = None  # noqa: SLF001 - as above
    SparkSession._instantiatedSession = None  # noqa: SLF001 - as above
    SparkSession._activeSession = None  # noqa: SLF001 - as above
    SQLContext._instantiatedContext = None  # noqa: SLF001 - as above


def _end(process: "subprocess.Popen[bytes] | None") -> None:
    """Wait until our JVM has ended; kill it where it does not."""
    if process is None:
        return
    if process.stdin is not None:
        # A JVM that still works exits when its stdin closes.
        process.stdin.close()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def start_quietly(name: str, launch: Launch | None = None) -> SparkSession:
    """Start Spark for one answer: a hint on a terminal, nothing else on stderr.

    Raises CommandError in one line when it does not start.
    """
    with _hint(), TemporaryFile() as said:
        try:
            with _stderr_to(said.fileno()):
                return session.create(name, launch=launch)
        except (PySparkRuntimeError, Py4JError) as error:
            said.seek(0)
            words = _complaint(said.read().decode(errors="replace")) or str(error)
            raise CommandError(
                f"Spark did not start: {one_line(words)}. {WAY_OUT}", code="spark_not_started"
            ) from error


def _complaint(said: str) -> str:
    lines = (line for line in said.splitlines() if not line.startswith("WARNING:"))
    return shorten(" ".join(lines), _CHARACTERS_SHOWN, placeholder=" ...")


@contextmanager
def _hint() -> Iterator[None]:
    with os.fdopen(os.dup(_STDERR), "w") as stderr:
        console = Console(file=stderr)
        if not console.is_terminal:
            yield
            return
        with console.status("Spark starts; this takes some seconds"):
            yield


@contextmanager
def _stderr_to(file: int) -> Iterator[None]:
    """Give processes that start inside the block another stderr: Java reports its options there.

    Later errors of Spark arrive as exceptions.
    """
    if os.environ.get("HOLDFAST_SPARK_LOG"):
        yield
        return
    own = os.dup(_STDERR)
    try:
        os.dup2(file, _STDERR)
        yield
    finally:
        os.dup2(own, _STDERR)
        os.close(own)

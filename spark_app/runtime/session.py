"""The Spark session of the job: settings that are part of its guarantees, and logging."""

import codecs
import locale
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from holdfast.sink.contract.checkpoint import manager_jar
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.spark_app.runtime.launch import (
    BOUND_MB,
    BOUNDED,
    FIXED,
    STORE_LIMITS,
    Launch,
    launched_by_spark_submit,
    of_this_machine,
)

STATE_MEMORY_MB = 512
"""Default memory of RocksDB for all partitions of the state in one process.

Unbounded, each partition may fill two write buffers of 64 MB and a cache of its own, outside the
heap, where only the OOM killer would stop it. The bound is per process, as the limits of a machine
or a container are; 512 MB give the two partitions of a default job the buffers that they would use
anyway.
"""

_JAVA_OPTIONS = "HOLDFAST_SPARK_JAVA_OPTIONS"
"""Appended to our own options, so that they win. The heap is set by Spark's `driver.memory`."""

_LOG_SETTINGS = str(files("holdfast.spark_app.runtime") / "log4j2.properties")
_LOG_PROPERTY = "log4j2.configurationFile"

_JARS = "spark.jars"
_DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
_OWN_JVM = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Each stage of a batch is broadcast from a buffer of this size. Spark's 4 MB are more than half
    # of a region of a small heap, and begin a collection of old objects each time.
    "spark.broadcast.blockSize": "256k",
    # After an OutOfMemoryError a JVM continues without the threads that died: it has to exit and
    # be replaced. Spark matches plans with regular expressions that recurse: the default stack of
    # 1 MB has ended queries.
    _DRIVER_OPTIONS: f"-XX:+ExitOnOutOfMemoryError -Xss4m -D{_LOG_PROPERTY}={_LOG_SETTINGS}",
}
_LOCAL = {
    # No other host connects to a driver with a local master.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

_LOCALE = "LC_ALL"
_PYTHON = "PYSPARK_PYTHON"


def create(
    name: str, state_memory_mb: int = STATE_MEMORY_MB, launch: Launch | None = None
) -> SparkSession:
    """Start Spark, or take the JVM of `spark-submit`; the session has the `FIXED` settings.

    Raises CommandError (usage) where the Python of the workers is not on this machine.
    """
    # Workers would otherwise run the `python3` of the PATH, without these packages.
    _require_python(os.environ.setdefault(_PYTHON, sys.executable))
    builder = SparkSession.builder.appName(name)
    if not launched_by_spark_submit():
        builder = builder.config(map=dict(_settings(launch or Launch())))
        with _names_as_utf8():
            spark = builder.getOrCreate()
        return bound(fix(_limited(spark)), state_memory_mb)
    with _log_settings():
        spark = builder.getOrCreate()
    return bound(fix(_limited(spark)), state_memory_mb)


def _limited(spark: SparkSession) -> SparkSession:
    """Apply `STORE_LIMITS` where nobody has set another value, and return the session."""
    context: Any = spark.sparkContext
    hadoop = context._jsc.hadoopConfiguration()  # noqa: SLF001 - PySpark has no public way
    for name, value in STORE_LIMITS.items():
        sources = hadoop.getPropertySources(name)
        if sources is None or list(sources) == ["core-default.xml"]:
            hadoop.set(name, value)
    return spark


def _settings(launch: Launch) -> dict[str, Any]:
    """Return the settings with which our own JVM starts."""
    master = launch.master or "local[*]"
    local = _LOCAL if of_this_machine(master) else {}
    options = (
        _OWN_JVM[_DRIVER_OPTIONS],
        os.environ.get(_JAVA_OPTIONS),
        launch.conf.get(_DRIVER_OPTIONS),
    )
    java = {_DRIVER_OPTIONS: " ".join(filter(None, options))}
    # Of executors, too: they write the state.
    manager = str(manager_jar()) if manager_jar().exists() else None
    jars = {_JARS: ",".join(filter(None, (launch.conf.get(_JARS), manager)))}
    return {"spark.master": master} | local | _OWN_JVM | dict(launch.conf) | java | jars


@contextmanager
def _names_as_utf8() -> Iterator[None]:
    """Let a JVM that starts inside decode file names as UTF-8, whatever our own locale is.

    Java has no option for it: it asks the locale. With another one it would never read such a file.
    """
    if codecs.lookup(locale.getencoding()).name == "utf-8":
        yield
        return
    before = os.environ.get(_LOCALE)
    os.environ[_LOCALE] = "C.UTF-8"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_LOCALE]
        else:
            os.environ[_LOCALE] = before


def _require_python(python: str) -> None:
    """Refuse a relative path that only executors have: Spark runs it on the driver, too."""
    if os.sep in python and not Path(python).exists():
        raise CommandError(
            f"{_PYTHON}={python} is not there in {Path.cwd()}, and Spark starts Python processes of"
            " the job on the driver as well as on executors. Nothing was started; unpack the"
            " archive that executors get in this directory, under the same name.",
            ExitCode.USAGE,
            code="python_missing",
        )


@contextmanager
def _log_settings() -> Iterator[None]:
    """Log as in our own JVM, unless the user of `spark-submit` has named other log settings.

    Before the block and after it: a context that starts configures the log once more.
    """
    SparkContext._ensure_initialized()  # noqa: SLF001 - connects to the JVM that runs already
    jvm: Any = SparkContext._jvm  # noqa: SLF001 - as above
    if jvm.System.getProperty(_LOG_PROPERTY) is not None:
        yield
        return
    jvm.System.setProperty(_LOG_PROPERTY, _LOG_SETTINGS)
    settings = jvm.java.net.URI.create(Path(_LOG_SETTINGS).as_uri())
    log = jvm.org.apache.logging.log4j.core.config.Configurator
    log.reconfigure(settings)
    yield
    log.reconfigure(settings)


def fix(spark: SparkSession) -> SparkSession:
    """Apply the `FIXED` settings to a session, and return it."""
    for key, value in FIXED.items():
        spark.conf.set(key, value)
    return spark


def bound(spark: SparkSession, state_memory_mb: int) -> SparkSession:
    """Limit the memory of the state, in mebibytes, and return the session.

    All partitions in a JVM share it. Spark reads it once, at the first query of the JVM.
    """
    spark.conf.set(BOUNDED, "true")
    spark.conf.set(BOUND_MB, str(state_memory_mb))
    return spark


def quiet_logs() -> None:
    """Log to stderr what our own packages warn of; with `HOLDFAST_SPARK_LOG`, everything.

    When a JVM dies, Py4J logs each broken call with its stack, from several threads; the job
    reports that in one line.
    """
    handler = logging.StreamHandler()
    if "HOLDFAST_SPARK_LOG" not in os.environ:
        handler.addFilter(_is_ours)
    # Without a handler at the root, Py4J would install its own.
    logging.getLogger().addHandler(handler)


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name.startswith("holdfast.")

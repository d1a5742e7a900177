"""Start Spark for a person who waits for one answer: a hint on a terminal, nothing else."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from textwrap import shorten

from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession
from rich.console import Console

from sink.contract.exits import CommandError
from spark_app.lifecycle.failure import one_line
from spark_app.runtime import session
from spark_app.runtime.java import WAY_OUT

_STDERR = 2
_CHARACTERS_SHOWN = 300


def start(name: str) -> SparkSession:
    """Start Spark; raises CommandError in one line when it does not start."""
    with _hint(), TemporaryFile() as said:
        try:
            with _stderr_to(said.fileno()):
                return session.create(name)
        except (PySparkRuntimeError, Py4JError) as error:
            said.seek(0)
            words = _complaint(said.read().decode(errors="replace")) or str(error)
            raise CommandError(f"Spark did not start: {one_line(words)}. {WAY_OUT}") from error


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
    """Give what is started in here another stderr: Java tells about its own options there.

    What goes wrong later in Spark arrives as an exception.
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

"""Why the query ended, in one line for a person, and whether a restart may succeed.

Spark wraps the cause in the error of a stage, that in the error of foreachBatch, and that in the
error of the query. The useful text is at the bottom: an error of the sink, the message in which
Spark names a corrupt file, the last line of a Python worker's traceback.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    ParseException,
    PySparkException,
)

from holdfast.sink.contract.dsn import redact
from holdfast.sink.contract.store_faults import StoreFault, store_fault
from holdfast.sink.errors import CheckpointUnreadable, Permanent, SinkError
from holdfast.spark_app.exposure.errors import ExposureError
from holdfast.spark_app.input import kafka_faults
from holdfast.spark_app.input.file_names import UnreadableName
from holdfast.spark_app.input.kafka_faults import KafkaFault, fault
from holdfast.spark_app.input.missing_files import FileGone
from holdfast.spark_app.runtime.launch import launched_by_spark_submit

DETAILS = "HOLDFAST_SPARK_LOG=info shows Spark's own log"

_CAUSES_MAX = 20
_STORE_CHARACTERS = 200
_NAMED = re.compile(r"^\[([A-Z0-9_.]+)\] ")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+\s*$")
_PYTHON_ERROR = re.compile(r"^([A-Za-z_][\w.]*)(?:: (.*))?$")

_PLANNING = (AnalysisException, IllegalArgumentException, ParseException)
"""Raised before a query runs: the next start fails in the same way."""

_PLANNING_CLASSES = ("AnalysisException", "ParseException", "UnsupportedOperationException")
_HOPELESS = re.compile(r"^(STATE_STORE_\w*SCHEMA|STATE_STORE_UNSUPPORTED|STREAMING_STATEFUL)")
"""Error conditions of Spark: state of another layout. Not a batch that another driver recorded: the
JVM of a killed driver may do so once more, and a replaced driver is fenced at its restart."""

_KAFKA = re.compile(r"org\.apache\.kafka\.|kafka010|KAFKA_|Cannot fetch record for offset")
_FILES = re.compile(r"^(FAILED_READ_FILE|CANNOT_READ_FILE|PATH_NOT_FOUND)")
_STATE = "CANNOT_LOAD_STATE_STORE"
_STATE_ADVICE = (
    "Nothing is lost: what the ledger has stands, and the batch is in the checkpoint. `holdfast job"
    " checkpoints verify` names the damaged file and the way out."
)
_DAMAGE_KINDS = ("AssertionError", "ChecksumException", "ZipException")
_DAMAGE = re.compile(
    r"^\[CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED\]|^Stream is corrupted|^Corruption: "
)
"""What Spark, LZ4 and RocksDB say of the content of a state file. A file system that does not
answer says something else, and may answer the next start."""
_NO_CLASS = (
    "ClassNotFoundException",
    "NoClassDefFoundError",
    "NoSuchMethodError",
    "UnsupportedFileSystemException",
)
"""A jar is missing, or is of another version."""
_NO_CLASS_ADVICE = (
    "Nothing is lost: what the ledger has stands, and a planned batch is in the checkpoint. A jar"
    " is missing on Spark's class path, or is of another version: give Spark the one that fits"
    " (`spark.jars`), and start again."
)
_MISSING = re.compile(r"^File file:(/.+) does not exist")
"""Only of local paths it can be told whether the file is missing or the whole file system."""
_PLAN = "=== Streaming Query ==="
"""The rest of a message after it is the whole query, for Spark's own developers."""
_STACK = "\n\tat "
"""The rest after it is Java's stack in a task. Its causes are in the chain, too."""
_MORE = re.compile(r"; For more details see: +\S+")
"""An address of Hadoop's wiki, in the message of each failed connection."""

_WORKER_DIED = re.compile(r"Python worker (exited unexpectedly|process terminated)")
_WORKER_LATE = re.compile(r"Python worker to connect back|Python worker failed to connect back")
_CUT_OFF = ("EOFException", "SocketException")
_PYTHON_SIDE = re.compile(r"^org\.apache\.spark\.(\w+\.)*python\.")
_EXCHANGE = re.compile(r"^(java|jdk|sun|scala|org\.apache\.arrow)\.")
"""Below Spark's Python side: the exchange itself. A file whose stream ends is read by others."""

_JAVA_GONE = "Spark's Java process has died: killed, or out of memory"
_WORKER_GONE = "a Python process of Spark has died: killed, or out of memory"
_WORKER_SLOW = (
    "a Python process of Spark did not start within 10 s: it failed, or the machine is too busy"
)
"""Spark's own limit, which cannot be set."""


class Cause(StrEnum):
    """The kind of failure that ended a query."""

    DATABASE = "database"
    """The sink's deadline passed."""
    JAVA = "java"
    """The JVM died."""
    WORKER = "python_worker"
    """A Python process of Spark died."""
    FILE = "file"
    """A file could not be read: corrupt, missing, or the file system was not available."""
    STORE = "store"
    """The object store of the checkpoint or the events did not answer, or refused."""
    KAFKA = "kafka"
    """A cluster did not answer or refused, or records are gone."""
    QUERY = "query"
    """Any other error of Spark or of code that it runs."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What ended a query."""

    cause: Cause
    said: str
    """The cause, in one line without a full stop."""
    permanent: bool = False
    """Whether a restart certainly fails in the same way."""
    ends_start: bool = False
    """Whether it ends a start, for whose words a person waits; a running query is restarted."""
    guided: bool = False
    """Whether `said` already states what was not lost and what to do."""

    @property
    def message(self) -> str:
        """What happened, what was not lost, and what to do."""
        if self.guided:
            return self.said
        return (
            f"{self.said}. Nothing is lost: the batch is in the checkpoint and is replayed. Correct"
            f" the cause and start again; {DETAILS}."
        )


class QueryFailed(Exception):
    """A started query has ended with an error."""

    def __init__(self, failure: Failure, *, wrote: bool) -> None:
        """`wrote`: whether a batch was written between its start and its end."""
        super().__init__(failure.message)
        self.failure = failure
        self.wrote = wrote


def explain(error: BaseException) -> str:
    """Return what happened, what was not lost, and what to do."""
    return diagnose(error).message


def diagnose(error: BaseException, *, jvm_gone: bool = False) -> Failure:
    """Return why a query ended. When the JVM has died, every other error follows from that."""
    match error:
        case CheckpointUnreadable() if (found := _store_below(error)) is not None:
            return found
        case SinkError():
            said = f"{type(error).__name__}: {error}"
            return Failure(Cause.DATABASE, said, isinstance(error, Permanent), guided=True)
        case FileGone():
            return Failure(Cause.FILE, f"{one_line(str(error))}.", guided=True)
        case UnreadableName():
            return Failure(Cause.FILE, f"{one_line(str(error))}.", permanent=True, guided=True)
        case KafkaFault():
            return _of_kafka(error)
        case _ if jvm_gone:
            return _java_gone()
        case Py4JJavaError() | PySparkException():
            return _of_spark(error)
        case Py4JError() | ConnectionError():
            return _java_gone()
        case _:
            said = f"{type(error).__name__}: {one_line(str(error))}"
            return Failure(Cause.QUERY, said, isinstance(error, ExposureError))


def _of_kafka(error: KafkaFault) -> Failure:
    said = f"{one_line(str(error))}."
    return Failure(Cause.KAFKA, said, error.permanent, ends_start=True, guided=True)


def _of_store(found: StoreFault, message: str) -> Failure:
    said = (
        f"{found.said} ({one_line(message)[:_STORE_CHARACTERS]}). Nothing is lost: what the ledger"
        f" has stands, and a planned batch is in the checkpoint. {found.advice}."
    )
    return Failure(Cause.STORE, said, found.is_permanent, found.ends_start, guided=True)


def _store_below(error: BaseException) -> Failure | None:
    """Return what the client of an object store has said below an error of the sink, if it has."""
    below: BaseException | None = error
    while below is not None and not isinstance(below, Py4JJavaError):
        below = below.__cause__
    chain = [] if below is None else list(_chain(below))
    found = store_fault((thrown.name, thrown.message) for thrown in chain)
    return None if found is None else _of_store(found, chain[-1].message)


def _java_gone() -> Failure:
    # This process cannot start the JVM of spark-submit again.
    return Failure(Cause.JAVA, _JAVA_GONE, permanent=launched_by_spark_submit())


def one_line(text: str) -> str:
    """Return a text on one line, without a password and without a full stop at the end."""
    said = _MORE.sub("", text.partition(_PLAN)[0].partition(_STACK)[0])
    return redact(" ".join(said.split())).rstrip(".: ")


@dataclass(frozen=True, slots=True)
class _Thrown:
    """One throwable of a chain."""

    name: str
    """The name of its class with its package."""
    message: str
    cut_off: bool
    """Whether the connection to a Python process broke in it."""

    @property
    def kind(self) -> str:
        """The simple name of its class."""
        return re.split(r"[.$]", self.name)[-1]

    @property
    def condition(self) -> str:
        match = _NAMED.match(self.message)
        return match[1] if match else ""


def _of_spark(error: Py4JJavaError | PySparkException) -> Failure:
    chain = list(_chain(error)) or [_Thrown("", str(error), cut_off=False)]
    for thrown in chain:
        if "Traceback (most recent call last)" in thrown.message:
            name, said = _python(thrown.message)
            return Failure(Cause.QUERY, one_line(said), name in _PERMANENT_NAMES)
    if any(thrown.cut_off or _WORKER_DIED.search(thrown.message) for thrown in chain):
        return Failure(Cause.WORKER, _WORKER_GONE)
    if any(_WORKER_LATE.search(thrown.message) for thrown in chain):
        return Failure(Cause.WORKER, _WORKER_SLOW)
    # Other systems have errors of the same names.
    of_kafka = any(_KAFKA.search(f"{thrown.name} {thrown.message}") for thrown in chain) and fault(
        [kafka_faults.Thrown(thrown.kind, thrown.message) for thrown in chain]
    )
    if of_kafka:
        return _of_kafka(of_kafka)
    of_store = store_fault((thrown.name, thrown.message) for thrown in chain)
    if of_store:
        return _of_store(of_store, chain[-1].message)
    named = next((thrown.message for thrown in chain if thrown.condition), chain[0].message)
    said = one_line(_SQLSTATE.sub("", _NAMED.sub("", named)))
    deepest = one_line(chain[-1].message)
    if deepest not in one_line(named) and "MISMATCH" not in named:
        said = f"{said}: {deepest}"
    if any(thrown.kind in _NO_CLASS for thrown in chain):
        return Failure(Cause.QUERY, f"{said}. {_NO_CLASS_ADVICE}", permanent=True, guided=True)
    of_file = any(_FILES.match(thrown.condition) for thrown in chain)
    if of_file:
        return Failure(Cause.FILE, said)
    if any(thrown.condition.startswith(_STATE) for thrown in chain):
        damaged = any(map(_is_damage, chain))
        return Failure(Cause.QUERY, f"{said}. {_STATE_ADVICE}", damaged, guided=True)
    return Failure(Cause.QUERY, said, _is_hopeless(error, chain))


def _chain(error: Py4JJavaError | PySparkException) -> Iterator[_Thrown]:
    """Return the throwables of an error, the outermost first."""
    throwable: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(_CAUSES_MAX):
        if throwable is None:
            return
        thrown = _Thrown(throwable.getClass().getName(), "", cut_off=False)
        cut_off = thrown.kind in _CUT_OFF and _is_exchange(throwable)
        message = throwable.getMessage() or thrown.kind
        yield replace(thrown, message=message, cut_off=cut_off)
        throwable = throwable.getCause()


def _is_exchange(throwable: Any) -> bool:
    """Return whether an error was thrown while Spark exchanged rows with a Python process."""
    for frame in throwable.getStackTrace():
        name = frame.getClassName()
        if not _EXCHANGE.match(name):
            return _PYTHON_SIDE.match(name) is not None
    return False


def _is_damage(thrown: _Thrown) -> bool:
    """Return whether a state file has lost its content: another start finds the same."""
    if (missing := _MISSING.match(thrown.message)) is not None:
        file = Path(missing[1])
        # Spark makes the folder again where all of it is away: then no other version is in it.
        return any(file.parent.glob("[0-9]*_*")) and not file.exists()
    return thrown.kind in _DAMAGE_KINDS or _DAMAGE.match(thrown.message) is not None


def _is_hopeless(error: BaseException, chain: list[_Thrown]) -> bool:
    return isinstance(error, _PLANNING) or any(
        thrown.kind.endswith(_PLANNING_CLASSES) or _HOPELESS.match(thrown.condition)
        for thrown in chain
    )


def _python(traceback: str) -> tuple[str, str]:
    """Return the name of a traceback's last error, and its text: the name with the message, if any.

    The last error is the first line after the last frame that is not indented. Its message may have
    more lines; earlier errors of a chain have frames after them.
    """
    lines = traceback.splitlines()
    frames = [number for number, line in enumerate(lines) if line.startswith("  File ")]
    for line in lines[frames[-1] + 1 :] if frames else lines[::-1]:
        match = _PYTHON_ERROR.match(line)
        if match:
            name = match[1].rpartition(".")[2]
            return name, f"{name}: {match[2]}" if match[2] else name
    return "", "an error of Python code that has no name"


def _names(base: type[Exception]) -> Iterator[str]:
    yield base.__name__
    for below in base.__subclasses__():
        yield from _names(below)


_PERMANENT_NAMES = frozenset([*_names(Permanent), *_names(ExposureError)])
"""An error of a worker arrives as text: only the name of its class is left."""

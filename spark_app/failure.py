"""Why the query ended, in one line for a person.

Spark wraps what happened in the error of a stage, that in the error of foreachBatch, and that in
the error of the query. What is worth reading is at the bottom: an error of the sink, the sentence
with which Spark names a broken file, the last line of a Python worker's traceback.
"""

import re
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from sink.contract.dsn import redact
from sink.errors import SinkError

DETAILS = "HOLDFAST_SPARK_LOG=info shows all that Spark has to say"

_CAUSES_MAX = 20
_NAMED = re.compile(r"^\[([A-Z0-9_.]+)\] ")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+\s*$")
_PYTHON_ERROR = re.compile(r"^([A-Za-z_][\w.]*): (.*)$")


def explain(error: BaseException) -> str:
    """Say what happened, what was not lost, and what to do."""
    match error:
        case SinkError():
            return f"{type(error).__name__}: {error}"
        case Py4JJavaError() | PySparkException():
            said = _spark(error)
        case Py4JError() | ConnectionError():
            said = "Spark's Java process is gone, killed or out of memory"
        case _:
            said = f"{type(error).__name__}: {one_line(str(error))}"
    return (
        f"{said}. Nothing is lost: the batch is in the checkpoint and comes again. Mend the"
        f" cause and start again; {DETAILS}."
    )


def one_line(text: str) -> str:
    """Return a text on one line, without a password and without a full stop at the end."""
    return redact(" ".join(text.split())).rstrip(".")


def _spark(error: Py4JJavaError | PySparkException) -> str:
    messages = _messages(error)
    for message in messages:
        if "Traceback (most recent call last)" in message:
            return one_line(_python(message))
    named = next((message for message in messages if _NAMED.match(message)), messages[0])
    said = one_line(_SQLSTATE.sub("", _NAMED.sub("", named)))
    deepest = one_line(messages[-1])
    return said if deepest in one_line(named) or "MISMATCH" in named else f"{said}: {deepest}"


def _messages(error: Py4JJavaError | PySparkException) -> list[str]:
    """Return what each throwable of the chain says, the outermost first."""
    throwable: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    messages: list[str] = []
    while throwable is not None and len(messages) < _CAUSES_MAX:
        messages.append(throwable.getMessage() or throwable.getClass().getSimpleName())
        throwable = throwable.getCause()
    return messages or [str(error)]


def _python(traceback: str) -> str:
    """Return the last error of a traceback, without the path of its class."""
    for line in reversed(traceback.splitlines()):
        match = _PYTHON_ERROR.match(line)
        if match:
            return f"{match[1].rpartition('.')[2]}: {match[2]}"
    return traceback

import inspect

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from holdfast.sink import errors as sink_errors
from holdfast.spark_app.command.cli import run_job
from holdfast.spark_app.command.values import mebibytes
from holdfast.spark_app.exposure import errors as exposure_errors
from holdfast.spark_app.lifecycle.failure import (
    _PERMANENT_NAMES,
    Cause,
    Failure,
    _python,
    diagnose,
    one_line,
)
from holdfast.spark_app.lifecycle.supervisor import MAX_RESTARTS
from holdfast.spark_app.runtime import session

PERMANENT = [
    *("ReplayDiverged", "Fenced", "UnadoptedCheckpoint"),
    *("SchemaMismatch", "BatchTooLarge", "NotStreaming"),
    *("StateError", "StateTooNew", "PolicyError", "RowsError", "ExposureOverflow"),
]


def test_what_a_restart_cannot_heal_is_known_by_its_name() -> None:
    assert set(PERMANENT) <= _PERMANENT_NAMES
    assert all(hasattr(sink_errors, name) or hasattr(exposure_errors, name) for name in PERMANENT)
    assert "SinkUnavailable" not in _PERMANENT_NAMES


FRAME = """Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
    ~~~~~~~^^
"""
AND_THEN = "\nDuring handling of the above exception, another exception occurred:\n\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (FRAME + "KeyError: 'x'\n", "KeyError: 'x'"),
        (FRAME + "EOFError\n\n\tat org.apache.spark.Some.java(1)", "EOFError"),
        (FRAME + "a.b.MemoryError\n", "MemoryError"),
        (FRAME + "ValueError: one\ntwo: three\nfour", "ValueError: one"),
        (FRAME + "KeyError: 'x'\n" + AND_THEN + FRAME + "EOFError\n", "EOFError"),
        (FRAME + "EOFError\n" + AND_THEN + FRAME + "KeyError: 'x'\n", "KeyError: 'x'"),
        (FRAME, "an error of Python code that has no name"),
    ],
)
def test_error_of_a_python_process_is_its_last_one_without_its_stack(text: str, said: str) -> None:
    """What the JVM hands on of a worker's error is its traceback as text."""
    about = "An exception was thrown from the Python worker:\n" + text
    assert _python(about) == (said.partition(":")[0] if text != FRAME else "", said)


def test_a_database_that_is_away_may_come_back_and_another_driver_may_not() -> None:
    away = diagnose(sink_errors.SinkUnavailable("nobody answers. Nothing was written"))
    assert (away.cause, away.permanent) == (Cause.DATABASE, False)
    assert away.message == "SinkUnavailable: nobody answers. Nothing was written"
    fenced = diagnose(sink_errors.Fenced("a newer run owns the stream"))
    assert fenced.permanent


def test_a_python_process_that_starts_too_late_is_named_and_tried_again() -> None:
    late = diagnose(PySparkException("[X] Python worker failed to connect back. SQLSTATE: XXKST"))
    assert (late.cause, late.permanent) == (Cause.WORKER, False)
    assert "too busy" in late.message


def test_with_a_dead_jvm_all_else_that_was_said_is_beside_the_point() -> None:
    died = diagnose(RuntimeError("an answer that makes no sense"), jvm_gone=True)
    assert (died.cause, died.permanent) == (Cause.JAVA, False)
    assert died == diagnose(ConnectionRefusedError()) == diagnose(Py4JNetworkError())
    assert "Java process" in died.message
    assert "Nothing is lost" in died.message


def test_a_database_that_is_away_is_named_also_when_the_jvm_died_with_it() -> None:
    both = diagnose(sink_errors.SinkUnavailable("nobody answers"), jvm_gone=True)
    assert both.cause is Cause.DATABASE


def test_the_jvm_of_spark_submit_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert diagnose(ConnectionRefusedError()).permanent


def test_an_error_of_our_own_code_is_tried_again() -> None:
    assert not diagnose(ZeroDivisionError("x")).permanent
    assert diagnose(exposure_errors.StateTooNew("written by a newer version")).permanent


def test_the_command_has_the_defaults_of_the_code() -> None:
    defaults = {
        name: parameter.default for name, parameter in inspect.signature(run_job).parameters.items()
    }
    assert defaults["max_restarts"] == MAX_RESTARTS
    assert mebibytes(defaults["state_memory"]) == session.STATE_MEMORY_MB


def test_a_message_of_a_task_comes_without_its_stack() -> None:
    said = "Lost task 0.0: java.io.IOException: Mkdirs failed\n\tat org.apache.hadoop.A.b(A.java:1)"
    assert one_line(said) == "Lost task 0.0: java.io.IOException: Mkdirs failed"


def test_connection_that_failed_is_said_without_an_address_to_read_on() -> None:
    said = (
        "Call From here/127.0.0.1 to namenode:8020 failed on connection exception:"
        " java.net.ConnectException: Connection refused"
    )
    more = "; For more details see:  http://wiki.apache.org/hadoop/ConnectionRefused"
    assert one_line(said + more) == said


class _Throwable:
    """What Spark hands on of an error in Java."""

    def __init__(self, name: str, message: str, cause: "_Throwable | None" = None) -> None:
        self._name, self._message, self._cause = name, message, cause

    def getClass(self) -> "_Throwable":  # noqa: N802 - as in Java
        return self

    def getName(self) -> str:  # noqa: N802 - as in Java
        return self._name

    def getMessage(self) -> str:  # noqa: N802 - as in Java
        return self._message

    def getCause(self) -> "_Throwable | None":  # noqa: N802 - as in Java
        return self._cause

    def getStackTrace(self) -> list[object]:  # noqa: N802 - as in Java
        return []


def _failed(*chain: tuple[str, str]) -> Failure:
    cause: _Throwable | None = None
    for name, message in reversed(chain):
        cause = _Throwable(name, message, cause)
    error = PySparkException("the query failed")
    error._origin = cause  # type: ignore[attr-defined]
    return diagnose(error)


HANDSHAKE = ("javax.net.ssl.SSLHandshakeException", "Remote host terminated the handshake")


def test_an_error_of_another_system_is_not_one_of_kafka() -> None:
    store = _failed(("software.amazon.awssdk.core.exception.SdkClientException", "x"), HANDSHAKE)
    assert (store.cause, store.permanent) == (Cause.QUERY, False)
    assert "--kafka-option" not in store.message
    refused = _failed(("org.apache.hadoop.security.authorize.AuthorizationException", "no"))
    assert not refused.permanent


def test_an_error_within_a_client_of_kafka_is_one_of_kafka() -> None:
    tls = _failed(("org.apache.kafka.common.errors.SslAuthenticationException", "x"), HANDSHAKE)
    assert (tls.cause, tls.permanent) == (Cause.KAFKA, True)
    said = "Cannot fetch record for offset 150 in 60000 milliseconds"
    late = _failed(("java.util.concurrent.TimeoutException", said))
    assert (late.cause, late.permanent) == (Cause.KAFKA, False)

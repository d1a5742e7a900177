"""What a failed query is, and what is done about it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException
from tenacity import wait_fixed, wait_none

from holdfast.sink import errors as sink_errors
from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.command.options import JobOptions
from holdfast.spark_app.command.values import mebibytes
from holdfast.spark_app.exposure import errors as exposure_errors
from holdfast.spark_app.lifecycle.failure import (
    _PERMANENT_NAMES,
    Cause,
    Failure,
    QueryFailed,
    _python,
    diagnose,
    one_line,
)
from holdfast.spark_app.lifecycle.supervisor import FILE_RESTARTS, MAX_RESTARTS, supervise
from holdfast.spark_app.runtime import session

GONE = Failure(Cause.JAVA, "Java is gone")
BROKEN = Failure(Cause.FILE, "a file is broken")
DIVERGED = Failure(Cause.DATABASE, "ReplayDiverged: other rows", permanent=True, guided=True)


class _Query:
    """Fails as the list says, then ends well."""

    def __init__(self, *failures: Failure, wrote: Callable[[int], bool] = lambda _: False) -> None:
        self.failures = list(failures)
        self.wrote = wrote
        self.starts = 0

    def __call__(self) -> None:
        self.starts += 1
        if self.failures:
            raise QueryFailed(self.failures.pop(0), wrote=self.wrote(self.starts))


def _supervise(query: Callable[[], None], stop: Event | None = None, **settings: int) -> None:
    supervise(query, stop=stop or Event(), pause=wait_none(), **settings)


def test_failed_query_is_started_until_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    query = _Query(GONE, GONE)
    _supervise(query)
    assert query.starts == 3
    assert capsys.readouterr().err.splitlines() == [
        "restart=1 in=0.0s reason=Java is gone",
        "restart=2 in=0.0s reason=Java is gone",
    ]


def test_final_failure_ends_the_job_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    query = _Query(DIVERGED)
    with pytest.raises(CommandError, match=r"^ReplayDiverged: other rows$"):
        _supervise(query)
    assert query.starts == 1
    assert capsys.readouterr().err == ""


def test_it_gives_up_after_so_many_failures_in_a_row() -> None:
    query = _Query(*[GONE] * 100)
    with pytest.raises(CommandError, match=r"Java is gone.* Gave up after 8 restarts"):
        _supervise(query)
    assert query.starts == MAX_RESTARTS + 1


def test_a_broken_file_is_reported_sooner() -> None:
    query = _Query(*[BROKEN] * 100)
    with pytest.raises(CommandError, match=r"a file is broken"):
        _supervise(query)
    assert query.starts == FILE_RESTARTS + 1


def test_unreadable_file_is_retried_after_other_failures() -> None:
    query = _Query(*[GONE] * FILE_RESTARTS, BROKEN)
    _supervise(query)
    assert query.starts == FILE_RESTARTS + 2


def test_without_restarts_the_first_failure_ends_the_job() -> None:
    query = _Query(GONE)
    with pytest.raises(CommandError) as raised:
        _supervise(query, max_restarts=0)
    assert query.starts == 1
    assert str(raised.value) == GONE.message


def test_written_batch_resets_the_count() -> None:
    query = _Query(*[GONE] * 10, wrote=lambda start: start % 3 == 0)
    _supervise(query, max_restarts=3)
    assert query.starts == 11
    stuck = _Query(*[GONE] * 10, wrote=lambda start: start == 1)
    with pytest.raises(CommandError):
        _supervise(stuck, max_restarts=3)
    assert stuck.starts == 4


def test_other_errors_come_out_as_they_are() -> None:
    def refused() -> None:
        raise CommandError("begun with other settings", code="other_settings")

    with pytest.raises(CommandError, match=r"^begun with other settings$"):
        _supervise(refused)


def test_stop_during_the_pause_prevents_a_restart() -> None:
    query, stop, paused = _Query(GONE), Event(), Event()
    running = Thread(
        target=supervise,
        args=(query,),
        kwargs={"stop": stop, "pause": wait_fixed(600), "on_restart": lambda _: paused.set()},
    )
    running.start()
    assert paused.wait(30)
    stop.set()
    running.join(30)
    assert not running.is_alive()
    assert query.starts == 1


def test_failure_after_the_stop_is_reported_and_not_retried() -> None:
    stop = Event()

    def query() -> None:
        stop.set()
        raise QueryFailed(GONE, wrote=False)

    with pytest.raises(CommandError) as raised:
        _supervise(query, stop)
    assert str(raised.value) == GONE.message


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
    ("text", "message"),
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
def test_python_error_is_reported_without_its_stack(text: str, message: str) -> None:
    """What the JVM hands on of a worker's error is its traceback as text."""
    about = "An exception was thrown from the Python worker:\n" + text
    assert _python(about) == (message.partition(":")[0] if text != FRAME else "", message)


def test_database_outage_is_retried_and_a_second_driver_is_not() -> None:
    away = diagnose(sink_errors.SinkUnavailable("nobody answers. Nothing was written"))
    assert (away.cause, away.permanent) == (Cause.DATABASE, False)
    assert away.message == "SinkUnavailable: nobody answers. Nothing was written"
    fenced = diagnose(sink_errors.Fenced("a newer run owns the stream"))
    assert fenced.permanent


def test_slow_python_start_is_named_and_retried() -> None:
    late = diagnose(PySparkException("[X] Python worker failed to connect back. SQLSTATE: XXKST"))
    assert (late.cause, late.permanent) == (Cause.WORKER, False)
    assert "too busy" in late.message


def test_dead_jvm_is_reported_before_other_errors() -> None:
    died = diagnose(RuntimeError("an answer that makes no sense"), jvm_gone=True)
    assert (died.cause, died.permanent) == (Cause.JAVA, False)
    assert died == diagnose(ConnectionRefusedError()) == diagnose(Py4JNetworkError())
    assert "Java process" in died.message
    assert "Nothing is lost" in died.message


def test_database_outage_is_named_even_if_the_jvm_died() -> None:
    both = diagnose(sink_errors.SinkUnavailable("nobody answers"), jvm_gone=True)
    assert both.cause is Cause.DATABASE


def test_the_jvm_of_spark_submit_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert diagnose(ConnectionRefusedError()).permanent


def test_an_error_of_our_own_code_is_tried_again() -> None:
    assert not diagnose(ZeroDivisionError("x")).permanent
    assert diagnose(exposure_errors.StateTooNew("written by a newer version")).permanent


def test_the_command_has_the_defaults_of_the_code() -> None:
    options = JobOptions(checkpoint="ck", stream="payouts", policy=Path("policy.toml"))
    assert options.max_restarts == MAX_RESTARTS
    assert mebibytes(options.state_memory) == session.STATE_MEMORY_MB


def test_a_message_of_a_task_comes_without_its_stack() -> None:
    message = (
        "Lost task 0.0: java.io.IOException: Mkdirs failed\n\tat org.apache.hadoop.A.b(A.java:1)"
    )
    assert one_line(message) == "Lost task 0.0: java.io.IOException: Mkdirs failed"


def test_failed_connection_is_reported_without_an_address() -> None:
    message = (
        "Call From here/127.0.0.1 to namenode:8020 failed on connection exception:"
        " java.net.ConnectException: Connection refused"
    )
    more = "; For more details see:  http://wiki.apache.org/hadoop/ConnectionRefused"
    assert one_line(message + more) == message


class _Throwable:
    """What Spark hands on of an error in Java."""

    frames: Sequence[str] = ()

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

    def getStackTrace(self) -> list["_Frame"]:  # noqa: N802 - as in Java
        return [_Frame(name) for name in self.frames]


class _Frame(NamedTuple):
    name: str

    def getClassName(self) -> str:  # noqa: N802 - as in Java
        return self.name


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
    message = "Cannot fetch record for offset 150 in 60000 milliseconds"
    late = _failed(("java.util.concurrent.TimeoutException", message))
    assert (late.cause, late.permanent) == (Cause.KAFKA, False)


RUNNER = "org.apache.spark.sql.execution.python.PythonArrowOutput$$anon$1"
RESET = "java.net.SocketException"


@pytest.mark.parametrize(
    ("name", "frames", "cause"),
    [
        ("java.io.EOFException", ("java.io.DataInputStream", RUNNER), Cause.WORKER),
        (RESET, ("sun.nio.ch.NioSocketImpl", "java.io.DataInputStream", RUNNER), Cause.WORKER),
        (RESET, ("org.apache.arrow.vector.ipc.WriteChannel", RUNNER), Cause.WORKER),
        (
            "java.io.EOFException",
            ("org.apache.hadoop.io.compress.DecompressorStream", "java.io.InputStream", RUNNER),
            Cause.QUERY,
        ),
        ("java.io.EOFException", ("java.io.DataInputStream",), Cause.QUERY),
    ],
)
def test_worker_died_if_the_exchange_with_it_broke(
    name: str, frames: tuple[str, ...], cause: Cause
) -> None:
    error = PySparkException("the query failed")
    thrown = _Throwable(name, "Unexpected end of input stream")
    thrown.frames = frames
    error._origin = thrown  # type: ignore[attr-defined]
    assert diagnose(error).cause is cause

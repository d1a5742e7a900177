"""What a process reads of its environment and what it writes: DSN, failpoints, spans, errors."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from select import POLLOUT
from threading import Thread

import pytest
from opentelemetry import trace

from holdfast.sink.contract import failpoints
from holdfast.sink.contract.dsn import redact
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.failpoints import FailpointHit, failpoint
from holdfast.sink.contract.standard_error import StandardError
from holdfast.sink.contract.trace_export import exported_spans
from tests.support.dispatch.dispatching import tracing
from tests.support.documents.pages import ROOT


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://app:hunter2@db:5432/holdfast",
        "postgresql://app:x@hunter2@db:5432/holdfast",
        "postgresql://app:x/hunter2@db:5432/holdfast",
        "postgres://app:hunter2@db/holdfast?sslmode=require",
        "postgresql://db/holdfast?user=app&password=hunter2&sslmode=require",
        "host=db password=hunter2 dbname=holdfast",
        "host=db password = 'hunter2' dbname=holdfast",
        r"host=db password='it\'s hunter2' dbname=holdfast",
        'connection failed: "postgresql://app:hunter2@db/x"',
    ],
)
def test_password_is_replaced(dsn: str) -> None:
    shown = redact(dsn)
    assert "hunter2" not in shown
    assert "***" in shown


def test_everything_else_stays() -> None:
    assert redact("host=/tmp/socket dbname=holdfast") == "host=/tmp/socket dbname=holdfast"


PACKAGES = ("sink", "dispatcher", "spark_app", "deploy", "migrations")


@pytest.fixture(autouse=True)
def _fresh_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failpoints, "_passed", {})


def test_unarmed_point_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failpoints, "_armed", None)
    assert failpoint("S1") is None


def test_armed_point_acts_on_its_turn_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failpoints, "_armed", "S1=raise@2;S2=raise")
    assert failpoint("S1") is None
    with pytest.raises(FailpointHit, match="S1"):
        failpoint("S1")
    assert failpoint("S1") is None
    with pytest.raises(FailpointHit, match="S2"):
        failpoint("S2")


def test_misspelt_action_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(failpoints, "_armed", f"S1=explode:{tmp_path}")
    with pytest.raises(ValueError, match="explode"):
        failpoint("S1")


def test_every_point_is_documented_and_named_by_a_test() -> None:
    sources = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    called = re.compile(r'\bfailpoint\(f?"([A-Z]\d+)')
    points = {name for path in sources for name in called.findall(path.read_text())}
    page = (ROOT / "docs" / "failures.md").read_text()
    rows = " ".join(re.findall(r"^\| ([^|]*[A-LN-Z]\d[^|]*) \|", page, re.MULTILINE))
    assert set(re.findall(r"\b[A-LN-Z]\d+\b", rows)) == points
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    assert {each for each in points if not re.search(rf"\b{each}\b", tests)} == set()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def test_room_that_another_process_took_is_not_waited_for(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = pipe

    class Taken:
        def poll(self, _milliseconds: int) -> list[tuple[int, int]]:
            os.set_blocking(writer, False)
            try:
                while os.write(writer, b"x" * 4096):
                    pass
            except BlockingIOError:
                os.set_blocking(writer, True)
            return [(writer, POLLOUT)]

    output = StandardError(writer)
    monkeypatch.setattr(output, "_room", Taken())
    writing = Thread(target=output.write, args=(b"a line\n",), daemon=True)
    writing.start()
    writing.join(5)
    waits = writing.is_alive()
    os.read(reader, 1 << 20)
    writing.join(60)
    assert not waits
    assert output.dropped == 1
    assert os.get_blocking(writer), "the other processes write as before"


def test_line_that_is_written_in_pieces_is_one_line(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    output = StandardError(writer)
    for piece in (b"a ", b"line", b"\n", b"another\n"):
        output.write(piece)  # as `print` does
    assert os.read(reader, 1 << 10) == b"a line\nanother\n"


LOADED = """
import sys
from holdfast.sink.contract.trace_export import exported_spans
with exported_spans("test"):
    print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


def test_opentelemetry_is_not_loaded_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_TRACES_EXPORTER", raising=False)
    done = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_missing_package_is_reported_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    missing = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(CommandError, match=r"holdfast\[otlp\]") as raised, exported_spans("test"):
        pass
    assert raised.value.exit_code is ExitCode.USAGE


def test_program_that_has_an_sdk_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    with tracing() as spans:
        before = trace.get_tracer_provider()
        with exported_spans("test"):
            assert trace.get_tracer_provider() is before
            trace.get_tracer("test").start_span("after").end()
        assert spans.one.name == "after"

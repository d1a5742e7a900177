"""Spans are exported where the environment asks for it, and nothing is loaded elsewhere."""

import subprocess
import sys

import pytest
from opentelemetry import trace

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.trace_export import exported_spans
from tests.support.dispatch.tracing import tracing

LOADED = """
import sys
from holdfast.sink.contract.trace_export import exported_spans
with exported_spans("test"):
    print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


def test_nothing_of_opentelemetry_is_loaded_where_nobody_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OTEL_TRACES_EXPORTER", raising=False)
    done = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_missing_package_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    missing = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(CommandError, match=r"holdfast\[otlp\]") as found, exported_spans("test"):
        pass
    assert found.value.exit_code is ExitCode.USAGE


def test_program_that_has_an_sdk_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    with tracing() as spans:
        before = trace.get_tracer_provider()
        with exported_spans("test"):
            assert trace.get_tracer_provider() is before
            trace.get_tracer("test").start_span("after").end()
        assert spans.one.name == "after"

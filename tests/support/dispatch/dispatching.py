"""Dispatchers for tests: in this process, or as the real command in another."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler

from holdfast.dispatcher.delivery.repeat_check import RepeatChecker
from holdfast.dispatcher.delivery.service import Dispatcher, Report
from holdfast.dispatcher.delivery.settings import Settings
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.outbound.reference_rule import rule_of
from holdfast.dispatcher.outbound.transport.engines import EngineName, open_transport
from holdfast.sink.contract.failpoints import ENVIRONMENT
from tests.support.dispatch.sender import secret_text
from tests.support.waiting import eventually

SECRET = "HOLDFAST_SECRET_TEST"
LOOPBACK = "127.0.0.0/8"


def add_endpoint(db: psycopg.Connection, url: str, **columns: Any) -> int:
    """Add an endpoint that may be on this machine.

    Retries are due at once, timeouts are short, and no breaker opens.
    """
    row = {
        "name": "payouts",
        "url": url,
        "secret_refs": [f"env:{SECRET}"],
        "allow_cidrs": [LOOPBACK],
        "connect_timeout_ms": 1000,
        "total_timeout_ms": 2000,
        "schedule_seconds": [0] * 10,
        "breaker_threshold": 0,
        **columns,
    }
    names = ", ".join(row)
    values = ", ".join(f"%({name})s" + _CASTS.get(name, "") for name in row)
    query = f"INSERT INTO holdfast.endpoint ({names}) VALUES ({values}) RETURNING id"
    (endpoint_id,) = db.execute(query.encode(), row).fetchone() or (0,)
    db.execute("SELECT pg_notify('holdfast_doorbell', 'changed')")  # as `endpoint add` does
    return int(endpoint_id)


_CASTS = {
    "allow_cidrs": "::cidr[]",
    "order_policy": "::holdfast.order_policy",
    "state": "::holdfast.endpoint_state",
}


def settings(dsn: str, **changes: Any) -> Settings:
    """Settings of a dispatcher that drains."""
    ours = {"dsn": dsn, "drain": True, "stop_seconds": 10.0, "references": rule_of(os.environ)}
    return Settings(**{**ours, **changes})


def drain(dsn: str, *, engine: EngineName = "auto", **changes: Any) -> Report:
    """Run a dispatcher in this process until nothing is left that can be sent now."""
    return asyncio.run(_run(settings(dsn, **changes), engine))


async def _run(value: Settings, engine: EngineName) -> Report:
    store, transport = PostgresStore(value.dsn), open_transport(engine, value.ca_file)
    checker = RepeatChecker(value.ca_file)
    try:
        await store.open()
        return await Dispatcher(value, store, transport, check_repeat=checker.check).run()
    finally:
        await checker.close()
        await transport.close()
        await store.close()


class Process:
    """`holdfast dispatch` in a process of its own, with its log."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    def lines(self, what: str | None = None) -> list[dict[str, Any]]:
        """The log so far, or its lines of one name."""
        # A line may be half written while it is read.
        full = self._log.read_text().rpartition("\n")[0]
        lines = [json.loads(line) for line in full.splitlines() if line.startswith("{")]
        return [line for line in lines if what is None or line["what"] == what]

    def text(self) -> str:
        """Everything that it wrote to its standard error."""
        return self._log.read_text()

    def says(self, what: str) -> None:
        """Wait until it has written a line of this name."""
        self.until(lambda: self.lines(what))

    def send(self, number: signal.Signals) -> None:
        """Send a signal to this very process."""
        os.kill(self.process.pid, number)

    def terminate(self) -> None:
        """Stop it (SIGTERM)."""
        self.send(signal.SIGTERM)

    def go_on(self) -> None:
        """Resume it after it was stopped (SIGCONT)."""
        self.send(signal.SIGCONT)

    def until(self, condition: Callable[[], object]) -> None:
        """Wait for a condition, as long as the process lives."""
        eventually(lambda: condition() or self.process.poll() is not None)
        assert condition(), self.text()

    def stands_still(self) -> None:
        """Wait until a failpoint has stopped it (SIGSTOP)."""
        self.until(lambda: _state(self.process.pid) == "T")

    def ends(self, seconds: float = 60) -> int:
        """Wait for its end; returns the exit code."""
        return self.process.wait(seconds)


@contextmanager
def dispatching(
    dsn: str,
    log: Path,
    *options: str,
    engine: EngineName | None = None,
    failpoints: str = "",
    environment: Mapping[str, str] | None = None,
    launcher: Sequence[str] = ("holdfast.dispatcher.cli.main",),
) -> Iterator[Process]:
    """Run `holdfast dispatch OPTIONS` until the block ends; then it is gone, whatever happened.

    `launcher` is the module that starts the command, with its arguments before the command's.
    """
    variables = {
        **os.environ,
        "HOLDFAST_DSN": dsn,
        SECRET: secret_text(),
        ENVIRONMENT: failpoints,
        **(environment or {}),
    }
    command = [sys.executable, "-m", *launcher, "dispatch", *options]
    if engine is not None:
        command += ["--engine", engine]
    with log.open("wb") as stderr:
        process = subprocess.Popen(command, env=variables, stderr=stderr)
    try:
        yield Process(process, log)
    finally:
        process.kill()
        process.wait()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


class Spans:
    """The spans that came to their end, in that order."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    @property
    def ended(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    @property
    def one(self) -> ReadableSpan:
        (span,) = self.ended
        return span


@contextmanager
def tracing(sampler: Sampler = ALWAYS_ON) -> Iterator[Spans]:
    """Set an SDK up until the block ends. A program can do so once; a test takes it back."""
    provider, exporter = TracerProvider(sampler=sampler), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "_TRACER_PROVIDER", provider)
        yield Spans(exporter)
    provider.shutdown()


def header(span: ReadableSpan) -> str:
    """The W3C traceparent of a span."""
    context = span.get_span_context()
    assert context is not None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

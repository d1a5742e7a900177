"""Sends a process's spans to an OTLP receiver where the environment asks for it.

`OTEL_TRACES_EXPORTER=otlp` does; without it nothing is imported and nothing is recorded. The other
variables are those of OpenTelemetry (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER`, ...).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from holdfast.sink.contract.exits import CommandError, ExitCode

ASKED = "OTEL_TRACES_EXPORTER"
OTLP = "otlp"


@contextmanager
def exported_spans(service: str) -> Iterator[None]:
    """Export the spans of the block, by batches and in a thread of the SDK; once per process.

    `service` is the name of the service unless `OTEL_SERVICE_NAME` is set. A program that has set
    up an SDK keeps it. At the end what is left is sent. A receiver that is away costs spans, which
    the SDK logs, and nothing else. Raises CommandError where the SDK is not installed.
    """
    if os.environ.get(ASKED, "").strip().lower() != OTLP:
        yield
        return
    provider = _provider(service)
    try:
        yield
    finally:
        if provider is not None:
            provider.shutdown()


def _provider(service: str) -> Any:
    """The provider that is now the process's; None where it has one already."""
    try:
        api = import_module("opentelemetry.trace")
        sdk = import_module("opentelemetry.sdk.trace")
        processors = import_module("opentelemetry.sdk.trace.export")
        resources = import_module("opentelemetry.sdk.resources")
        exporter = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ModuleNotFoundError as error:
        raise CommandError(
            f"{ASKED}={OTLP} needs the package {error.name}, which is not installed:"
            " pip install '/path/to/holdfast[otlp]'. Nothing was started.",
            ExitCode.USAGE,
            code="package_missing",
        ) from None
    if not isinstance(api.get_tracer_provider(), api.ProxyTracerProvider):
        return None
    name = os.environ.get("OTEL_SERVICE_NAME") or service
    resource = resources.Resource.create({"service.name": name})
    provider = sdk.TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(processors.BatchSpanProcessor(exporter.OTLPSpanExporter()))
    api.set_tracer_provider(provider)
    return provider

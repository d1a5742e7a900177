"""The environment of this process: versions, the HTTP engine, and the references of endpoints."""

import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from holdfast.dispatcher.operators.config.rules import References
from holdfast.dispatcher.outbound.endpoint import endpoint_of
from holdfast.dispatcher.outbound.reference_rule import (
    ALLOW_DIR,
    ALLOW_PREFIX,
    ReferenceRule,
    references_of,
    rule_of,
)
from holdfast.sink.contract.exits import CommandError, ExitCode

PACKAGES = (
    *("psycopg", "typer", "httpx", "httptools", "uvloop", "structlog", "alembic", "sqlalchemy"),
    *("fastapi", "uvicorn", "pyspark", "pyarrow", "numpy"),
)
"""The packages that determine the behaviour; each belongs to an extra."""


def versions(libpq: str) -> dict[str, str | None]:
    """Return the installed versions by name; None: not installed."""
    installed: dict[str, str | None] = {"holdfast": _version("holdfast")}
    installed |= {"python": platform.python_version(), "libpq": libpq}
    return installed | {package: _version(package) for package in PACKAGES}


def engine() -> tuple[str | None, str | None]:
    """Return the engine that `--engine auto` selects here, or None and the reason."""
    try:
        from holdfast.dispatcher.outbound.transport.httpx_engine import HttpxTransport  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        return None, f"the package {error.name} is not installed"
    from holdfast.dispatcher.outbound.transport.engines import open_transport  # noqa: PLC0415 - as above

    # Neither engine connects before it sends, so there is nothing to close.
    if isinstance(open_transport(), HttpxTransport):
        return f"httpx {_version('httpx')}", None
    return f"asyncio, httptools {_version('httptools')}", None


def reference_rule() -> ReferenceRule:
    """Return the rule for the references that this process resolves; raises `CommandError`."""
    try:
        return rule_of(os.environ)
    except ValueError as error:
        raise CommandError(
            f"{error}. Nothing was changed; correct {ALLOW_PREFIX} or {ALLOW_DIR}, or unset it.",
            ExitCode.USAGE,
            code="invalid_setting",
        ) from None


def reference_fault(settings: Mapping[str, Any]) -> str | None:
    """Return why a reference of an endpoint is not allowed here, or None; raises `CommandError`."""
    named = references_of(settings)
    return reference_rule().fault_of(named) if named else None


def references(rows: Sequence[Mapping[str, Any]]) -> list[References]:
    """Read the references of each endpoint; blocks on files. Returns none of the content."""
    try:
        from holdfast.dispatcher.outbound.secrets import read_material  # noqa: PLC0415 - needs an extra
    except ModuleNotFoundError:
        return []
    try:
        rule = rule_of(os.environ)
    except ValueError as error:
        return [References(row["name"], str(error), ()) for row in rows]
    read = []
    for row in rows:
        material = read_material(endpoint_of(row), rule)
        read.append(References(row["name"], material.fault, material.exposed))
    return read


def variables(rows: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the names of the environment variables that endpoints refer to."""
    named = [each for row in rows for each in references_of(row)]
    return {text.removeprefix("env:") for text in named if text.startswith("env:")}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None

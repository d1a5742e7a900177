"""Settings of an endpoint from a program: by column, each checked, then all together."""

from collections.abc import Mapping
from typing import Any

from holdfast.dispatcher.operators.config.environment import reference_fault
from holdfast.dispatcher.operators.endpoints.rules import CHECKS, BadValueError, complete
from holdfast.dispatcher.operators.endpoints.store import DEFAULTS
from holdfast.sink.contract.exits import CommandError, ExitCode

MAY_BE_NONE = frozenset(column for column, value in DEFAULTS.items() if value is None)
"""Columns that null removes."""


def made(name: str, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return all settings of a new endpoint; raises `CommandError` (usage)."""
    return changed({"name": name, **DEFAULTS}, columns)


def changed(settings: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return `settings` with `columns` changed; raises `CommandError` (usage)."""
    if not columns:
        raise _usage("there is nothing to set")
    given = {name: _checked(name, value) for name, value in columns.items()}
    refuse_references(given)
    try:
        return complete({**settings, **given})
    except BadValueError as error:
        raise _usage(str(error)) from None


def refuse_references(settings: Mapping[str, Any]) -> None:
    """Raise `CommandError` (usage) for a reference that this process does not resolve."""
    if fault := reference_fault(settings):
        raise _usage(fault)


def _checked(name: str, value: object) -> Any:
    if value is None:
        if name not in MAY_BE_NONE:
            raise _usage(f"{name} cannot be null")
        return None
    try:
        return CHECKS[name](value)
    except BadValueError as error:
        raise _usage(f"{name} {error}") from None


def _usage(what: str) -> CommandError:
    return CommandError(f"{what}. Nothing was changed.", ExitCode.USAGE)

"""Settings of an endpoint from a program: by column, each checked, then all together."""

from collections.abc import Mapping
from typing import Any

from holdfast.dispatcher.operators.config.environment import reference_fault
from holdfast.dispatcher.operators.endpoints.settings import DEFAULTS, SETTINGS, complete
from holdfast.dispatcher.shared.errors import ParameterError
from holdfast.sink.contract.exits import CommandError, ExitCode


def made(name: str, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return all settings of a new endpoint; raises `CommandError` (usage)."""
    return changed({"name": name, **DEFAULTS}, columns)


def changed(settings: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return `settings` with `columns` changed; raises `CommandError` (usage)."""
    if not columns:
        raise _usage("there is nothing to set", code="missing_parameter")
    changes = {name: _checked(name, value) for name, value in columns.items()}
    refuse_references(changes)
    try:
        return complete({**settings, **changes})
    except ParameterError as error:
        raise _usage(str(error), code="invalid_value") from None


def refuse_references(settings: Mapping[str, Any]) -> None:
    """Raise `CommandError` (usage) for a reference that this process does not resolve."""
    if fault := reference_fault(settings):
        raise _usage(fault, code="reference_not_allowed")


def _checked(name: str, value: object) -> Any:
    setting = SETTINGS[name]
    if value is None and setting.is_optional:
        return None
    if value is None:
        raise _usage(f"{name} cannot be null", code="invalid_value")
    try:
        return setting.check(value)
    except ParameterError as error:
        raise _usage(f"{name} {error}", code="invalid_value") from None


def _usage(what: str, *, code: str) -> CommandError:
    return CommandError(f"{what}. Nothing was changed.", ExitCode.USAGE, code=code)

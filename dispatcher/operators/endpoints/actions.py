"""Settings of an endpoint as a person or a program gives them, checked; `CommandError` if wrong."""

from collections.abc import Callable, Mapping
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
    return completed({**settings, **changes})


def completed(settings: Mapping[str, Any], *, spell: Callable[[str], str] = str) -> dict[str, Any]:
    """Return all settings of an endpoint as they can be stored; raises `CommandError` (usage).

    `spell` writes the name of a setting as the surface does.
    """
    try:
        return complete(settings)
    except ParameterError as error:
        raise _usage(error.spelled(spell), code="invalid_value") from None


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

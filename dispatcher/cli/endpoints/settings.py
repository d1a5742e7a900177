"""The settings of an endpoint on the command line: options of `endpoint add` and `set`.

The options are made from the table of settings. `columns_of` reads and checks each value,
`complete` checks what must fit together.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any

import typer

from holdfast.dispatcher.cli.output import display
from holdfast.dispatcher.operators.endpoints.actions import completed, refuse_references
from holdfast.dispatcher.operators.endpoints.settings import SETTINGS, Form, Setting, option_of
from holdfast.dispatcher.shared.errors import ParameterError
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.numbers import milliseconds, whole_number

NONE = "none"

Options = Mapping[str, Any]
"""Values of the settings' options by parameter name; None where the option is not given."""


def _parameter(setting: Setting) -> str:
    """Return the name of the parameter, as typer passes it."""
    return setting.option.removeprefix("--").replace("-", "_")


PARAMETERS = {_parameter(each): each for each in SETTINGS.values()}
"""The settings by the name of their option's parameter."""

SHARED = {name: each for name, each in PARAMETERS.items() if not each.required}
"""Those whose option `endpoint add` and `set` share."""


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Return `command` with the options of `SHARED` in place of its parameter `options`.

    The command gets their values as a mapping by parameter name.
    """
    shared = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=_option(setting))
        for name, setting in SHARED.items()
    ]
    parameters: list[Parameter] = []
    for each in signature(command).parameters.values():
        own = each.replace(kind=Parameter.KEYWORD_ONLY)
        parameters += shared if each.name == "options" else [own]

    @wraps(command)
    def run(**values: Any) -> None:
        options = {name: values.pop(name) for name in SHARED}
        command(**values, options=options)

    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _option(setting: Setting) -> Any:
    """Return the annotation of the option's parameter."""
    type_: Any = str
    least, most = None, None
    match setting.form:
        case Form.CHOICE:
            type_ = setting.choices
        case Form.NUMBER:
            type_ = int
            least, most = setting.limits
        case Form.MILLISECONDS:
            type_ = float
        case (
            Form.TYPES
            | Form.STREAMS
            | Form.NETWORKS
            | Form.REFERENCES
            | Form.HEADERS
            | Form.LITERALS
        ):
            type_ = list[str]
    text = f"{setting.help}{setting.option_help}.{_default(setting)}"
    return Annotated[type_ | None, typer.Option(setting.option, min=least, max=most, help=text)]


def _default(setting: Setting) -> str:
    match setting.form, setting.default:
        case _, None | [*_] | {}:
            return ""
        case Form.MILLISECONDS, default:
            return f" Default: {default / 1000:g}."
        case Form.SECONDS, default:
            return f" Default: {_duration(default)}."
        case _, default:
            return f" Default: {default}."


def _duration(seconds: int) -> str:
    """Return a duration as an option is written, in the largest unit that counts more than one."""
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds % length == 0 and seconds > length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def columns_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that `options`, values by parameter name, set; each is checked.

    A header to be removed has an empty value. Raises `CommandError` (usage), also for a reference
    that is not allowed on this machine.
    """
    columns: dict[str, Any] = {}
    for name, value in options.items():
        setting = PARAMETERS.get(name)
        if setting is not None and value is not None and value != []:
            columns[setting.column] = _checked(setting, _read(setting, value))
    refuse_references(columns)
    return columns


def _read(setting: Setting, value: Any) -> Any:
    """Return the value of an option in the column's unit; None and [] remove what is stored."""
    if value == NONE and setting.is_optional:
        return None
    match setting.form:
        case Form.NETWORKS:
            return [] if [*value] == [NONE] else [*value]
        case Form.HEADERS | Form.LITERALS:
            return _headers(setting.option, value)
        case Form.CHOICE:
            return str(value)
        case Form.MILLISECONDS:
            return _milliseconds(value)
        case Form.SECONDS:
            return _seconds(setting.option, value)
        case Form.DELAYS:
            return _schedule(value)
    return value


def _checked(setting: Setting, value: Any) -> Any:
    if value is None or value == []:
        return value
    removed = {}
    if setting.form is Form.HEADERS:
        removed = {name: text for name, text in value.items() if not text}
        value = {name: text for name, text in value.items() if text}
    try:
        checked = setting.check(value)
    except ParameterError as error:
        raise usage(f"{setting.option} {_fault(setting, error)}.", code="invalid_value") from None
    return {**checked, **removed} if removed else checked


def _fault(setting: Setting, error: ParameterError) -> str:
    """Return what a value must be, in the unit in which the option is written."""
    match setting.form:
        case Form.MILLISECONDS:
            least, most = (limit / 1000 for limit in setting.limits)
            return f"must be {least:g} to {most:g} seconds"
        case Form.SECONDS | Form.DELAYS:
            return f"{error.spelled(option_of)} seconds"
    return error.spelled(option_of)


def complete(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of an endpoint as they can be stored; raises `CommandError`."""
    return completed(settings, spell=option_of)


def usage(message: str, *, code: str) -> CommandError:
    """Return the error for an invalid argument."""
    return CommandError(f"{message} Nothing was changed.", ExitCode.USAGE, code=code)


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return one line for each setting that differs."""
    return [
        f"{column.replace('_', ' ')}: {setting_text(value)} -> {setting_text(after[column])}"
        for column, value in before.items()
    ]


def note_unknown(columns: Mapping[str, Any], known: Mapping[str, Sequence[str]]) -> None:
    """Print a note for each type and stream in `columns` that `known` does not have.

    It may be right: the job that writes it may only start later.
    """
    for column, names in known.items():
        for name in columns.get(column) or ():
            if name not in names:
                near = get_close_matches(name, names, 3)
                hint = f" Did you mean {' or '.join(near)}?" if near else ""
                typer.echo(
                    f"note: no stored entry of {column.removesuffix('s')} {name} is known yet; only"
                    f" entries of exactly this one will be delivered.{hint}",
                    err=True,
                )


def _milliseconds(seconds: float) -> int:
    with suppress(ValueError, OverflowError):  # nan, inf
        return round(seconds * 1000)
    return -1


def setting_text(value: Any) -> str:
    """Return a setting's value as text; `-` for none and for an empty list."""
    match value:
        case list():
            return ", ".join(display(each) for each in value) or "-"
        case dict():
            return ", ".join(f"{key}={display(each)}" for key, each in value.items()) or "-"
        case _:
            return display(value)


def checked_secret_ref(ref: str) -> str:
    """Return the reference of a new signing secret (`--to`); raises `CommandError`."""
    try:
        [checked] = SETTINGS["secret_refs"].check([ref])
    except ParameterError as error:
        raise usage(f"--to {error}.", code="invalid_value") from None
    return str(checked)


def _headers(option: str, texts: Sequence[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        name = name.lower()
        if not separator:
            raise usage(f"{option} must be NAME=VALUE.", code="invalid_value")
        if name in headers:
            raise usage(f"{option} {name} is given twice.", code="invalid_value")
        headers[name] = value
    return headers


def _schedule(schedule: str) -> list[int]:
    try:
        return [whole_number(part.strip(" ")) for part in schedule.split(",")]
    except ValueError:
        raise usage(
            "--schedule must be whole seconds, comma-separated.", code="invalid_value"
        ) from None


def _seconds(option: str, text: str) -> int:
    """Read `90s`, `90m`, `12h` or `5d`."""
    try:
        return milliseconds(text, units="s m h d") // 1000
    except ValueError:
        raise usage(
            f"{option} must be a time such as 90s, 5m, 12h or 5d.",
            code="invalid_value",
        ) from None

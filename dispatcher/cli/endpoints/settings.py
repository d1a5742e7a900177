"""The settings of an endpoint: the options of `endpoint add` and `set`, and how they are checked.

`given` checks each value, `whole` checks what must fit together.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, NamedTuple

import typer

from holdfast.dispatcher.cli.output import display
from holdfast.dispatcher.operators.config.environment import reference_fault
from holdfast.dispatcher.operators.endpoints.rules import CHECKS, BadValueError, complete
from holdfast.dispatcher.outbound.operator_headers import LITERALS
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.numbers import milliseconds, whole_number
from holdfast.sink.contract.states import EnvelopeStyle, OrderPolicy

KNOWN_TYPES = ("payout_hold.block", "payout_hold.release")

NONE = "none"

HEADER, LITERAL = "--header", "--header-literal"


Options = Mapping[str, Any]
"""Values of `SETTINGS` by parameter name; None where the option is not given."""


class Setting(NamedTuple):
    """An option of `endpoint add` and `set`."""

    flag: str
    column: str
    read: Callable[[Any], Any] = lambda value: value
    """Returns the column's value in its unit; None and [] remove what is stored."""

    unit: str = ""
    """Follows the text of a fault."""

    option: Any = None
    """The annotation of the parameter, where both commands share it."""


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Return `command` with the options of `SETTINGS` in place of its parameter `options`.

    The command gets their values as a mapping by parameter name.
    """
    shared = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=setting.option)
        for name, setting in SETTINGS.items()
    ]
    parameters: list[Parameter] = []
    for each in signature(command).parameters.values():
        own = each.replace(kind=Parameter.KEYWORD_ONLY)
        parameters += shared if each.name == "options" else [own]

    @wraps(command)
    def run(**values: Any) -> None:
        options = {name: values.pop(name) for name in SETTINGS}
        command(**values, options=options)

    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that `options`, values by parameter name, set; each is checked.

    A header to be removed has an empty value. Raises `CommandError` (usage), also for a reference
    that is not allowed on this machine.
    """
    columns: dict[str, Any] = {}
    for name, value in options.items():
        setting = ALL.get(name)
        if setting is not None and value is not None and value != []:
            columns[setting.column] = _checked(setting, setting.read(value))
    _note_unknown(columns.get("types", ()))
    refuse_references(columns)
    return columns


def whole(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of an endpoint as they can be stored; raises `CommandError`."""
    try:
        return complete(settings)
    except BadValueError as error:
        raise usage(f"{error}.") from None


def usage(message: str) -> CommandError:
    """Return the error for an invalid argument."""
    return CommandError(f"{message} Nothing was changed.", ExitCode.USAGE)


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return one line for each setting that differs."""
    return [
        f"{column.replace('_', ' ')}: {setting_text(value)} -> {setting_text(after[column])}"
        for column, value in before.items()
    ]


def _checked(setting: Setting, value: Any) -> Any:
    if value is None or value == []:
        return value
    removed = {}
    if setting.flag == HEADER:
        removed = {name: text for name, text in value.items() if not text}
        value = {name: text for name, text in value.items() if text}
    try:
        checked = CHECKS[setting.column](value)
    except BadValueError as error:
        said = str(error).replace(LITERALS, LITERAL)
        raise usage(f"{setting.flag} {said}{setting.unit}.") from None
    return {**checked, **removed} if removed else checked


def _note_unknown(types: Sequence[str]) -> None:
    for type_ in types:
        if type_ not in KNOWN_TYPES:
            typer.echo(
                f"note: {type_} is not a type of the exposure job; only entries of exactly this"
                " type will be delivered.",
                err=True,
            )


def _or_none(text: str) -> str | None:
    return None if text == NONE else text


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


def refuse_references(settings: Mapping[str, Any]) -> None:
    """Raise `CommandError` if a reference in these settings is not allowed on this machine."""
    if fault := reference_fault(settings):
        raise usage(f"{fault}.")


def checked_secret_ref(ref: str) -> str:
    """Return the reference of a new signing secret (`--to`); raises `CommandError`."""
    [checked] = _checked(Setting("--to", "secret_refs"), [ref])
    return str(checked)


def _headers(option: str, texts: Sequence[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for text in texts:
        given, separator, value = text.partition("=")
        name = given.lower()
        if not separator:
            raise usage(f"{option} must be NAME=VALUE.")
        if name in headers:
            raise usage(f"{option} {name} is given twice.")
        headers[name] = value
    return headers


def _schedule(schedule: str) -> list[int]:
    try:
        return [whole_number(part.strip(" ")) for part in schedule.split(",")]
    except ValueError:
        raise usage("--schedule must be whole seconds, comma-separated.") from None


def _seconds(option: str, text: str) -> int:
    """Read `90s`, `90m`, `12h` or `5d`."""
    try:
        return milliseconds(text, units="s m h d") // 1000
    except ValueError:
        raise usage(f"{option} must be a time such as 90s, 5m, 12h or 5d.") from None


SETTINGS = {
    "type_": Setting(
        "--type",
        "types",
        option=Annotated[
            list[str] | None,
            typer.Option("--type", help="A type of entries to deliver; repeatable."),
        ],
    ),
    "allow_cidr": Setting(
        "--allow-cidr",
        "allow_cidrs",
        read=lambda c: [] if [*c] == [NONE] else [*c],
        option=Annotated[
            list[str] | None,
            typer.Option(
                "--allow-cidr",
                help="A private network in which its address may be; repeatable. `set`: none"
                " removes all.",
            ),
        ],
    ),
    "header": Setting(
        HEADER,
        "headers",
        read=partial(_headers, HEADER),
        option=Annotated[
            list[str] | None,
            typer.Option(
                "--header",
                help="A header of each request: NAME=env:VAR or NAME=file:PATH; repeatable.",
            ),
        ],
    ),
    "header_literal": Setting(
        LITERAL,
        LITERALS,
        read=partial(_headers, LITERAL),
        option=Annotated[
            list[str] | None,
            typer.Option(
                "--header-literal",
                help="A header of each request: NAME=VALUE; repeatable. Stored in clear text"
                " and masked in output. Not for secrets.",
            ),
        ],
    ),
    "envelope": Setting(
        "--envelope",
        "envelope",
        read=str,
        option=Annotated[
            EnvelopeStyle | None,
            typer.Option(
                "--envelope",
                help="standard, or cloudevents: its attributes as headers. Default: standard.",
            ),
        ],
    ),
    "ca": Setting(
        "--ca",
        "ca_ref",
        read=_or_none,
        option=Annotated[
            str | None,
            typer.Option(
                "--ca",
                help="Certificate authority of the receiver (PEM): env:VAR, file:PATH or none.",
            ),
        ],
    ),
    "client_cert": Setting(
        "--client-cert",
        "client_cert_ref",
        read=_or_none,
        option=Annotated[
            str | None,
            typer.Option(
                "--client-cert", help="Client certificate (PEM): env:VAR, file:PATH or none."
            ),
        ],
    ),
    "client_key": Setting(
        "--client-key",
        "client_key_ref",
        read=_or_none,
        option=Annotated[
            str | None,
            typer.Option(
                "--client-key",
                help="Private key of the client certificate (PEM): env:VAR, file:PATH or none.",
            ),
        ],
    ),
    "total_timeout": Setting(
        "--total-timeout",
        "total_timeout_ms",
        read=_milliseconds,
        unit=" milliseconds",
        option=Annotated[
            float | None,
            typer.Option(
                "--total-timeout", help="Time limit of one attempt, in seconds. Default: 30."
            ),
        ],
    ),
    "connect_timeout": Setting(
        "--connect-timeout",
        "connect_timeout_ms",
        read=_milliseconds,
        unit=" milliseconds",
        option=Annotated[
            float | None,
            typer.Option(
                "--connect-timeout", help="Time limit to connect, in seconds. Default: 5."
            ),
        ],
    ),
    "concurrency": Setting(
        "--concurrency",
        "concurrency",
        option=Annotated[
            int | None,
            typer.Option(
                "--concurrency",
                min=1,
                max=1024,
                help="Maximum number of concurrent requests. Default: 64.",
            ),
        ],
    ),
    "rate": Setting(
        "--rate",
        "rate_per_second",
        option=Annotated[
            int | None,
            typer.Option(
                "--rate",
                min=0,
                max=2**31 - 1,
                help="Maximum number of requests per second, over all dispatchers; 0: no limit.",
            ),
        ],
    ),
    "schedule": Setting(
        "--schedule",
        "schedule_seconds",
        read=_schedule,
        unit=" seconds",
        option=Annotated[
            str | None,
            typer.Option(
                "--schedule", help="Delay before each retry, in seconds, comma-separated."
            ),
        ],
    ),
    "budget": Setting(
        "--budget",
        "budget_seconds",
        read=partial(_seconds, "--budget"),
        unit=" seconds",
        option=Annotated[
            str | None,
            typer.Option(
                "--budget",
                help="How long an entry is retried before it becomes a dead letter: 5d, 12h, 90m."
                " Default: 5d.",
            ),
        ],
    ),
    "breaker_threshold": Setting(
        "--breaker-threshold",
        "breaker_threshold",
        option=Annotated[
            int | None,
            typer.Option(
                "--breaker-threshold",
                min=0,
                max=10_000,
                help="Consecutive failures that open the breaker; 0: never. A refused address"
                " and refused credentials open it in any case. Default: 10.",
            ),
        ],
    ),
    "slow_start": Setting(
        "--slow-start",
        "slow_start_seconds",
        read=partial(_seconds, "--slow-start"),
        unit=" seconds",
        option=Annotated[
            str | None,
            typer.Option(
                "--slow-start",
                help="Duration of the slow start after the breaker closes: 60s, 5m. Default: 60s.",
            ),
        ],
    ),
    "order_policy": Setting(
        "--order-policy",
        "order_policy",
        read=str,
        option=Annotated[
            OrderPolicy | None,
            typer.Option(
                "--order-policy",
                help="Whether a lane stops at a dead letter or skips it. Default: stop.",
            ),
        ],
    ),
    "inquiry": Setting(
        "--inquiry",
        "inquiry_path",
        read=_or_none,
        option=Annotated[
            str | None,
            typer.Option(
                "--inquiry",
                help="Path of the receiver's key inquiry, which is queried before a key is"
                " sent again. default: /holdfast/keys/; or another path, to which the"
                " key is appended; or none. Default: none.",
            ),
        ],
    ),
}
"""By the name of the parameter: the options that `endpoint add` and `set` share."""

ALL = {
    "url": Setting("--url", "url"),
    "secret_ref": Setting("--secret-ref", "secret_refs"),
    **SETTINGS,
}

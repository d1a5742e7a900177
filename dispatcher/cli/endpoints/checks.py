"""The options of `holdfast endpoint add` and `set` as columns; the verb's rules check them."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import typer

from dispatcher.operators.config.environment import reference_fault
from dispatcher.operators.endpoints.rules import CHECKS, BadValueError, complete
from dispatcher.outbound.headers import LITERALS
from sink.contract.exits import CommandError, ExitCode

KNOWN_TYPES = ("payout_hold.block", "payout_hold.release")
NONE = "none"
HEADER, LITERAL = "--header", "--header-literal"


class Option(NamedTuple):
    """An option that sets a column."""

    name: str
    column: str
    read: Callable[[Any], Any] = lambda value: value
    """Returns the column's value in its unit; None and [] remove what is there."""

    unit: str = ""


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that `options`, a command's arguments by name, set; each checked.

    A header that is to be removed has an empty value. Raises `CommandError`, also for a reference
    that is not allowed here.
    """
    columns: dict[str, Any] = {}
    for name, value in options.items():
        option = OPTIONS.get(name)
        if option is not None and value is not None and value != []:
            columns[option.column] = _checked(option, option.read(value))
    refuse_references(columns)
    _note_unknown(columns.get("types", ()))
    return columns


def whole(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of an endpoint as they can be stored; raises `CommandError`."""
    try:
        return complete(settings)
    except BadValueError as error:
        raise usage(f"{error}.") from None


def usage(message: str) -> CommandError:
    """Return the error for an argument that makes no sense."""
    return CommandError(f"{message} Nothing was changed.", ExitCode.USAGE)


def refuse_references(settings: Mapping[str, Any]) -> None:
    """Raise `CommandError` where a reference among these settings is not allowed here."""
    if fault := reference_fault(settings):
        raise usage(f"{fault}.")


def checked_secret_ref(ref: str) -> str:
    """Return the reference of a new signing secret (`--to`); raises `CommandError`."""
    [checked] = _checked(Option("--to", "secret_refs"), [ref])
    return str(checked)


def _checked(option: Option, value: Any) -> Any:
    if value is None or value == []:
        return value
    removed = {}
    if option.name == HEADER:
        removed = {name: text for name, text in value.items() if not text}
        value = {name: text for name, text in value.items() if text}
    try:
        checked = CHECKS[option.column](value)
    except BadValueError as error:
        said = str(error).replace(LITERALS, LITERAL)
        raise usage(f"{option.name} {said}{option.unit}.") from None
    return {**checked, **removed} if removed else checked


def _note_unknown(types: Sequence[str]) -> None:
    for type_ in types:
        if type_ not in KNOWN_TYPES:
            typer.echo(
                f"note: {type_} is not a type of the exposure job; only entries of exactly this"
                " type will be delivered.",
                err=True,
            )


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


def _or_none(text: str) -> str | None:
    return None if text == NONE else text


def _schedule(schedule: str) -> list[int]:
    try:
        return [int(part) for part in schedule.split(",")]
    except ValueError:
        raise usage("--schedule must be whole seconds, comma-separated.") from None


def _milliseconds(seconds: float) -> int:
    with suppress(ValueError, OverflowError):  # nan, inf
        return round(seconds * 1000)
    return -1


def _seconds(option: str, text: str) -> int:
    """Read `90s`, `90m`, `12h` or `5d`."""
    found = re.fullmatch(r"([0-9]{1,8})([smhd])", text, re.ASCII)
    if found is None:
        raise usage(f"{option} must be a time such as 90s, 5m, 12h or 5d.")
    return int(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[found[2]]


OPTIONS = {
    "url": Option("--url", "url"),
    "secret_ref": Option("--secret-ref", "secret_refs"),
    "type_": Option("--type", "types"),
    "allow_cidr": Option("--allow-cidr", "allow_cidrs", lambda c: [] if [*c] == [NONE] else [*c]),
    "header": Option(HEADER, "headers", partial(_headers, HEADER)),
    "header_literal": Option(LITERAL, LITERALS, partial(_headers, LITERAL)),
    "envelope": Option("--envelope", "envelope", str),
    "ca": Option("--ca", "ca_ref", _or_none),
    "client_cert": Option("--client-cert", "client_cert_ref", _or_none),
    "client_key": Option("--client-key", "client_key_ref", _or_none),
    "total_timeout": Option("--total-timeout", "total_timeout_ms", _milliseconds, " milliseconds"),
    "connect_timeout": Option(
        "--connect-timeout", "connect_timeout_ms", _milliseconds, " milliseconds"
    ),
    "concurrency": Option("--concurrency", "concurrency"),
    "rate": Option("--rate", "rate_per_second"),
    "schedule": Option("--schedule", "schedule_seconds", _schedule, " seconds"),
    "budget": Option("--budget", "budget_seconds", partial(_seconds, "--budget"), " seconds"),
    "breaker_threshold": Option("--breaker-threshold", "breaker_threshold"),
    "slow_start": Option(
        "--slow-start", "slow_start_seconds", partial(_seconds, "--slow-start"), " seconds"
    ),
    "order_policy": Option("--order-policy", "order_policy", str),
    "inquiry": Option("--inquiry", "inquiry_path", _or_none),
}
"""By the name of an argument."""

"""The settings of an endpoint: the options of `endpoint add` and `set`, and how they are checked.

`given` checks each value, `whole` checks what must fit together.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlsplit

import typer

from dispatcher.cli.output import display
from dispatcher.operators.config.here import reference_fault
from dispatcher.operators.endpoints.reach import fault_of
from dispatcher.operators.endpoints.values import header_fault, literal_fault, network
from dispatcher.outbound.headers import LITERALS, is_reference
from sink.contract.exits import CommandError, ExitCode
from sink.contract.states import EnvelopeStyle, OrderPolicy
from sink.contract.wire import INQUIRY_PATH

SCHEDULE_STEPS_MAX = 32

TIMEOUT_SECONDS_MAX = 120

BUDGET_SECONDS_MIN, BUDGET_SECONDS_MAX = 60, 30 * 86_400

SLOW_START_SECONDS_MAX = 86_400

KNOWN_TYPES = ("payout_hold.block", "payout_hold.release")

NONE = "none"

DEFAULT = "default"

HEADER, LITERAL = "--header", "--header-literal"


Options = Mapping[str, Any]
"""Values of `SETTINGS` by parameter name; None where the option is not given."""


class Setting(NamedTuple):
    """An option of `endpoint add` and `set`."""

    option: Any
    """The annotation of its parameter."""

    column: str
    read: Callable[[Any], Any]
    """Returns the column's value; raises `CommandError` for a value that is not valid."""


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
        reader = _READERS.get(name)
        if reader is not None and value is not None and value != []:
            column, read = reader
            columns[column] = read(value)
    refuse_references(columns)
    return columns


def whole(settings: dict[str, Any]) -> dict[str, Any]:
    """Return an endpoint's settings, ready to be stored; raises `CommandError` if they do
    not fit.
    """
    connect, total = settings["connect_timeout_ms"], settings["total_timeout_ms"]
    settings = {**settings, "connect_timeout_ms": min(connect, total)}
    if fault := fault_of(settings):
        raise usage(f"{fault}.")
    return settings


def usage(message: str) -> CommandError:
    """Return the error for an invalid argument."""
    return CommandError(f"{message} Nothing was changed.", ExitCode.USAGE)


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return one line for each setting that differs."""
    return [
        f"{column.replace('_', ' ')}: {setting_text(value)} -> {setting_text(after[column])}"
        for column, value in before.items()
    ]


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
    """Return the reference of a signing secret; raises `CommandError` if it is not one."""
    if not is_reference(ref):
        raise usage(
            "a secret must be named as env:VAR or file:PATH; never put a secret on the command"
            " line."
        )
    return ref


def _secret_refs(refs: Sequence[str]) -> list[str]:
    if len(refs) not in (1, 2) or len(refs) != len(set(refs)):
        raise usage("an endpoint has one secret, or two different ones during a rotation.")
    return [checked_secret_ref(ref) for ref in refs]


def _url(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for an invalid port
    except ValueError as error:
        raise usage(f"--url is not a URL: {error}.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise usage("--url must be http:// or https:// with a host.")
    if parts.username or parts.password or parts.fragment:
        raise usage("--url must not hold a user, a password or a fragment.")
    if not url.isascii() or any(ord(c) <= 32 or ord(c) == 127 for c in url):
        raise usage("--url must be ASCII without spaces or control characters.")
    if len(url) > 2048:
        raise usage("--url has more than 2048 characters.")
    return url


def _milliseconds(option: str, seconds: float) -> int:
    if not 0.001 <= seconds <= TIMEOUT_SECONDS_MAX:  # also refuses nan
        raise usage(f"{option} must be 0.001 to {TIMEOUT_SECONDS_MAX} seconds.")
    return round(seconds * 1000)


def _types(types: Sequence[str]) -> list[str]:
    for type_ in types:
        if types.count(type_) > 1:
            raise usage(f"--type {type_!r} is given twice.")
        if not re.fullmatch(r"[a-zA-Z0-9_.]{1,128}", type_):
            raise usage(f"--type {type_!r} is not a type: use 1 to 128 of a-z A-Z 0-9 _ .")
        if type_ not in KNOWN_TYPES:
            typer.echo(
                f"note: {type_} is not a type of the exposure job; only entries of exactly this"
                " type will be delivered.",
                err=True,
            )
    return sorted(types)


def _cidrs(cidrs: Sequence[str]) -> list[str]:
    try:
        return [] if [*cidrs] == [NONE] else [network(cidr) for cidr in cidrs]
    except ValueError as error:
        raise usage(f"--allow-cidr: {error}.") from None


def _headers(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Parse --header (references, or an empty value to remove one) or --header-literal."""
    headers: dict[str, str] = {}
    for text in texts:
        given, separator, value = text.partition("=")
        name = given.lower()
        if not separator:
            raise usage(f"{option} must be NAME=VALUE.")
        if name in headers:
            raise usage(f"{option} {name} is given twice.")
        fault = header_fault(name, value, LITERAL) if option == HEADER and value else None
        fault = literal_fault(name, value) if option == LITERAL else fault
        if fault:
            raise usage(f"{option} {fault}.")
        headers[name] = value
    return headers


def _reference(option: str, reference: str) -> str | None:
    if reference == NONE:
        return None
    if not is_reference(reference):
        raise usage(f"{option} must be env:VAR or file:PATH, not the content itself.")
    return reference


def _schedule(schedule: str) -> list[int]:
    try:
        seconds = [int(part) for part in schedule.split(",")]
    except ValueError:
        raise usage("--schedule must be whole seconds, comma-separated.") from None
    if not 1 <= len(seconds) <= SCHEDULE_STEPS_MAX or min(seconds) < 0 or max(seconds) > 7 * 86400:
        raise usage(f"--schedule must be 1 to {SCHEDULE_STEPS_MAX} steps of 0 s to 7 days.")
    return seconds


def _seconds(option: str, text: str, least: int, most: int) -> int:
    """Parse `90s`, `90m`, `12h` or `5d` to seconds."""
    found = re.fullmatch(r"([0-9]{1,8})([smhd])", text, re.ASCII)
    seconds = int(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[found[2]] if found else -1
    if not least <= seconds <= most:
        raise usage(f"{option} must be a time such as 90s, 5m, 12h or 5d: {least} s to {most} s.")
    return seconds


def _inquiry(path: str) -> str | None:
    if path in (NONE, DEFAULT):
        return INQUIRY_PATH if path == DEFAULT else None
    if not re.fullmatch(r"/[!-~]{0,1023}", path) or set(path) & set("?#"):
        raise usage(
            f"--inquiry must be {DEFAULT}, {NONE}, or a path such as {INQUIRY_PATH}: ASCII, without"
            " spaces, ? and #."
        )
    return path


SETTINGS = {
    "type_": Setting(
        Annotated[
            list[str] | None,
            typer.Option("--type", help="A type of entries to deliver; repeatable."),
        ],
        "types",
        _types,
    ),
    "allow_cidr": Setting(
        Annotated[
            list[str] | None,
            typer.Option(
                "--allow-cidr",
                help="A private network in which its address may be; repeatable. `set`: none"
                " removes all.",
            ),
        ],
        "allow_cidrs",
        _cidrs,
    ),
    "header": Setting(
        Annotated[
            list[str] | None,
            typer.Option(
                "--header",
                help="A header of each request: NAME=env:VAR or NAME=file:PATH; repeatable.",
            ),
        ],
        "headers",
        lambda texts: _headers(HEADER, texts),
    ),
    "header_literal": Setting(
        Annotated[
            list[str] | None,
            typer.Option(
                "--header-literal",
                help="A header of each request: NAME=VALUE; repeatable. Stored in clear text"
                " and masked in output. Not for secrets.",
            ),
        ],
        LITERALS,
        lambda texts: _headers(LITERAL, texts),
    ),
    "envelope": Setting(
        Annotated[
            EnvelopeStyle | None,
            typer.Option(
                "--envelope",
                help="standard, or cloudevents: its attributes as headers. Default: standard.",
            ),
        ],
        "envelope",
        str,
    ),
    "ca": Setting(
        Annotated[
            str | None,
            typer.Option(
                "--ca",
                help="Certificate authority of the receiver (PEM): env:VAR, file:PATH or none.",
            ),
        ],
        "ca_ref",
        lambda ref: _reference("--ca", ref),
    ),
    "client_cert": Setting(
        Annotated[
            str | None,
            typer.Option(
                "--client-cert", help="Client certificate (PEM): env:VAR, file:PATH or none."
            ),
        ],
        "client_cert_ref",
        lambda ref: _reference("--client-cert", ref),
    ),
    "client_key": Setting(
        Annotated[
            str | None,
            typer.Option(
                "--client-key",
                help="Private key of the client certificate (PEM): env:VAR, file:PATH or none.",
            ),
        ],
        "client_key_ref",
        lambda ref: _reference("--client-key", ref),
    ),
    "total_timeout": Setting(
        Annotated[
            float | None,
            typer.Option(
                "--total-timeout", help="Time limit of one attempt, in seconds. Default: 30."
            ),
        ],
        "total_timeout_ms",
        lambda value: _milliseconds("--total-timeout", value),
    ),
    "connect_timeout": Setting(
        Annotated[
            float | None,
            typer.Option(
                "--connect-timeout", help="Time limit to connect, in seconds. Default: 5."
            ),
        ],
        "connect_timeout_ms",
        lambda value: _milliseconds("--connect-timeout", value),
    ),
    "concurrency": Setting(
        Annotated[
            int | None,
            typer.Option(
                "--concurrency",
                min=1,
                max=1024,
                help="Maximum number of concurrent requests. Default: 64.",
            ),
        ],
        "concurrency",
        int,
    ),
    "rate": Setting(
        Annotated[
            int | None,
            typer.Option(
                "--rate",
                min=0,
                max=2**31 - 1,
                help="Maximum number of requests per second, over all dispatchers; 0: no limit.",
            ),
        ],
        "rate_per_second",
        lambda rate: rate or None,
    ),
    "schedule": Setting(
        Annotated[
            str | None,
            typer.Option(
                "--schedule", help="Delay before each retry, in seconds, comma-separated."
            ),
        ],
        "schedule_seconds",
        _schedule,
    ),
    "budget": Setting(
        Annotated[
            str | None,
            typer.Option(
                "--budget",
                help="How long an entry is retried before it becomes a dead letter: 5d, 12h, 90m."
                " Default: 5d.",
            ),
        ],
        "budget_seconds",
        lambda text: _seconds("--budget", text, BUDGET_SECONDS_MIN, BUDGET_SECONDS_MAX),
    ),
    "breaker_threshold": Setting(
        Annotated[
            int | None,
            typer.Option(
                "--breaker-threshold",
                min=0,
                max=10_000,
                help="Consecutive failures that open the breaker; 0: never. A refused address"
                " opens it in any case. Default: 10.",
            ),
        ],
        "breaker_threshold",
        int,
    ),
    "slow_start": Setting(
        Annotated[
            str | None,
            typer.Option(
                "--slow-start",
                help="Duration of the slow start after the breaker closes: 60s, 5m. Default: 60s.",
            ),
        ],
        "slow_start_seconds",
        lambda text: _seconds("--slow-start", text, 0, SLOW_START_SECONDS_MAX),
    ),
    "order_policy": Setting(
        Annotated[
            OrderPolicy | None,
            typer.Option(
                "--order-policy",
                help="Whether a lane stops at a dead letter or skips it. Default: stop.",
            ),
        ],
        "order_policy",
        str,
    ),
    "inquiry": Setting(
        Annotated[
            str | None,
            typer.Option(
                "--inquiry",
                help="Path of the receiver's key inquiry, which is queried before a key is"
                " sent again. default: /holdfast/keys/; or another path, to which the"
                " key is appended; or none. Default: none.",
            ),
        ],
        "inquiry_path",
        _inquiry,
    ),
}
"""By the name of the parameter: the options that `endpoint add` and `set` share."""

_READERS: dict[str, tuple[str, Any]] = {
    "url": ("url", _url),
    "secret_ref": ("secret_refs", _secret_refs),
    **{name: (setting.column, setting.read) for name, setting in SETTINGS.items()},
}

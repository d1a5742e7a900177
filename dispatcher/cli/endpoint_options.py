"""The options of `holdfast endpoint add` and `set`, and what is wrong with a value.

Both commands check alike: single values in `given`, and in `fault_of` what must go together.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from dispatcher.core.address import is_allowed, refusal
from dispatcher.core.headers import headers_fault, is_reference
from sink.contract.exits import CommandError, ExitCode
from sink.contract.states import EnvelopeStyle, OrderPolicy

SCHEDULE_STEPS_MAX = 32
TIMEOUT_SECONDS_MAX = 120
BUDGET_SECONDS_MIN, BUDGET_SECONDS_MAX = 60, 30 * 86_400
SLOW_START_SECONDS_MAX = 86_400
KNOWN_TYPES = ("payout_hold.block", "payout_hold.release")
NONE = "none"

Types = Annotated[
    list[str] | None, typer.Option("--type", help="Deliver only this type; repeatable.")
]
AllowCidr = Annotated[
    list[str] | None,
    typer.Option("--allow-cidr", help="Private addresses it may have; repeatable; none: none."),
]
Header = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        help="NAME=VALUE in each request; repeatable. A token as NAME=env:VAR or NAME=file:PATH.",
    ),
]
Envelope = Annotated[
    EnvelopeStyle | None,
    typer.Option("--envelope", help="cloudevents: its attributes as headers. Default: standard."),
]
Ca = Annotated[
    str | None,
    typer.Option("--ca", help="Its certificate authority (PEM): env:VAR or file:PATH; or none."),
]
ClientCert = Annotated[
    str | None,
    typer.Option("--client-cert", help="Our certificate (PEM): env:VAR or file:PATH; or none."),
]
ClientKey = Annotated[
    str | None,
    typer.Option("--client-key", help="Its private key (PEM): env:VAR or file:PATH; or none."),
]
TotalTimeout = Annotated[
    float | None,
    typer.Option("--total-timeout", help="Seconds for one whole attempt. Default: 30."),
]
ConnectTimeout = Annotated[
    float | None, typer.Option("--connect-timeout", help="Seconds to connect. Default: 5.")
]
Concurrency = Annotated[
    int | None,
    typer.Option("--concurrency", min=1, max=1024, help="Requests at once. Default: 64."),
]
Rate = Annotated[
    int | None,
    typer.Option(
        "--rate", min=0, max=2**31 - 1, help="Requests a second, of all dispatchers; 0: no limit."
    ),
]
Schedule = Annotated[
    str | None, typer.Option("--schedule", help="Seconds before each retry, comma-separated.")
]
Budget = Annotated[
    str | None,
    typer.Option("--budget", help="How long an entry is tried: 5d, 12h, 90m. Default: 5d."),
]
BreakerThreshold = Annotated[
    int | None,
    typer.Option(
        "--breaker-threshold",
        min=0,
        max=10_000,
        help="Failures in a row until nothing more is sent for a while; 0: never. Default: 10.",
    ),
]
SlowStart = Annotated[
    str | None,
    typer.Option("--slow-start", help="How long it is spared after that: 60s, 5m. Default: 60s."),
]
Order = Annotated[
    OrderPolicy | None,
    typer.Option("--order-policy", help="What a lane does behind a dead letter. Default: stop."),
]


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that `options`, a command's arguments by name, set; each checked.

    A header that is to be removed has an empty value. Raises `CommandError`.
    """
    columns: dict[str, Any] = {}
    for name, value in options.items():
        check = _CHECKS.get(name)
        if check is not None and value is not None and value != []:
            column, checked = check
            columns[column] = checked(value)
    return columns


def whole(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of an endpoint as they can be stored; raises `CommandError`."""
    connect, total = settings["connect_timeout_ms"], settings["total_timeout_ms"]
    settings = {**settings, "connect_timeout_ms": min(connect, total)}
    if fault := fault_of(settings):
        raise usage(f"{fault}.")
    return settings


def fault_of(settings: Mapping[str, Any]) -> str | None:
    """Return why nothing could be sent with these settings, as far as it can be told from here."""
    if fault := headers_fault(list(settings["headers"].items())):
        return fault
    if (settings["client_cert_ref"] is None) != (settings["client_key_ref"] is None):
        return "--client-cert and --client-key go together"
    return _reach_fault(settings["url"], [str(cidr) for cidr in settings["allow_cidrs"]])


def usage(message: str) -> CommandError:
    """Return the error for an argument that makes no sense."""
    return CommandError(f"{message} Nothing was changed.", ExitCode.USAGE)


def checked_secret_ref(ref: str) -> str:
    """Return the reference of a signing secret; raises `CommandError`."""
    if not is_reference(ref):
        raise usage(
            "a secret must be named as env:VAR or file:PATH; a secret itself never goes on a"
            " command line."
        )
    return ref


def _secret_refs(refs: Sequence[str]) -> list[str]:
    if len(refs) not in (1, 2):
        raise usage("an endpoint has one secret, or two while one is rotated.")
    return [checked_secret_ref(ref) for ref in refs]


def _url(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for a port that is no number
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


def _reach_fault(url: str, cidrs: list[str]) -> str | None:
    """Return why the dispatcher's address guard would refuse this URL at every attempt."""
    parts = urlsplit(url)
    if parts.scheme == "http" and not cidrs:
        return "--url is plain http://, which needs --allow-cidr for its network"
    try:
        address = ipaddress.ip_address(parts.hostname or "")
    except ValueError:
        return None  # a name: it is resolved and judged at every attempt
    networks = [ipaddress.ip_network(cidr) for cidr in cidrs]
    why = refusal(str(address), networks)
    if why is None and parts.scheme == "http" and not is_allowed(str(address), networks):
        why = f"{address} is in no --allow-cidr, which plain http:// needs"
    return f"every delivery to --url would be refused: {why}" if why else None


def _milliseconds(option: str, seconds: float) -> int:
    if not 0.001 <= seconds <= TIMEOUT_SECONDS_MAX:  # also refuses nan
        raise usage(f"{option} must be 0.001 to {TIMEOUT_SECONDS_MAX} seconds.")
    return round(seconds * 1000)


def _types(types: Sequence[str]) -> list[str]:
    for type_ in types:
        if not re.fullmatch(r"[a-zA-Z0-9_.]{1,128}", type_):
            raise usage(f"--type {type_!r} is no type: 1 to 128 of a-z A-Z 0-9 _ . are.")
        if type_ not in KNOWN_TYPES:
            typer.echo(
                f"note: {type_} is no type of the exposure job; only entries of exactly this type"
                " will be delivered.",
                err=True,
            )
    return sorted(set(types))


def _cidrs(cidrs: Sequence[str]) -> list[str]:
    try:
        return [] if [*cidrs] == [NONE] else [str(ipaddress.ip_network(cidr)) for cidr in cidrs]
    except ValueError as error:
        raise usage(f"--allow-cidr: {error}.") from None


def _headers(options: Sequence[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for option in options:
        name, separator, value = option.partition("=")
        if not separator:
            raise usage("--header must be NAME=VALUE.")
        if name.lower() in headers:
            raise usage(f"--header {name.lower()} is given twice.")
        headers[name.lower()] = value
    return headers


def _reference(option: str, reference: str) -> str | None:
    if reference == NONE:
        return None
    if not is_reference(reference):
        raise usage(f"{option} must be env:VAR or file:PATH, never the content itself.")
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
    """Read `90s`, `90m`, `12h` or `5d`."""
    found = re.fullmatch(r"([0-9]{1,8})([smhd])", text, re.ASCII)
    seconds = int(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[found[2]] if found else -1
    if not least <= seconds <= most:
        raise usage(f"{option} must be a time such as 90s, 5m, 12h or 5d: {least} s to {most} s.")
    return seconds


_CHECKS: dict[str, tuple[str, Any]] = {
    "url": ("url", _url),
    "secret_ref": ("secret_refs", _secret_refs),
    "type_": ("types", _types),
    "allow_cidr": ("allow_cidrs", _cidrs),
    "header": ("headers", _headers),
    "envelope": ("envelope", str),
    "ca": ("ca_ref", lambda ref: _reference("--ca", ref)),
    "client_cert": ("client_cert_ref", lambda ref: _reference("--client-cert", ref)),
    "client_key": ("client_key_ref", lambda ref: _reference("--client-key", ref)),
    "total_timeout": ("total_timeout_ms", lambda value: _milliseconds("--total-timeout", value)),
    "connect_timeout": (
        "connect_timeout_ms",
        lambda value: _milliseconds("--connect-timeout", value),
    ),
    "concurrency": ("concurrency", int),
    "rate": ("rate_per_second", lambda rate: rate or None),
    "schedule": ("schedule_seconds", _schedule),
    "budget": (
        "budget_seconds",
        lambda text: _seconds("--budget", text, BUDGET_SECONDS_MIN, BUDGET_SECONDS_MAX),
    ),
    "breaker_threshold": ("breaker_threshold", int),
    "slow_start": (
        "slow_start_seconds",
        lambda text: _seconds("--slow-start", text, 0, SLOW_START_SECONDS_MAX),
    ),
    "order_policy": ("order_policy", str),
}
"""By the name of an argument: its column, and what reads it."""

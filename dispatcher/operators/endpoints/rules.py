"""What the settings of an endpoint may be, each in the unit of its column, and together. Pure.

`holdfast endpoint add`, `set` and `apply` and the API all check here.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from holdfast.dispatcher.outbound.address import is_allowed, refusal
from holdfast.dispatcher.outbound.operator_headers import (
    LITERALS,
    MASK,
    headers_fault,
    is_reference,
)
from holdfast.dispatcher.outbound.target import url_fault
from holdfast.sink.contract.envelope import TYPE_FORM, is_type
from holdfast.sink.contract.states import EnvelopeStyle, OrderPolicy
from holdfast.sink.contract.wire import INQUIRY_PATH

SCHEDULE_STEPS_MAX = 32
SCHEDULE_STEP_SECONDS_MAX = 7 * 86_400
TIMEOUT_MS_MAX = 120_000
BUDGET_SECONDS_MIN, BUDGET_SECONDS_MAX = 60, 30 * 86_400
SLOW_START_SECONDS_MAX = 86_400
URL_CHARACTERS_MAX = 2048
DEFAULT_INQUIRY = "default"

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
_PATH = re.compile(r"/[!-~]{0,1023}")


class BadValueError(ValueError):
    """A setting cannot have this value; the message says what is valid and never repeats it."""


def name_fault(name: str) -> str | None:
    """Return why this is not a valid endpoint name, or None."""
    if _NAME.fullmatch(name):
        return None
    return (
        f"{ascii(name)[:80]} is not a valid endpoint name: 1 to 63 lower-case letters, digits, `.`,"
        " `_` and `-`, a letter or a digit first"
    )


def _url(value: object) -> str:
    url = _text(value)
    if not url.isascii() or len(url) > URL_CHARACTERS_MAX or url_fault(url):
        # No details: the URL parser quotes parts, which may belong to a password.
        raise BadValueError(
            "must be http:// or https:// with a host: ASCII without spaces, user, password or"
            f" fragment, of at most {URL_CHARACTERS_MAX} characters"
        )
    scheme, rest = url.split(":", 1)
    return f"{scheme.lower()}:{rest}"  # as ck_endpoint_url


def _types(value: object) -> list[str]:
    types = _texts(value)
    if not all(is_type(each) for each in types):
        raise BadValueError(f"must be a list of types: {TYPE_FORM} each")
    if again := [each for each in types if types.count(each) > 1]:
        raise BadValueError(f"has {again[0]} twice")
    return sorted(types)


def _secret_refs(value: object) -> list[str]:
    refs = _texts(value)
    if len(refs) not in (1, 2) or not all(is_reference(each) for each in refs):
        raise BadValueError("must be one or two of env:VAR and file:PATH, never a secret itself")
    if len(refs) != len(set(refs)):
        raise BadValueError("must be two different ones: the same secret twice is not a rotation")
    return refs


def _reference(value: object) -> str:
    reference = _text(value)
    if not is_reference(reference):
        raise BadValueError("must be env:VAR or file:PATH, never the content itself")
    return reference


def _cidrs(value: object) -> list[str]:
    try:
        return [_network(each) for each in dict.fromkeys(_texts(value))]
    except ValueError:
        raise BadValueError(
            'must be a list of networks such as "10.1.0.0/16", without bits behind the mask and'
            " without a zone (%)"
        ) from None


def _network(cidr: str) -> str:
    if "%" in cidr:  # Python accepts a zone, the column does not.
        raise ValueError
    return str(ipaddress.ip_network(cidr))


def _headers(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise BadValueError('must be a table such as {authorization = "env:NAME"}')
    headers: dict[str, str] = {}
    for name, text in value.items():
        if name.lower() in headers:
            raise BadValueError(f"has {name.lower()!a} twice")
        if not isinstance(text, str):
            raise BadValueError(f"must be a text for {name!a}")
        headers[name.lower()] = text
    return headers


def _header_references(value: object) -> dict[str, str]:
    headers = _headers(value)
    for name, text in headers.items():
        if not is_reference(text):
            raise BadValueError(
                f"must name the value of {name!a} as env:VAR or file:PATH; {LITERALS} takes a value"
                " itself, which is stored and masked"
            )
    return headers


def _header_literals(value: object) -> dict[str, str]:
    headers = _headers(value)
    for name, text in headers.items():
        if text == MASK:
            raise BadValueError(
                f"has {MASK} for {name!a}, which masks a stored literal in output: give the"
                " value itself, or better a reference"
            )
        if is_reference(text):
            raise BadValueError(
                f"has a reference for {name!a}, which is not a literal: it stands in headers"
            )
    return headers


def _inquiry_path(value: object) -> str:
    path = _text(value)
    if path == DEFAULT_INQUIRY:
        return INQUIRY_PATH
    if not _PATH.fullmatch(path) or set(path) & set("?#"):
        raise BadValueError(
            f"must be {DEFAULT_INQUIRY} or a path such as {INQUIRY_PATH}: ASCII, without spaces, ?"
            " and #"
        )
    return path


def _schedule(value: object) -> list[int]:
    steps = value if isinstance(value, list) else []
    if not 1 <= len(steps) <= SCHEDULE_STEPS_MAX:
        raise BadValueError(f"must be a list of 1 to {SCHEDULE_STEPS_MAX} whole seconds")
    return [_number(0, SCHEDULE_STEP_SECONDS_MAX, step) for step in steps]


def _number(least: int, most: int, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadValueError(f"must be whole numbers of {least} to {most}")
    return value


def _rate(value: object) -> int | None:
    return _number(0, 2**31 - 1, value) or None  # 0: no limit


def _text(value: object) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise BadValueError("must be a text of characters that print, and not empty")
    return value


def _texts(value: object) -> list[str]:
    if not isinstance(value, list):
        raise BadValueError("must be a list of texts")
    return [_text(each) for each in value]


def _one_of(words: tuple[str, ...], value: object) -> str:
    if value not in words:
        raise BadValueError(f"must be {' or '.join(words)}")
    return str(value)


CHECKS: dict[str, Callable[[object], Any]] = {
    "url": _url,
    "types": _types,
    "secret_refs": _secret_refs,
    "allow_cidrs": _cidrs,
    "headers": _header_references,
    LITERALS: _header_literals,
    "envelope": partial(_one_of, tuple(style.value for style in EnvelopeStyle)),
    "ca_ref": _reference,
    "client_cert_ref": _reference,
    "client_key_ref": _reference,
    "connect_timeout_ms": partial(_number, 1, TIMEOUT_MS_MAX),
    "total_timeout_ms": partial(_number, 1, TIMEOUT_MS_MAX),
    "concurrency": partial(_number, 1, 1024),
    "rate_per_second": _rate,
    "schedule_seconds": _schedule,
    "budget_seconds": partial(_number, BUDGET_SECONDS_MIN, BUDGET_SECONDS_MAX),
    "breaker_threshold": partial(_number, 0, 10_000),
    "slow_start_seconds": partial(_number, 0, SLOW_START_SECONDS_MAX),
    "order_policy": partial(_one_of, tuple(policy.value for policy in OrderPolicy)),
    "inquiry_path": _inquiry_path,
}
"""By column: the function that checks and normalises its value, or raises `BadValueError`."""


def complete(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return all settings of an endpoint as they can be stored: connecting is part of the total.

    Raises `BadValueError` for settings that contradict each other.
    """
    connect, total = settings["connect_timeout_ms"], settings["total_timeout_ms"]
    if fault := fault_of(settings):
        raise BadValueError(fault)
    return {**settings, "connect_timeout_ms": min(connect, total)}


def fault_of(settings: Mapping[str, Any]) -> str | None:
    """Return why nothing can be sent with these settings, or None if they show no reason."""
    headers, literals = settings["headers"], settings[LITERALS]
    if fault := headers_fault([*headers.items(), *literals.items()]):
        return fault
    if twice := headers.keys() & literals.keys():
        return f"header {min(twice)} is named twice, with a reference and with a literal value"
    if (settings["client_cert_ref"] is None) != (settings["client_key_ref"] is None):
        return "--client-cert and --client-key go together"
    return _reach_fault(settings["url"], [str(cidr) for cidr in settings["allow_cidrs"]])


def _reach_fault(url: str, cidrs: list[str]) -> str | None:
    """Return why the dispatcher's address guard would refuse this URL at every attempt, or None."""
    parts = urlsplit(url)
    if parts.scheme == "http" and not cidrs:
        return "--url is plain http://, which needs --allow-cidr for its network"
    try:
        address = ipaddress.ip_address(parts.hostname or "")
    except ValueError:
        return None  # a name: each attempt resolves and checks it
    networks = [ipaddress.ip_network(cidr) for cidr in cidrs]
    why = refusal(str(address), networks)
    if why is None and parts.scheme == "http" and not is_allowed(str(address), networks):
        why = f"{address} is in no --allow-cidr, which plain http:// needs"
    return f"every delivery to --url would be refused: {why}" if why else None

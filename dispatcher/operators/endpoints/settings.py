"""The settings of an endpoint: one table, which commands, API, files, console and docs read. Pure.

Above the table: what each form of value may be. Below it: what settings must be together.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
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
from holdfast.dispatcher.shared.errors import ParameterError
from holdfast.sink.contract.envelope import TYPE_FORM, is_type
from holdfast.sink.contract.requeue import ENDINGS
from holdfast.sink.contract.states import EnvelopeStyle, OrderPolicy
from holdfast.sink.contract.wire import INQUIRY_PATH

SCHEDULE_STEPS_MAX = 32
URL_CHARACTERS_MAX = 2048
DEFAULT_INQUIRY = "default"

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
_PATH = re.compile(r"/[!-~]{0,1023}")


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
        raise ParameterError(
            "must be http:// or https:// with a host: ASCII without spaces, user, password or"
            f" fragment, of at most {URL_CHARACTERS_MAX} characters"
        )
    scheme, rest = url.split(":", 1)
    return f"{scheme.lower()}:{rest}"  # as ck_endpoint_url


def _types(value: object) -> list[str]:
    types = _texts(value)
    if not all(is_type(each) for each in types):
        raise ParameterError(f"must be a list of types: {TYPE_FORM} each")
    return _sorted(types)


def _streams(value: object) -> list[str]:
    streams = _texts(value)
    if not all(_NAME.fullmatch(each) for each in streams):
        raise ParameterError(
            "must be a list of streams: 1 to 63 lower-case letters, digits, `.`, `_` and `-` each,"
            " a letter or a digit first"
        )
    if by_hand := [each for each in streams if each.endswith(ENDINGS)]:
        raise ParameterError(
            f"has {by_hand[0]}: what people write by hand for a stream belongs to that stream, so"
            " name the stream itself"
        )
    return _sorted(streams)


def _sorted(names: list[str]) -> list[str]:
    if again := [each for each in names if names.count(each) > 1]:
        raise ParameterError(f"has {again[0]} twice")
    return sorted(names)


def _secret_refs(value: object) -> list[str]:
    refs = _texts(value)
    if len(refs) not in (1, 2) or not all(is_reference(each) for each in refs):
        raise ParameterError("must be one or two of env:VAR and file:PATH, never a secret itself")
    if len(refs) != len(set(refs)):
        raise ParameterError("must be two different ones: the same secret twice is not a rotation")
    return refs


def _reference(value: object) -> str:
    reference = _text(value)
    if not is_reference(reference):
        raise ParameterError("must be env:VAR or file:PATH, never the content itself")
    return reference


def _cidrs(value: object) -> list[str]:
    try:
        return [_network(each) for each in dict.fromkeys(_texts(value))]
    except ValueError:
        raise ParameterError(
            'must be a list of networks such as "10.1.0.0/16", without bits behind the mask and'
            " without a zone (%)"
        ) from None


def _network(cidr: str) -> str:
    if "%" in cidr:  # Python accepts a zone, the column does not.
        raise ValueError
    return str(ipaddress.ip_network(cidr))


def _headers(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ParameterError('must be a table such as {authorization = "env:NAME"}')
    headers: dict[str, str] = {}
    for name, text in value.items():
        if name.lower() in headers:
            raise ParameterError("has {header} twice", {"header": ascii(name.lower())})
        if not isinstance(text, str):
            raise ParameterError("must be a text for {header}", {"header": ascii(name)})
        headers[name.lower()] = text
    return headers


def _header_references(value: object) -> dict[str, str]:
    headers = _headers(value)
    for name, text in headers.items():
        if not is_reference(text):
            raise ParameterError(
                "must name the value of {header} as env:VAR or file:PATH; {headers_literal} takes a"
                " value itself, which is stored and masked",
                {"header": ascii(name)},
            )
    return headers


def _header_literals(value: object) -> dict[str, str]:
    headers = _headers(value)
    for name, text in headers.items():
        if text == MASK:
            raise ParameterError(
                "has {mask} for {header}, which masks a stored literal in output: give the"
                " value itself, or better a reference",
                {"mask": MASK, "header": ascii(name)},
            )
        if is_reference(text):
            raise ParameterError(
                "has a reference for {header}, which is not a literal: it stands in {headers}",
                {"header": ascii(name)},
            )
    return headers


def _inquiry_path(value: object) -> str:
    path = _text(value)
    if path == DEFAULT_INQUIRY:
        return INQUIRY_PATH
    if not _PATH.fullmatch(path) or set(path) & set("?#"):
        raise ParameterError(
            f"must be {DEFAULT_INQUIRY} or a path such as {INQUIRY_PATH}: ASCII, without spaces, ?"
            " and #"
        )
    return path


def _delays(limits: tuple[int, int], value: object) -> list[int]:
    steps = value if isinstance(value, list) else []
    if not 1 <= len(steps) <= SCHEDULE_STEPS_MAX:
        raise ParameterError(f"must be a list of 1 to {SCHEDULE_STEPS_MAX} whole seconds")
    return [_number(limits, step) for step in steps]


def _number(limits: tuple[int, int], value: object) -> int:
    least, most = limits
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ParameterError(f"must be whole numbers of {least} to {most}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ParameterError("must be a text of characters that print, and not empty")
    return value


def _texts(value: object) -> list[str]:
    if not isinstance(value, list):
        raise ParameterError("must be a list of texts")
    return [_text(each) for each in value]


def _one_of(choices: type[StrEnum], value: object) -> str:
    words = [each.value for each in choices]
    if value not in words:
        raise ParameterError(f"must be {' or '.join(words)}")
    return str(value)


class Form(Enum):
    """What kind of value a setting has. Each surface reads and shows each form in one way."""

    URL = "a URL"
    PATH = "a path"
    TYPES = "types"
    STREAMS = "streams"
    NETWORKS = "networks"
    REFERENCE = "a reference"
    REFERENCES = "one or two references"
    HEADERS = "references by header name"
    LITERALS = "texts by header name"
    CHOICE = "one of"
    NUMBER = "a number"
    MILLISECONDS = "milliseconds"
    SECONDS = "seconds"
    DELAYS = "a list of seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting of an endpoint: a column, and all that its surfaces need to know about it."""

    column: str
    """Its name in the database, the API, the file of `endpoint apply` and JSON."""

    form: Form
    option: str
    help: str
    """What it is, without a full stop."""

    option_help: str = ""
    """Follows `help` on the command line: how the option is written."""

    label: str
    """Its name in the console."""

    default: Any = None
    required: bool = False
    """`endpoint add` and a file must give it."""

    limits: tuple[int, int] = (0, 2**31 - 1)
    """Minimum and maximum of a number, in the unit of the column."""

    choices: type[StrEnum] = StrEnum
    nouns: tuple[str, str] = ("", "")
    """What a number counts, one and many, in the console."""

    words: Mapping[str, str] = field(default_factory=dict)
    """What a choice means, in the console."""

    none: str | None = None
    """What the console shows without a value; None: it leaves the setting out."""

    in_request: str | None = None
    in_response: str | None = None
    """Its description in the API."""

    @property
    def is_optional(self) -> bool:
        """Whether null removes it."""
        return self.default is None and not self.required

    def check(self, value: object) -> Any:
        """Return the value as it is stored; raises `ParameterError`."""
        match self.form:
            case Form.CHOICE:
                return _one_of(self.choices, value)
            case Form.NUMBER | Form.MILLISECONDS | Form.SECONDS:
                number = _number(self.limits, value)
                return None if self.is_optional and number == 0 else number
            case Form.DELAYS:
                return _delays(self.limits, value)
            case form:
                return _CHECKS[form](value)


_CHECKS: dict[Form, Callable[[object], Any]] = {
    Form.URL: _url,
    Form.PATH: _inquiry_path,
    Form.TYPES: _types,
    Form.STREAMS: _streams,
    Form.NETWORKS: _cidrs,
    Form.REFERENCE: _reference,
    Form.REFERENCES: _secret_refs,
    Form.HEADERS: _header_references,
    Form.LITERALS: _header_literals,
}

_TABLE = (
    Setting(
        column="url",
        form=Form.URL,
        required=True,
        option="--url",
        help="The URL to POST to",
        label="URL",
    ),
    Setting(
        column="types",
        form=Form.TYPES,
        default=[],
        option="--type",
        help="A type of entries to deliver",
        option_help="; repeatable",
        label="Types",
        none="every type",
    ),
    Setting(
        column="streams",
        form=Form.STREAMS,
        default=[],
        option="--stream",
        help="A stream whose entries to deliver, with those written by hand for it",
        option_help="; repeatable. Default: every stream",
        label="Streams",
        none="every stream",
    ),
    Setting(
        column="secret_refs",
        form=Form.REFERENCES,
        required=True,
        option="--secret-ref",
        help="The signing secret",
        option_help=": env:VAR or file:PATH; twice during a rotation",
        label="Secrets, as references",
    ),
    Setting(
        column="allow_cidrs",
        form=Form.NETWORKS,
        default=[],
        option="--allow-cidr",
        help="A private network in which its address may be",
        option_help="; repeatable. `set`: none removes all",
        label="Private addresses allowed",
        none="none",
    ),
    Setting(
        column="headers",
        form=Form.HEADERS,
        default={},
        option="--header",
        help="A header of each request",
        option_help=": NAME=env:VAR or NAME=file:PATH; repeatable",
        label="Additional headers",
        none="none",
        in_request="All headers whose value is a reference.",
        in_response="References that the dispatcher resolves to the values.",
    ),
    Setting(
        column=LITERALS,
        form=Form.LITERALS,
        default={},
        option="--header-literal",
        help="A header of each request",
        option_help=": NAME=VALUE; repeatable. Stored in clear text and masked in output. Not for"
        " secrets",
        label="Additional headers with a stored value",
        in_request="All other headers. Stored in clear text, masked in responses.",
        in_response="By name; values are masked.",
    ),
    Setting(
        column="envelope",
        form=Form.CHOICE,
        choices=EnvelopeStyle,
        default=EnvelopeStyle.STANDARD.value,
        option="--envelope",
        help="standard, or cloudevents: its attributes as headers",
        label="Envelope",
    ),
    Setting(
        column="ca_ref",
        form=Form.REFERENCE,
        option="--ca",
        help="Certificate authority of the receiver (PEM)",
        option_help=": env:VAR, file:PATH or none",
        label="Certificate authority",
    ),
    Setting(
        column="client_cert_ref",
        form=Form.REFERENCE,
        option="--client-cert",
        help="Client certificate (PEM)",
        option_help=": env:VAR, file:PATH or none",
        label="Client certificate",
    ),
    Setting(
        column="client_key_ref",
        form=Form.REFERENCE,
        option="--client-key",
        help="Private key of the client certificate (PEM)",
        option_help=": env:VAR, file:PATH or none",
        label="Key of the client certificate",
    ),
    Setting(
        column="connect_timeout_ms",
        form=Form.MILLISECONDS,
        limits=(1, 120_000),
        default=5_000,
        option="--connect-timeout",
        help="Time limit to connect",
        option_help=", in seconds",
        label="Time limit to connect",
    ),
    Setting(
        column="total_timeout_ms",
        form=Form.MILLISECONDS,
        limits=(1, 120_000),
        default=30_000,
        option="--total-timeout",
        help="Time limit of one attempt",
        option_help=", in seconds",
        label="Time limit of an attempt",
    ),
    Setting(
        column="concurrency",
        form=Form.NUMBER,
        limits=(1, 1024),
        default=64,
        option="--concurrency",
        help="Maximum number of concurrent requests",
        label="Concurrency",
        nouns=("request", "requests"),
    ),
    Setting(
        column="rate_per_second",
        form=Form.NUMBER,
        option="--rate",
        help="Maximum number of requests per second, over all dispatchers; 0: no limit",
        label="Rate",
        nouns=("per second", "per second"),
        none="no limit",
        in_request="0: no limit.",
    ),
    Setting(
        column="schedule_seconds",
        form=Form.DELAYS,
        limits=(0, 7 * 86_400),
        default=[5, 30, 120, 600, 1800, 7200, 18_000, 36_000, 50_400, 72_000],
        option="--schedule",
        help="Delay before each retry",
        option_help=", in seconds, comma-separated",
        label="Retries after",
        in_response="Delay before each retry.",
    ),
    Setting(
        column="budget_seconds",
        form=Form.SECONDS,
        limits=(60, 30 * 86_400),
        default=432_000,
        option="--budget",
        help="How long an entry is retried before it becomes a dead letter",
        option_help=": 5d, 12h, 90m",
        label="Retried for",
        in_response="How long an entry is retried before it becomes a dead letter.",
    ),
    Setting(
        column="breaker_threshold",
        form=Form.NUMBER,
        limits=(0, 10_000),
        default=10,
        option="--breaker-threshold",
        help="Consecutive failures that open the breaker; 0: never. A refused address and refused"
        " credentials open it in any case",
        label="Breaker opens after",
        nouns=("consecutive failure", "consecutive failures"),
        none="never",
    ),
    Setting(
        column="slow_start_seconds",
        form=Form.SECONDS,
        limits=(0, 86_400),
        default=60,
        option="--slow-start",
        help="Duration of the slow start after the breaker closes",
        option_help=": 60s, 5m",
        label="Slow start",
    ),
    Setting(
        column="order_policy",
        form=Form.CHOICE,
        choices=OrderPolicy,
        default=OrderPolicy.STOP.value,
        option="--order-policy",
        help="Whether a lane stops at a dead letter or skips it",
        label="At a dead letter",
        words={"stop": "the lane stops", "skip": "the lane continues"},
    ),
    Setting(
        column="inquiry_path",
        form=Form.PATH,
        option="--inquiry",
        help="Path of the receiver's key inquiry, which is queried before a key is sent again",
        option_help=f". {DEFAULT_INQUIRY}: {INQUIRY_PATH}; or another path, to which the key is"
        " appended; or none. Default: none",
        label="Inquiry",
        none="\N{EN DASH}",
    ),
)

SETTINGS = {each.column: each for each in _TABLE}
"""The settings of an endpoint by column. A new one also needs a migration, its columns in the
statements that read and write it, and the code that uses it.
"""

DEFAULTS = {each.column: each.default for each in _TABLE if not each.required}
"""The settings of a new endpoint that are not given: the database's defaults."""


def option_of(column: str) -> str:
    """Return how a command spells a setting."""
    return SETTINGS[column].option


def label_of(column: str) -> str:
    """Return how the console spells a setting."""
    return SETTINGS[column].label


def complete(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return all settings of an endpoint as they can be stored: connecting is part of the total.

    Raises `ParameterError` for settings that contradict each other.
    """
    connect, total = settings["connect_timeout_ms"], settings["total_timeout_ms"]
    if fault := fault_of(settings):
        raise fault
    return {**settings, "connect_timeout_ms": min(connect, total)}


def fault_of(settings: Mapping[str, Any]) -> ParameterError | None:
    """Return why nothing can be sent with these settings, or None if they show no reason."""
    headers, literals = settings["headers"], settings[LITERALS]
    if fault := headers_fault([*headers.items(), *literals.items()]):
        return ParameterError("{fault}", {"fault": fault})
    if twice := headers.keys() & literals.keys():
        return ParameterError(
            "header {header} is named twice, with a reference and with a literal value",
            {"header": min(twice)},
        )
    if (settings["client_cert_ref"] is None) != (settings["client_key_ref"] is None):
        return ParameterError("{client_cert_ref} and {client_key_ref} go together")
    return _reach_fault(settings["url"], [str(cidr) for cidr in settings["allow_cidrs"]])


def _reach_fault(url: str, cidrs: list[str]) -> ParameterError | None:
    """Return why the dispatcher's address guard would refuse this URL at every attempt, or None."""
    parts = urlsplit(url)
    is_plain = parts.scheme == "http"
    if is_plain and not cidrs:
        return ParameterError("{url} is plain http://, which needs {allow_cidrs} for its network")
    try:
        address = ipaddress.ip_address(parts.hostname or "")
    except ValueError:
        return None  # a name: each attempt resolves and checks it
    networks = [ipaddress.ip_network(cidr) for cidr in cidrs]
    if why := refusal(str(address), networks):
        return ParameterError("every delivery to {url} would be refused: {why}", {"why": why})
    if is_plain and not is_allowed(str(address), networks):
        return ParameterError(
            "every delivery to {url} would be refused: {address} is in no {allow_cidrs}, which"
            " plain http:// needs",
            {"address": str(address)},
        )
    return None

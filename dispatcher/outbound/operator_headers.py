"""Headers that an operator adds to every request of an endpoint, and their restrictions.

They cannot replace a header of Holdfast, change the framing of a request, or inject further
headers. A value is a reference (`env:VAR`, `file:PATH`), resolved where the dispatcher runs and not
stored in the database, or a literal, which is stored and masked wherever it is shown.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

HEADERS_MAX = 16
NAME_CHARACTERS_MAX = 64
VALUE_CHARACTERS_MAX = 2048

MASK = "***"
"""Shown instead of a literal."""
LITERALS = "headers_literal"
"""The setting of an endpoint's literals; `headers` holds its references. One column stores both."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
# Visible ASCII with spaces only between: no CR, LF, NUL, tab, or space at either end.
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")

_OURS = frozenset(
    {
        *("accept-encoding", "idempotency-key", "traceparent", "tracestate", "user-agent"),
        # RFC 9110: the target, the framing and the connection belong to the transport
        *("host", "connection", "expect", "keep-alive", "te", "trailer", "transfer-encoding"),
        *("upgrade", "http2-settings", "alt-used", "max-forwards", "date"),
        # Deliveries keep no state between requests.
        *("cookie", "cookie2", "set-cookie", "set-cookie2"),
    }
)
_OUR_FAMILIES = ("webhook-", "ce-", "content-", "proxy-", "if-")
_TELLS_A_SECRET = re.compile(
    r"(?:^|[-_.])(?:auth|authorization|token|secret|password|passwd|credentials?|api-?key|key)"
    r"(?:[-_.]|$)"
)


def headers_fault(headers: Sequence[tuple[object, object]]) -> str | None:
    """Return what is wrong with an endpoint's headers, or None. Never quotes a value."""
    if len(headers) > HEADERS_MAX:
        return f"it has {len(headers)} headers; {HEADERS_MAX} are allowed"
    for name, value in headers:
        if fault := name_fault(name) or _given_fault(str(name), value):
            return fault
    return None


def name_fault(name: object) -> str | None:
    """Return why a header must not have this name, or None."""
    if not isinstance(name, str) or not _TOKEN.fullmatch(name) or len(name) > NAME_CHARACTERS_MAX:
        return (
            f"header {ascii(name)[:NAME_CHARACTERS_MAX]} is not a lower-case name of at most"
            f" {NAME_CHARACTERS_MAX} characters"
        )
    if name in _OURS or name.startswith(_OUR_FAMILIES):
        return f"header {name} is set by Holdfast or by the connection"
    return None


def value_fault(name: str, value: str) -> str | None:
    """Return why a header cannot have this value, or None. Never quotes the value."""
    if not _VALUE.fullmatch(value):
        return f"the value of header {name} is not visible ASCII with spaces only between"
    if len(value) > VALUE_CHARACTERS_MAX:
        return f"the value of header {name} has more than {VALUE_CHARACTERS_MAX} characters"
    return None


def is_reference(value: str) -> bool:
    """Return whether `value` is a reference: `env:VAR` or `file:PATH`."""
    kind, _, name = value.partition(":")
    return kind in ("env", "file") and bool(name)


def split(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored settings of an endpoint with its literals in a separate setting."""
    headers = settings["headers"].items()
    return {
        **settings,
        "headers": {name: value for name, value in headers if is_reference(str(value))},
        LITERALS: {name: value for name, value in headers if not is_reference(str(value))},
    }


def joined(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return all headers of an endpoint's settings, as stored."""
    return {**settings["headers"], **settings[LITERALS]}


def masked(value: Any) -> Any:
    """Return settings, or the detail of an audit row of any version, with literals masked.

    >>> masked({"after": {"headers": {"x-a": "env:A", "x-jwt": "ey"}}})
    {'after': {'headers': {'x-a': 'env:A', 'x-jwt': '***'}}}
    """
    if isinstance(value, Mapping):
        return {
            name: _masked_headers(each)
            if name in ("headers", LITERALS) and isinstance(each, Mapping)
            else masked(each)
            for name, each in value.items()
        }
    return [masked(each) for each in value] if isinstance(value, list) else value


def _masked_headers(headers: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value if isinstance(value, str) and is_reference(value) else MASK
        for name, value in headers.items()
    }


def _given_fault(name: str, value: object) -> str | None:
    """Return what is wrong with a stored value."""
    if not isinstance(value, str):
        return f"the value of header {name} is not text"
    if fault := value_fault(name, value):
        return fault
    if _TELLS_A_SECRET.search(name) and not is_reference(value):
        return (
            f"the value of header {name} must be env:VAR or file:PATH: a token is never stored,"
            " and never on a command line"
        )
    return None

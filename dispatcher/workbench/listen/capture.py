"""A request that was written down: header fields from options or from a file, and its bytes. Pure.

A file may be what `curl -i`, `curl -v` or a proxy shows: a start line, `>` or `<` before each line,
CRLF or LF, and perhaps the body after an empty line. What `curl -v` says itself (`* Connected`,
`} [5 bytes data]`) is left out, and of a request with its response the request counts.
"""

import re
from dataclasses import dataclass

_START = re.compile(rb"(?:HTTP/[0-9.]+ [0-9]{3}\b|[A-Z]+ \S+ HTTP/[0-9.]+)")
_MARK = re.compile(rb"[<>] ?")
_SAID_BY_CURL = re.compile(rb"\*(?: |\Z)|[{}] \[[0-9]+ bytes data\]\Z")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

Fields = list[tuple[bytes, bytes]]


class NotAHeaderError(ValueError):
    """A line that is no header field. Its text is not repeated: it may hold anything."""


@dataclass(frozen=True, slots=True)
class Capture:
    """What a file held. `body` is None where the file ends with the headers."""

    headers: Fields
    body: bytes | None


def field_of(line: bytes) -> tuple[bytes, bytes]:
    """Read `name: value`; raises `NotAHeaderError`."""
    name, separator, value = line.partition(b":")
    if not separator or not _NAME.fullmatch(name):
        raise NotAHeaderError("it is not `name: value`")
    return name, value.strip(b" \t\r\n")


def read_capture(content: bytes) -> Capture:
    """Read a file with headers and perhaps a body; raises `NotAHeaderError`."""
    headers: Fields = []
    rest, number, mark = content, 0, b""
    while rest:
        line, _, rest = rest.partition(b"\n")
        number += 1
        line = line.rstrip(b"\r")
        if _SAID_BY_CURL.match(line):
            continue
        here = line[:1] if _MARK.match(line) else b""
        if mark and here and here != mark:
            return Capture(headers, None)
        mark = mark or here
        plain = _MARK.sub(b"", line, count=1) if here else line
        if not plain:
            return Capture(headers, _body(rest, mark) or None)
        if not headers and _START.match(plain):
            continue
        try:
            headers.append(field_of(plain))
        except NotAHeaderError as error:
            raise NotAHeaderError(f"line {number}: {error}") from None
    return Capture(headers, None)


def _body(rest: bytes, mark: bytes) -> bytes:
    """Return the exact bytes behind the headers; without marks nothing of curl's is among them."""
    while mark and rest:
        line, _, after = rest.partition(b"\n")
        if mark == b">" and line.startswith(b"<"):
            return b""  # the response; `curl -v` does not show what it sends
        if not _SAID_BY_CURL.match(line.rstrip(b"\r")):
            break
        rest = after
    return rest

"""Parse a captured request: header fields, and the exact bytes of the body. Pure.

A file may be output of `curl -i`, `curl -v` or a proxy: a start line, `>` or `<` before each line,
CRLF or LF, and optionally the body after an empty line. Messages of `curl -v` itself
(`* Connected`, `} [5 bytes data]`) are skipped. Of a request and its response, only the request is
read.
"""

import re
from dataclasses import dataclass

_START = re.compile(rb"(?:HTTP/[0-9.]+ [0-9]{3}\b|[A-Z]+ \S+ HTTP/[0-9.]+)")
_MARK = re.compile(rb"[<>] ?")
_SAID_BY_CURL = re.compile(rb"\*(?: |\Z)|[{}] \[[0-9]+ bytes data\]\Z")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

Fields = list[tuple[bytes, bytes]]


class NotAHeaderError(ValueError):
    """A line is not a header field. The message does not repeat its text, which may be secret."""


@dataclass(frozen=True, slots=True)
class Capture:
    """The content of a file. `body` is None if the file ends after the headers."""

    headers: Fields
    body: bytes | None


def field_of(line: bytes) -> tuple[bytes, bytes]:
    """Parse `name: value`; raises `NotAHeaderError`."""
    name, separator, value = line.partition(b":")
    if not separator or not _NAME.fullmatch(name):
        raise NotAHeaderError("not `name: value`")
    return name, value.strip(b" \t\r\n")


def read_capture(content: bytes) -> Capture:
    """Parse a file with headers and an optional body; raises `NotAHeaderError`."""
    headers: Fields = []
    rest, number, mark = content, 0, b""
    while rest:
        line, _, rest = rest.partition(b"\n")
        number += 1
        line = line.rstrip(b"\r")
        if _SAID_BY_CURL.match(line):
            continue
        line_mark = line[:1] if _MARK.match(line) else b""
        if mark and line_mark and line_mark != mark:
            return Capture(headers, None)
        mark = mark or line_mark
        plain = _MARK.sub(b"", line, count=1) if line_mark else line
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
    """Return the exact bytes after the headers, without the messages of `curl -v`."""
    while mark and rest:
        line, _, after = rest.partition(b"\n")
        if mark == b">" and line.startswith(b"<"):
            return b""  # the response; `curl -v` does not show the request body
        if not _SAID_BY_CURL.match(line.rstrip(b"\r")):
            break
        rest = after
    return rest

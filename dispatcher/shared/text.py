"""Untrusted bytes as text that can be stored and shown, and names as words of a command."""

import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from urllib.parse import quote as percent_encoded

from holdfast.sink.contract.shell import shell_word

HIDDEN_CHARACTERS_MIN = 6
"""Shorter values are not masked: they would match parts of words."""

RESPONSE_BYTES_STORED_MAX = 4096
ERROR_CHARACTERS_MAX = 300

# C0 and C1 controls except tab and newline: NUL cannot be stored, the others control a terminal
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SECRETS = (
    re.compile(r"wh(?:sec|sk)_[A-Za-z0-9+/=_-]+"),
    re.compile(r"v1a?,[A-Za-z0-9+/=_-]{16,}"),
    re.compile(r"(?i)(?<=bearer )[A-Za-z0-9._~+/=-]{8,}"),
)
_BEFORE_A_TOKEN = re.compile(r"(?i)(?:bearer|basic) +|whsec_")


def redact(text: str) -> str:
    """Mask everything in the form of a signing secret, a signature or a bearer token."""
    for pattern in _SECRETS:
        text = pattern.sub("***", text)
    return text


def spellings(values: Iterable[str]) -> tuple[str, ...]:
    """Return every form in which an answer may repeat `values`, the longest first.

    That is unchanged, escaped for JSON, HTML and a URL, and without a scheme before a token.

    >>> spellings(["Bearer a/b=cde"])[-2:]
    ('a\\\\/b=cde', 'a/b=cde')
    """
    parts = {part for each in values for part in (each, _BEFORE_A_TOKEN.sub("", each, count=1))}
    forms: set[str] = set()
    for each in parts:
        if len(each) >= HIDDEN_CHARACTERS_MIN:
            in_json = json.dumps(each)[1:-1]
            forms |= {each, in_json, in_json.replace("/", "\\/")}
            forms |= {escape(each), percent_encoded(each), percent_encoded(each, safe="")}
    return tuple(sorted(forms, key=lambda each: (-len(each), each)))


def hide(text: str, hidden: Sequence[str]) -> str:
    """Mask each of `hidden`, and the beginning of one where the text was truncated within it.

    >>> hide("no 123456789, but 1234567", ["123456789"])
    'no ***, but ***'
    """
    for each in hidden:
        text = text.replace(each, "***")
    for each in hidden:
        start, at = each[:HIDDEN_CHARACTERS_MIN], max(0, len(text) - len(each))
        while (at := text.find(start, at)) >= 0:
            if each.startswith(text[at:]):
                text = f"{text[:at]}***"
            at += 1
    return text


def storable(
    raw: bytes, limit: int = RESPONSE_BYTES_STORED_MAX, *, hidden: Sequence[str] = ()
) -> str | None:
    """Return `raw` as at most `limit` bytes of valid UTF-8 without controls and secrets.

    `hidden` are secrets that the sender of `raw` knows (`spellings`). None for an empty body.
    Invalid UTF-8 becomes U+FFFD.
    """
    if not raw:
        return None
    lines = raw.decode(errors="replace").replace("\r\n", "\n")
    text = redact(_CONTROL.sub("�", hide(lines, hidden)))
    return text.encode()[:limit].decode(errors="ignore") or None


def one_line(text: str) -> str:
    """Return the text of an error as one bounded line."""
    sound = " ".join(text.split()).encode(errors="replace").decode()  # without lone surrogates
    plain = redact(_CONTROL.sub("�", sound))
    return plain[:ERROR_CHARACTERS_MAX]


def last_word(text: str) -> str:
    """Return `shell_word(text)` as the end of a command, after `--` where it looks like an option.

    >>> last_word("m_1"), last_word("-x")
    ('m_1', '-- -x')
    """
    return f"{'-- ' if text.startswith('-') else ''}{shell_word(text)}"

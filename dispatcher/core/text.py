"""Bytes of a stranger as text that can be stored and shown."""

import re

RESPONSE_BYTES_STORED_MAX = 4096
ERROR_CHARACTERS_MAX = 300

# C0 and C1 controls but tab and newline: NUL cannot be stored, the rest can drive a terminal
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SECRETS = (
    re.compile(r"wh(?:sec|sk)_[A-Za-z0-9+/=_-]+"),
    re.compile(r"v1a?,[A-Za-z0-9+/=_-]{16,}"),
    re.compile(r"(?i)(?<=bearer )[A-Za-z0-9._~+/=-]{8,}"),
)


def redact(text: str) -> str:
    """Replace what looks like a signing secret, a signature or a bearer token."""
    for pattern in _SECRETS:
        text = pattern.sub("***", text)
    return text


def storable(raw: bytes, limit: int = RESPONSE_BYTES_STORED_MAX) -> str | None:
    """Return `raw` as at most `limit` bytes of valid UTF-8 without controls and secrets.

    None for an empty body. What is not UTF-8 becomes U+FFFD.
    """
    if not raw:
        return None
    lines = raw.decode(errors="replace").replace("\r\n", "\n")
    text = redact(_CONTROL.sub("�", lines))
    return text.encode()[:limit].decode(errors="ignore") or None


def one_line(text: str) -> str:
    """Return the text of an error as one bounded line."""
    sound = " ".join(text.split()).encode(errors="replace").decode()  # without lone surrogates
    plain = redact(_CONTROL.sub("�", sound))
    return plain[:ERROR_CHARACTERS_MAX]

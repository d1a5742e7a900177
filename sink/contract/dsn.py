"""DSNs without their passwords, for messages and logs."""

import re

_URI_PASSWORD = re.compile(r"(://[^:/@?\s]*):\S*@")
_KEYWORD_PASSWORD = re.compile(
    r"(password|passfile|sslpassword)\s*=\s*('(?:[^'\\]|\\.)*'|[^\s&]+)", re.IGNORECASE
)


def redact(dsn: str) -> str:
    """Return `dsn` (URI or keyword form) with its password replaced.

    >>> redact("postgresql://app:secret@db/holdfast?sslpassword=x")
    'postgresql://app:***@db/holdfast?sslpassword=***'
    """
    return _KEYWORD_PASSWORD.sub(r"\1=***", _URI_PASSWORD.sub(r"\1:***@", dsn))

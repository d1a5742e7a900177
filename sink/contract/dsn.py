"""What messages say of a connection: a DSN without its password, and whether an answer is lost."""

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


def answer_lost(sqlstate: str | None) -> bool:
    """Return whether the server's last answer may be lost, by the SQLSTATE of an error.

    The error is psycopg's `OperationalError` or `InterfaceError`; a broken line has no SQLSTATE. If
    COMMIT was sent, only the database knows its outcome.

    >>> answer_lost(None), answer_lost("57P01"), answer_lost("53100")
    (True, True, False)
    """
    return sqlstate is None or sqlstate.startswith(("08", "57P0"))

"""How the sink logs in: a DSN and a password, or functions that give them for each connection.

Passwords of managed databases (RDS, Cloud SQL, Azure) are tokens that expire within the hour. A
function is called for each new connection, in the driver and in each task that stages rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.sink.contract.dsn import redact
from holdfast.sink.errors import AccessDenied

Text = str | Callable[[], str]


@dataclass(slots=True)
class Login:
    """The DSN and the password; neither is in its repr. Without `password` the DSN's counts."""

    dsn: Text = field(repr=False)
    password: Text | None = field(default=None, repr=False)
    has_worked: bool = field(default=False, compare=False)
    """Once it has, an unknown host is an outage of the resolver, and no mistake."""

    def __post_init__(self) -> None:
        """Raises `ValueError` for a DSN that cannot be read."""
        if not callable(self.dsn):
            check(self.dsn)

    def conninfo(self) -> str:
        """Return what libpq connects with.

        Raises `psycopg.OperationalError`, which is retried, where a function fails; `AccessDenied`
        where it returns no text; `ValueError` for a DSN that cannot be read.
        """
        dsn = _value("dsn", self.dsn)
        check(dsn)
        if self.password is None:
            return dsn
        return make_conninfo(dsn, password=_value("password", self.password))

    def shown(self) -> str:
        """Return the DSN without its password, for a message."""
        return repr(redact(self.dsn)) if isinstance(self.dsn, str) else "a function"


def check(dsn: str) -> None:
    """Raise `ValueError` for a DSN that libpq cannot read."""
    if not dsn:
        raise ValueError(
            "there is no DSN: expected postgresql://user@host/database, often from the variable"
            " HOLDFAST_DSN"
        )
    if not _is_readable(dsn):
        raise ValueError(
            "the DSN cannot be read: expected postgresql://user@host/database or"
            " 'host=... dbname=...', with special characters of a password as %XX"
        )


def _is_readable(dsn: str) -> bool:
    try:
        ports = str(conninfo_to_dict(dsn).get("port", ""))
    except psycopg.ProgrammingError:
        # libpq quotes what it could not parse, which may be a part of the password.
        return False
    # So may a port: where a password has an `@` and a colon, libpq takes what follows for one.
    return all(map(_is_port, ports.split(",")))


def _is_port(text: str) -> bool:
    return not text or (text.isascii() and text.isdigit() and 0 < int(text) < 1 << 16)


def _value(name: str, source: Text) -> str:
    if isinstance(source, str):
        return source
    try:
        value: object = source()
    except Exception as error:  # noqa: BLE001 - whatever the function of a user raises
        # Neither its text nor its traceback, which may quote a token: Spark logs both.
        raise psycopg.OperationalError(
            f"the function for `{name}` raised {type(error).__name__}"
        ) from None
    if not isinstance(value, str):
        raise AccessDenied(
            f"the function for `{name}` returned {type(value).__name__}, expected str: correct it,"
            " and restart."
        )
    return value

"""The connection of the commands that inspect or change the schema.

Every failure to connect is a `CommandError`: one line, without the password.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.sink.contract import statements
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.roles import SEARCH_PATH

DEFAULTS: dict[str, str | int] = {
    "application_name": "holdfast-db",
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
"""Default connection parameters; times in seconds. Those of the DSN take precedence."""

PIECE_LENGTH_MAX = 2
"""A password this short protects nothing, and redacting it would garble the message."""

_USERINFO_PASSWORD = re.compile(r"://[^:/?#]*:([^?#]*)@")


class NoAnswerError(CommandError):
    """The server could not be reached, or rejected the user."""


def statement(name: str) -> bytes:
    """Return a statement of this package."""
    return statements.statement("holdfast.migrations", name)


@contextmanager
def connection(dsn: str | None) -> Iterator[psycopg.Connection]:
    """Yield a connection to `dsn` (URI or keyword form); at the end it is committed and closed.

    Raises `CommandError` if the DSN is missing or malformed, `NoAnswerError` if the server does not
    answer.
    """
    if not dsn:
        raise CommandError(
            "no database: pass --dsn, set HOLDFAST_DSN, or start one with `holdfast local up`.",
            ExitCode.USAGE,
            code="missing_dsn",
        )
    try:
        parameters = conninfo_to_dict(dsn)
        unset = {name: value for name, value in DEFAULTS.items() if name not in parameters}
        opened = psycopg.connect(make_conninfo(dsn, **unset), prepare_threshold=None)
    except psycopg.ProgrammingError:
        # libpq quotes the part that it cannot parse, which may be part of the password.
        raise CommandError(
            "the DSN cannot be read: expected postgresql://user@host/database or"
            " 'host=... dbname=...', with special characters of a password as %XX."
            " Nothing was changed.",
            ExitCode.USAGE,
            code="invalid_dsn",
        ) from None
    except psycopg.OperationalError as error:
        raise NoAnswerError(
            f"the database did not answer: {one_line(error, dsn)}. Nothing was changed; check"
            " --dsn or HOLDFAST_DSN, or start one with `holdfast local up`.",
            code="database_unavailable",
        ) from None
    with opened:
        try:
            # In autocommit, because a ROLLBACK of the first transaction would undo the SET.
            opened.autocommit = True
            opened.execute(f"SET search_path = {SEARCH_PATH}".encode())
            opened.autocommit = False
        except psycopg.Error as error:
            raise NoAnswerError(
                f"the database did not answer: {one_line(error, dsn)}. Nothing was changed.",
                code="database_unavailable",
            ) from None
        yield opened


def one_line(error: BaseException, dsn: str) -> str:
    """Return the error's text on one line, with all parts of the DSN's password redacted."""
    text = str(error)
    for secret in sorted(_secrets(dsn), key=len, reverse=True):
        text = text.replace(secret, "***")
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "; ".join(line for line in lines if line).rstrip(".?")


def _secrets(dsn: str) -> set[str]:
    parameters = conninfo_to_dict(dsn)
    secrets = {
        str(parameters[word]) for word in ("password", "sslpassword") if parameters.get(word)
    }
    # After an unescaped @ the rest of a password becomes the host name, which errors quote.
    if match := _USERINFO_PASSWORD.search(dsn):
        secrets.update({match[1], *match[1].split("@")})
    # A part of one or two letters occurs in many words of an error.
    return {piece for piece in secrets if len(piece) > PIECE_LENGTH_MAX}

"""`python -m holdfast.migrations`: `holdfast db upgrade` where the command is not installed."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from holdfast.sink.contract.dsn import redact
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.extras import needs

with needs("`python -m holdfast.migrations`", "migrations", "alembic", "sqlalchemy"):
    from holdfast.migrations.upgrade import script, upgrade


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # It quotes arguments that it does not know, as a DSN without `--dsn`.
        super().error(redact(message))


def main(arguments: Sequence[str]) -> int:
    """Upgrade a database, or print the SQL that would; return the exit code."""
    parser = _Parser(prog="python -m holdfast.migrations")
    command = parser.add_subparsers(required=True, metavar="upgrade").add_parser(
        "upgrade", help="upgrade the database to the newest revision; safe to repeat"
    )
    command.add_argument("--dsn", default=os.environ.get("HOLDFAST_DSN"), help="else HOLDFAST_DSN")
    way = command.add_mutually_exclusive_group()
    way.add_argument("--sql", action="store_true", help="print the SQL and change nothing")
    way.add_argument(
        "--expand", action="store_true", help="stop before the first contract revision"
    )
    chosen = parser.parse_args(arguments)
    try:
        if chosen.sql:
            sys.stdout.write(script(chosen.dsn))
            return ExitCode.OK
        done = upgrade(chosen.dsn or "", expand=chosen.expand)
    except CommandError as error:
        sys.stderr.write(f"Error: {error}\n")
        return error.exit_code
    change = f"from {done.before or 'none'} " if done.changed else ""
    sys.stdout.write(f"The schema has revision {change and change + 'to '}{done.after}.\n")
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

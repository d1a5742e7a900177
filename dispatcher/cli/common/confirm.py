"""Asking a person before something happens."""

import sys

import typer

from sink.contract.exits import CommandError, ExitCode


def askable(*, yes: bool) -> None:
    """Raise `CommandError` (usage) where nobody can be asked and --yes was not said.

    A script has no terminal: it says what it means.
    """
    if not yes and not sys.stdin.isatty():
        raise CommandError(
            "nobody can be asked here, because standard input is no terminal. Nothing was changed;"
            " say --yes if it is meant.",
            ExitCode.USAGE,
        )


def confirm(question: str, *, yes: bool) -> None:
    """Return if a person says yes, here or with --yes before; raises `CommandError` if not."""
    if not yes and not typer.confirm(question):
        raise CommandError("nothing was sent or changed, because it was not confirmed.")

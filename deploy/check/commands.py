"""The arguments of containers, judged by the real parser of the `holdfast` command."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from holdfast.dispatcher.cli import main
from holdfast.dispatcher.operators.config.settings import SETTINGS

_REFERENCE = re.compile(r"\$\(([A-Za-z_][\w.-]*)\)")

SECRET_PREFIX = "HOLDFAST_SECRET_"  # noqa: S105 - the beginning of names

KNOWN = frozenset(each.name for each in SETTINGS)


def options_of(words: Sequence[str]) -> dict[str, Any]:
    """Return the values of all options of a command, with their defaults.

    Raises `ValueError` with the parser's reason; nothing is run.
    """
    command = main.command(words[0] if words else "")
    name, context, left = "holdfast", None, list(words)
    try:
        while True:
            context = command.make_context(name, left, parent=context)
            if not getattr(command, "commands", None):
                return dict(context.params)
            left = [*getattr(context, "_protected_args", ()), *context.args]
            name, command, left = command.resolve_command(context, left)
    except SystemExit:
        raise ValueError("it only prints its help") from None
    except typer.TyperException as error:
        raise ValueError(error.format_message() or "no command is named") from None


def fault_of(words: Sequence[str]) -> str | None:
    """Return why the arguments are no command, or None.

    >>> fault_of(["dispatch", "--listen", "0.0.0.0:9464"])
    """
    try:
        options_of(words)
    except ValueError as error:
        return f"`holdfast {' '.join(words)}`: {error}"
    return None


def filled(words: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """Replace each `$(NAME)` as Kubernetes does, which leaves an unknown one as it is."""
    return [_REFERENCE.sub(lambda m: variables.get(m[1], m[0]), word) for word in words]


def unknown_references(words: Sequence[str], variables: Mapping[str, str]) -> set[str]:
    """Return the names in `$(NAME)` that no variable has."""
    return {name for word in words for name in _REFERENCE.findall(word)} - variables.keys()


def unread(variable: str) -> bool:
    """Return whether a variable looks like one of ours and nothing reads it."""
    ours = variable.startswith("HOLDFAST_") and not variable.startswith(SECRET_PREFIX)
    return ours and variable not in KNOWN

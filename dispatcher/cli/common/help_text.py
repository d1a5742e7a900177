"""What `--help` shows of a command: its docstring, letter by letter, in lines of the terminal's."""

from inspect import cleandoc

import typer
from rich.markup import escape


def shown(text: str) -> str:
    r"""Return a docstring as the help takes it: a paragraph is one line, brackets are no markup.

    >>> shown("Make it.\n\n    [endpoint.NAME] is\n    a table.")
    'Make it.\n\n\\[endpoint.NAME] is a table.'
    """
    paragraphs = cleandoc(text).split("\n\n")
    return escape("\n\n".join(" ".join(each.split()) for each in paragraphs))


def tell(app: typer.Typer) -> None:
    """Give every command of `app`, and of its groups, its docstring as help, where it has none."""
    for command in app.registered_commands:
        if command.help is None and command.callback is not None and command.callback.__doc__:
            command.help = shown(command.callback.__doc__)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            tell(group.typer_instance)

"""One page of a list, printed the same way by every command that lists."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import typer

from dispatcher.cli.output import display, print_json
from dispatcher.operators.common.session import Row
from dispatcher.shared.text import shell_word
from sink.contract.exits import CommandError, ExitCode


@dataclass(frozen=True, slots=True)
class Page:
    """A page of rows under the name that they have in JSON, here and in the API."""

    name: str
    rows: Sequence[Row]
    further: Any = None
    """The cursor of the next page; None on the last, and where a list has one page."""

    option: str = "before"
    """The option that takes the cursor."""

    about: Row | None = None
    """What the rows have in common, as members beside them."""

    def content(self) -> Row:
        """Return what `--json` prints: the rows, and the cursor as `next_before`."""
        return {**(self.about or {}), self.name: self.rows, f"next_{self.option}": self.further}


def _cursor(further: Any) -> str:
    return further if isinstance(further, str) else display(further)


def print_page(
    page: Page, show: Callable[[Sequence[Row]], None], nothing: str, *, as_json: bool
) -> None:
    """Print a page as JSON or by `show`, and how to get the next one.

    Raises `CommandError` (nothing matched) with the text `nothing` for an empty list; its JSON is
    printed before.
    """
    if as_json:
        print_json(page.content())
    elif page.rows:
        show(page.rows)
    if not page.rows and page.further is None:
        raise CommandError(nothing, ExitCode.NOTHING_MATCHED)
    if not as_json and page.further is not None:
        kind = "older" if page.option == "before" else "more"
        typer.echo(f"{kind} rows: --{page.option} {shell_word(_cursor(page.further))}")

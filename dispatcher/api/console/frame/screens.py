"""What several screens have in common: which rows, what was not found, what a viewer may read."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from fastapi import Request

from dispatcher.api import bodies
from dispatcher.api.console.frame.templating import link
from sink.contract.exits import CommandError, ExitCode
from sink.contract.states import AccessRole

if TYPE_CHECKING:
    from dispatcher.api.console.frame.guard import Login

ROWS = 50

SHOWN = "shown"
"""What `body` or `text` of an address is where somebody asks for it."""

Row = dict[str, Any]

WHICH = ("open", "resolved", "all")
"""Rows that nobody has resolved, that somebody has, and both."""


class Tab(NamedTuple):
    """One of several lists of the same."""

    name: str
    address: str
    current: bool


def which_of(text: str) -> str:
    """Return which rows are wanted: open ones, unless `text` says otherwise; raises usage."""
    if not text:
        return WHICH[0]
    if text in WHICH:
        return text
    raise CommandError(
        f"which is one of {', '.join(WHICH)}. Nothing was changed; correct the address.",
        ExitCode.USAGE,
    )


def tabs(path: str, which: str, asked: dict[str, str]) -> list[Tab]:
    """Return the lists of open, of resolved and of all rows, with the same filters."""
    return [
        Tab(name, link(path, **asked, which=None if name == WHICH[0] else name), name == which)
        for name in WHICH
    ]


def rows_or_reason(look: Callable[[], list[Row]]) -> tuple[list[Row], str | None]:
    """Return the rows that are found, and None; or none, and why there can be none.

    Raises `CommandError` for everything that is not "nothing matched".
    """
    try:
        return look(), None
    except CommandError as refused:
        if refused.exit_code is not ExitCode.NOTHING_MATCHED:
            raise
        return [], str(refused)


def acts(person: "Login") -> bool:
    """Return whether somebody may change what goes on here, and read bodies."""
    return person.may(AccessRole.OPERATOR)


def shows(request: Request, person: "Login", asked: str) -> bool:
    """Return whether bodies, and what receivers answered, are to be shown.

    Raises 403 for a viewer who asks, and `CommandError` (usage) for a word that is none. A page of
    another site cannot make somebody's browser ask: it gets the page that offers it.
    """
    if not asked:
        return False
    if asked != SHOWN:
        raise CommandError(
            f"what shall be shown is {SHOWN}, or nothing. Nothing was shown; correct the address.",
            ExitCode.USAGE,
        )
    bodies.allow(person.session, body=True)
    return request.headers.get("sec-fetch-site", "none") in ("none", "same-origin")


def older_than(rows: list[Row], name: str) -> Any:
    """Return where the next page begins, by the last of a full page's rows; None: nothing is left.

    `rows` are as many as one more than a page, which is taken off.
    """
    if len(rows) <= ROWS:
        return None
    rows.pop()
    return rows[-1][name]

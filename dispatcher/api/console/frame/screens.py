"""What several pages share: selection of rows, missing rows, access to bodies."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from fastapi import Request

from holdfast.dispatcher.api import bodies
from holdfast.dispatcher.api.console.rendering.filters import link
from holdfast.dispatcher.operators.common.verbs import Page
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import AccessRole

if TYPE_CHECKING:
    from holdfast.dispatcher.api.console.frame.guard import Login

ROWS = 50

SHOWN = "shown"
"""Value of the parameters `body` and `text` that requests a body."""

Row = dict[str, Any]

WHICH = ("open", "resolved", "all")
"""Unresolved rows, resolved rows, and both."""


class Tab(NamedTuple):
    """A tab: one of several lists of the same kind."""

    name: str
    address: str
    current: bool


def which_of(text: str) -> str:
    """Return the selected tab, by default `open`; raises `CommandError` (usage) for an
    unknown one.
    """
    if not text:
        return WHICH[0]
    if text in WHICH:
        return text
    raise CommandError(
        f"which must be one of {', '.join(WHICH)}. Nothing was changed; correct the URL.",
        ExitCode.USAGE,
        code="invalid_value",
    )


def tabs(path: str, which: str, filters: dict[str, str]) -> list[Tab]:
    """Return the tabs of open, resolved and all rows, with the same filters."""
    return [
        Tab(name, link(path, **filters, which=None if name == WHICH[0] else name), name == which)
        for name in WHICH
    ]


def rows_or_reason(look: Callable[[], list[Row]]) -> tuple[list[Row], str | None]:
    """Return the rows and None; or no rows and the reason.

    Raises `CommandError` for every error other than "nothing matched".
    """
    try:
        return look(), None
    except CommandError as refused:
        if refused.exit_code is not ExitCode.NOTHING_MATCHED:
            raise
        return [], str(refused)


def page_or_reason(look: Callable[[], Page]) -> tuple[Page, str | None]:
    """Return a page and None; or an empty one and the reason, as `rows_or_reason`."""
    try:
        return look(), None
    except CommandError as refused:
        if refused.exit_code is not ExitCode.NOTHING_MATCHED:
            raise
        return Page(()), str(refused)


def acts(person: "Login") -> bool:
    """Return whether the person may change things and read bodies."""
    return person.may(AccessRole.OPERATOR)


def wants_bodies(request: Request, person: "Login", shown: str) -> bool:
    """Return whether bodies and receivers' responses are to be shown.

    Raises 403 for a viewer who requests them, and `CommandError` (usage) for an unknown value. A
    link on another site cannot request them: it gets the page without them.
    """
    if not shown:
        return False
    if shown != SHOWN:
        raise CommandError(
            f"the parameter must be {SHOWN} or empty. Nothing was shown; correct the URL.",
            ExitCode.USAGE,
            code="invalid_value",
        )
    bodies.allow(person.session, body=True)
    return request.headers.get("sec-fetch-site", "none") in ("none", "same-origin")


def older_than(rows: list[Row], name: str) -> Any:
    """Return the position of the next page, from the last row of this one; None if this is the
    last.

    `rows` holds up to one more row than a page; that one is removed.
    """
    if len(rows) <= ROWS:
        return None
    rows.pop()
    return rows[-1][name]

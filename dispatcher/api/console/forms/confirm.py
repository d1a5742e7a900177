"""The confirmation page of a change, and parsing of its form."""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from fastapi import Request
from fastapi.responses import Response

from holdfast.dispatcher.api.console.forms.fields import filled
from holdfast.dispatcher.api.console.frame.pages import page
from holdfast.dispatcher.api.requests import TEXT
from holdfast.dispatcher.operators.common.verbs import Question
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.numbers import is_whole
from holdfast.sink.contract.states import AccessRole

if TYPE_CHECKING:
    from holdfast.dispatcher.api.console.frame.guard import Login, Posted

REASON_CHARACTERS_MAX = 2000
PRINTS = re.compile(TEXT)

TYPED_ABOVE = 1000
"""A change of more rows than this is made only if their number is typed."""

CHOSEN_MAX = 200
"""Maximum number of rows of a list that are changed at once."""

Choice = TypeVar("Choice", bound=StrEnum)


def ask(
    request: Request,
    person: "Login",
    question: Question,
    rows: Sequence[Sequence[str]] = (),
    columns: Sequence[str] = (),
    *,
    least: AccessRole = AccessRole.OPERATOR,
) -> Response:
    """Return the page of a question; `rows` are those of the question if none are given.

    Only who has the role `least` gets its form.
    """
    return page(
        request,
        person,
        "frame/confirm.html",
        question=question,
        rows=rows or question.rows,
        columns=columns or question.columns,
        typed=question.count > TYPED_ABOVE,
        acts=person.may(least),
        least=least,
    )


def reason_of(form: "Posted") -> str:
    """Return the reason; raises `CommandError` (usage) if it is missing or not printable."""
    reason = form.get("reason", "").replace("\r\n", "\n").strip()
    if not reason or len(reason) > REASON_CHARACTERS_MAX or not PRINTS.fullmatch(reason):
        raise CommandError(
            f"a change needs a reason of 1 to {REASON_CHARACTERS_MAX} printable characters, for"
            " the audit trail. Nothing was changed; go back and give one.",
            ExitCode.USAGE,
            code="invalid_reason",
        )
    return reason


def typed(form: "Posted", count: int) -> None:
    """Raise `CommandError` (usage) if the number of a large change was not typed."""
    if count > TYPED_ABOVE and form.get("typed", "").strip().replace(",", "") != str(count):
        raise CommandError(
            f"this changes {count:,} rows at once, and that number was not typed. Nothing was"
            " changed; go back and type it.",
            ExitCode.USAGE,
            code="confirmation_required",
        )


def numbers_of(texts: Sequence[str]) -> list[int]:
    """Return the selected ids without duplicates; raises `CommandError` (usage)."""
    if not texts:
        raise CommandError(
            "nothing is selected. Nothing was changed; go back and tick at least one row.",
            ExitCode.USAGE,
            code="nothing_selected",
        )
    fine = [each for each in texts if is_whole(each) and int(each) > 0]
    if len(fine) != len(texts) or len(texts) > CHOSEN_MAX:
        raise CommandError(
            f"the selection is not 1 to {CHOSEN_MAX} ids. Nothing was changed; go back to the"
            " list.",
            ExitCode.USAGE,
            code="invalid_selection",
        )
    return list(dict.fromkeys(map(int, fine)))


def one_of(name: str, text: str, choices: type[Choice]) -> Choice | None:
    """Parse a choice; None if empty; raises `CommandError` (usage) for an unknown one."""
    if filled(text) is None:
        return None
    try:
        return choices(text)
    except ValueError:
        raise CommandError(
            f"{name} must be one of {', '.join(choices)}. Nothing was changed; correct the filter.",
            ExitCode.USAGE,
            code="invalid_value",
        ) from None


def values(choices: type[StrEnum]) -> tuple[str, ...]:
    """Return the choices."""
    return tuple(each.value for each in choices)

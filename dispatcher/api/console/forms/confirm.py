"""What a change is told by its form, and the page on which it is confirmed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from fastapi import Request
from fastapi.responses import Response

from dispatcher.api.console.forms.fields import given
from dispatcher.api.console.frame.pages import page
from dispatcher.api.requests import TEXT
from sink.contract.exits import CommandError, ExitCode
from sink.contract.states import AccessRole

if TYPE_CHECKING:
    from dispatcher.api.console.frame.guard import Login, Posted

REASON_CHARACTERS_MAX = 2000
PRINTS = re.compile(TEXT)

TYPED_ABOVE = 1000
"""A change of more than so many is made only by somebody who types their number."""

CHOSEN_MAX = 200
"""As many rows of a list are changed at once."""

NUMBER_DIGITS_MAX = 18

Choice = TypeVar("Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Question:
    """A change that waits for its yes."""

    title: str
    action: str
    """The address that the form is sent to."""

    button: str
    back: str
    says: Sequence[str]
    """What will happen, a sentence each, with its numbers."""

    warns: Sequence[str] = ()
    kept: Sequence[tuple[str, str]] = ()
    """Fields that are sent unseen."""

    agreed: tuple[str, str] | None = None
    """The name and the sentence of a box that must be ticked."""

    option: tuple[str, str] | None = None
    """The name and the sentence of a box that may be ticked."""

    rate: bool = False
    reason: bool = True
    danger: bool = False
    count: int = 0
    """To be typed where it is above `TYPED_ABOVE`."""


def ask(
    request: Request,
    person: "Login",
    question: Question,
    rows: Sequence[Sequence[str]] = (),
    columns: Sequence[str] = (),
) -> Response:
    """Return the page of a question; `rows` are what it is about, a text for each of `columns`."""
    return page(
        request,
        person,
        "frame/confirm.html",
        question=question,
        rows=rows,
        columns=columns,
        typed=question.count > TYPED_ABOVE,
        acts=person.may(AccessRole.OPERATOR),
    )


def reason_of(form: "Posted") -> str:
    """Return why; raises `CommandError` (usage) where nothing was said, or what is not kept."""
    reason = form.get("reason", "").replace("\r\n", "\n").strip()
    if not reason or len(reason) > REASON_CHARACTERS_MAX or not PRINTS.fullmatch(reason):
        raise CommandError(
            f"a change needs a reason of 1 to {REASON_CHARACTERS_MAX} characters that print, for"
            " the audit trail. Nothing was changed; go back and give one.",
            ExitCode.USAGE,
        )
    return reason


def typed(form: "Posted", count: int) -> None:
    """Raise `CommandError` (usage) where a large number was not typed as it is."""
    if count > TYPED_ABOVE and form.get("typed", "").strip().replace(",", "") != str(count):
        raise CommandError(
            f"this changes {count:,} at once, and that number was not typed. Nothing was changed;"
            " go back and type it.",
            ExitCode.USAGE,
        )


def numbers_of(texts: Sequence[str]) -> list[int]:
    """Return the numbers that were chosen, each once; raises `CommandError` (usage)."""
    if not texts:
        raise CommandError(
            "nothing was chosen. Nothing was changed; go back and tick what it is about.",
            ExitCode.USAGE,
        )
    fine = [
        each
        for each in texts
        if each.isascii() and each.isdigit() and len(each) <= NUMBER_DIGITS_MAX and int(each) > 0
    ]
    if len(fine) != len(texts) or len(texts) > CHOSEN_MAX:
        raise CommandError(
            f"what was chosen is not 1 to {CHOSEN_MAX} numbers. Nothing was changed; go back to the"
            " list.",
            ExitCode.USAGE,
        )
    return list(dict.fromkeys(map(int, fine)))


def one_of(name: str, text: str, choices: type[Choice]) -> Choice | None:
    """Read a selection; None for none, `CommandError` (usage) for what cannot be selected."""
    if given(text) is None:
        return None
    try:
        return choices(text)
    except ValueError:
        raise CommandError(
            f"{name} is one of {', '.join(choices)}. Nothing was changed; correct the filter.",
            ExitCode.USAGE,
        ) from None


def values(choices: type[StrEnum]) -> tuple[str, ...]:
    """Return what can be selected."""
    return tuple(each.value for each in choices)

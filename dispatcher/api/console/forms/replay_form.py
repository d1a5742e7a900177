"""The form of a new replay: what it asks for, and reading what was given."""

import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING
from uuid import UUID

from dispatcher.api.console.forms.forms import given, moment, whole
from dispatcher.operators.replays.rules import (
    ReplayFilter,
    ReplayFilterError,
    ReplayScope,
    few_keys_of,
)
from sink.contract.exits import CommandError, ExitCode

if TYPE_CHECKING:
    from dispatcher.api.console.frame.guard import Posted

RATE_MAX = 1_000_000
"""Entries a second, as the command has it."""

TYPES_MAX = 100

BATCHES = re.compile(r"(\d{1,18})(?:\.\.(\d{1,18}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Given:
    """The fields of the form, as they were typed; empty: not given."""

    endpoint: str = ""
    subject: str = ""
    stream: str = ""
    batch: str = ""
    since: str = ""
    until: str = ""
    state: tuple[str, ...] = ()
    types: str = ""
    keys: str = ""
    rate: str = ""
    limit: str = ""
    outside_window: str = ""
    reason: str = ""
    plan: str = ""

    @classmethod
    def of(cls, form: "Posted") -> "Given":
        """Return what a form holds."""
        texts = {each.name: form.get(each.name, "") for each in fields(cls) if each.name != "state"}
        return cls(**texts, state=tuple(form.getlist("state")))


def filter_of(form: Given) -> ReplayFilter:
    """Return what the form says; raises `CommandError` (usage) for what cannot be used."""
    first, last = _batches(form.batch)
    wanted = ReplayFilter(
        endpoint=given(form.endpoint),
        subject=given(form.subject),
        stream=given(form.stream),
        first_batch=first,
        last_batch=last,
        since=moment("written since", form.since),
        until=moment("written before", form.until),
        states=_states(form.state),
        types=_types(form.types),
        keys=few_keys_of(form.keys.split()),
    )
    try:
        wanted.check()
    except ReplayFilterError as error:
        raise _usage(str(error)) from None
    return wanted


def rate_of(form: "Posted | Given") -> int | None:
    """Return the entries a second of a replay; raises `CommandError` (usage)."""
    text = form.rate if isinstance(form, Given) else form.get("rate", "")
    rate = whole("entries a second", text)
    if rate is not None and not 1 <= rate <= RATE_MAX:
        raise _usage(f"entries a second are 1 to {RATE_MAX:,}")
    return rate


def limit_of(form: Given) -> int | None:
    """Return how many entries a plan has at most; raises `CommandError` (usage)."""
    limit = whole("the first so many", form.limit)
    if limit == 0:
        raise _usage("the first 0 entries are none")
    return limit


def id_of(text: str) -> UUID:
    """Return the id that a form was made with, so that sending it twice plans once."""
    try:
        return UUID(text)
    except ValueError:
        raise _usage("the form is not one of the console's; load it again") from None


def _states(texts: tuple[str, ...]) -> tuple[ReplayScope, ...]:
    try:
        return tuple(dict.fromkeys(map(ReplayScope, texts)))
    except ValueError:
        raise _usage(f"a state is one of {', '.join(ReplayScope)}") from None


def _types(text: str) -> tuple[str, ...]:
    types = tuple(dict.fromkeys(text.split()))
    if len(types) > TYPES_MAX or any(given(each) is None for each in types):
        raise _usage(f"of more than {TYPES_MAX} types no replay is planned")
    return types


def _batches(text: str) -> tuple[int | None, int | None]:
    if given(text) is None:
        return None, None
    found = BATCHES.fullmatch(text.strip())
    if found is None:
        raise _usage("a batch is a number, or a range such as 120..125")
    first, last = found.groups()
    return int(first), int(last or first)


def _usage(what: str) -> CommandError:
    return CommandError(f"{what}. Nothing was planned.", ExitCode.USAGE)

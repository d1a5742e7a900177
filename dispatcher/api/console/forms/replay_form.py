"""The form of a new replay, and parsing of its fields."""

import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING
from uuid import UUID

from holdfast.dispatcher.api.console.forms.fields import exact_time, filled, whole_number
from holdfast.dispatcher.operators.replays.rules import (
    ReplayFilter,
    ReplayFilterError,
    ReplayScope,
    few_keys_of,
)
from holdfast.sink.contract.exits import CommandError, ExitCode

if TYPE_CHECKING:
    from holdfast.dispatcher.api.console.frame.guard import Posted

RATE_MAX = 1_000_000
"""Entries per second, as in the command."""

TYPES_MAX = 100

BATCHES = re.compile(r"(\d{1,18})(?:\.\.(\d{1,18}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ReplayFields:
    """The fields of the form as typed; empty: not given."""

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
    def of(cls, form: "Posted") -> "ReplayFields":
        """Return the fields of a posted form."""
        texts = {each.name: form.get(each.name, "") for each in fields(cls) if each.name != "state"}
        return cls(**texts, state=tuple(form.getlist("state")))


def filter_of(form: ReplayFields) -> ReplayFilter:
    """Return the filter that the form describes; raises `CommandError` (usage) if it is not
    valid.
    """
    first, last = _batches(form.batch)
    wanted = ReplayFilter(
        endpoint=filled(form.endpoint),
        subject=filled(form.subject),
        stream=filled(form.stream),
        first_batch=first,
        last_batch=last,
        since=exact_time("written since", form.since),
        until=exact_time("written before", form.until),
        states=_states(form.state),
        types=_types(form.types),
        keys=few_keys_of(form.keys.split()),
    )
    try:
        wanted.check()
    except ReplayFilterError as error:
        raise _usage(str(error), code="invalid_filter") from None
    return wanted


def rate_of(form: "Posted | ReplayFields") -> int | None:
    """Return the rate of a replay in entries per second; raises `CommandError` (usage)."""
    text = form.rate if isinstance(form, ReplayFields) else form.get("rate", "")
    rate = whole_number("entries per second", text)
    if rate is not None and not 1 <= rate <= RATE_MAX:
        raise _usage(f"the rate must be 1 to {RATE_MAX:,} entries per second", code="invalid_value")
    return rate


def limit_of(form: ReplayFields) -> int | None:
    """Return the maximum number of entries of a plan; raises `CommandError` (usage)."""
    limit = whole_number("the maximum number of entries", form.limit)
    if limit == 0:
        raise _usage("the maximum number of entries must be at least 1", code="invalid_value")
    return limit


def id_of(text: str) -> UUID:
    """Return the id in the form, so that posting it twice makes one plan."""
    try:
        return UUID(text)
    except ValueError:
        raise _usage("the form has no valid plan id; load it again", code="invalid_id") from None


def _states(texts: tuple[str, ...]) -> tuple[ReplayScope, ...]:
    try:
        return tuple(dict.fromkeys(map(ReplayScope, texts)))
    except ValueError:
        raise _usage(
            f"a state must be one of {', '.join(ReplayScope)}", code="invalid_value"
        ) from None


def _types(text: str) -> tuple[str, ...]:
    types = tuple(dict.fromkeys(text.split()))
    if len(types) > TYPES_MAX or any(filled(each) is None for each in types):
        raise _usage(f"a replay takes at most {TYPES_MAX} types", code="invalid_value")
    return types


def _batches(text: str) -> tuple[int | None, int | None]:
    if filled(text) is None:
        return None, None
    match = BATCHES.fullmatch(text.strip())
    if match is None:
        raise _usage(
            "a batch must be a batch id, or a range such as 120..125", code="invalid_batch_range"
        )
    first, last = match.groups()
    return int(first), int(last or first)


def _usage(what: str, *, code: str) -> CommandError:
    return CommandError(f"{what}. Nothing was planned.", ExitCode.USAGE, code=code)

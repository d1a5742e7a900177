"""Subjects: the repaired state of a silenced one, holds, the range of names with a prefix. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from holdfast.dispatcher.operators.common.text import span
from holdfast.dispatcher.shared.text import last_word
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.envelope import is_type
from holdfast.sink.contract.exits import CommandError, ExitCode


class State(NamedTuple):
    """A transition state: the sink compares a stream's next decision about a subject with it."""

    last_type: str
    last_occurred_at: datetime

    def as_json(self) -> dict[str, str]:
        """Return it as JSON values."""
        return {"last_type": self.last_type, "last_occurred_at": rfc3339(self.last_occurred_at)}


@dataclass(frozen=True, slots=True)
class By:
    """The new state that a person gives; without any, the stored entries determine it."""

    type: str | None = None
    time: datetime | None = None
    nothing: bool = False


def repair_commands(subject: Mapping[str, Any]) -> list[str]:
    """Return a command for each stream in which the subject is silenced."""
    return [
        f"holdfast subject repair --stream {row['stream']} --reason TEXT"
        f" {last_word(subject['name'])}"
        for row in subject["transitions"]
        if row["ahead"]
    ]


def state_after(state: Mapping[str, Any], by: By) -> State | None:
    """Return the new state for a row of `repair_states`; None removes the state.

    Raises `CommandError` when the state is not ahead of the clock, when `by` contradicts itself or
    the stored entries, and when `by` is empty although no entry is stored.
    """
    if not state["ahead"]:
        raise CommandError(
            f"its state in {state['stream']} is of {rfc3339(state['last_occurred_at'])}, which"
            " silences nothing. Nothing was changed.",
            ExitCode.NOTHING_MATCHED,
            code="not_silenced",
        )
    has_state = by.type is not None or by.time is not None
    if (has_state and (by.nothing or by.type is None or by.time is None)) or (
        by.type is not None and not is_type(by.type)
    ):
        raise _invalid_state("the new state is a type and a time, or nothing")
    if by.time is not None and by.time > state["latest"]:
        raise _invalid_state(
            f"a time after {rfc3339(state['latest'])} would silence the subject again"
        )
    stored = None
    if state["stored_type"] is not None and state["stored_occurred_at"] is not None:
        stored = State(state["stored_type"], state["stored_occurred_at"])
    if stored is not None and (has_state or by.nothing):
        raise _invalid_state(
            "its stored entries determine the new state"
            f" ({stored.last_type} of {rfc3339(stored.last_occurred_at)}), so give none"
        )
    if stored is None and not has_state and not by.nothing:
        raise CommandError(
            "no stored entry determines the new state. Nothing was changed; give it with --to-type"
            " and --to-time (to_type, to_time), or with --to-nothing (to_nothing), after which the"
            " stream's next decision is written whatever it is.",
            code="state_undetermined",
        )
    if stored is not None:
        return stored
    return State(by.type, by.time) if by.type is not None and by.time is not None else None


def _invalid_state(why: str) -> CommandError:
    return CommandError(f"{why}. Nothing was changed.", ExitCode.USAGE, code="invalid_state")


FOR_EVER = datetime(9999, 1, 1, tzinfo=UTC)
"""The stored end of a hold that only a person ends."""


def hold_of(lane: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the hold in a lane's row, as JSON of the database; None without a row.

    It has `since`, `until` (None: until a person resumes it), `by` and `reason`.
    """
    if lane is None:
        return None
    until = datetime.fromisoformat(lane["on_hold_until"])
    return {
        "since": datetime.fromisoformat(lane["on_hold_since"]),
        "until": None if until >= FOR_EVER else until,
        "by": lane["on_hold_by"],
        "reason": lane["on_hold_reason"],
    }


def replay_warning(unaware: str) -> str | None:
    """Return what dispatchers of older code, by their names, still do to a subject on hold."""
    if not unaware:
        return None
    return (
        f"{unaware} runs an older version, whose replays do not see the hold: cancel the open"
        " replays of this subject (`holdfast replay list`), or replace it"
    )


def window_warning(window_seconds: int | None, lasts: timedelta | None) -> str | None:
    """Return what a hold that `lasts` so long (None: until it is resumed) does to keys, if any.

    `window_seconds` is how long the receiver keeps keys: None for ever, or not known.
    """
    if window_seconds is None or (lasts and lasts.total_seconds() <= window_seconds):
        return None
    return (
        f"the receiver keeps keys for {span(window_seconds)}, whatever is on hold: an entry that"
        " was tried before the hold and waits longer becomes a dead letter, as sending it again"
        " could repeat the action"
    )


_LAST = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def beyond(prefix: str) -> str | None:
    """Return the first text after all that begin with `prefix`, in byte order; None without one.

    >>> beyond("m_4"), beyond(""), beyond("a\\U0010ffff"), beyond("\\ud7ff") == "\\ue000"
    ('m_5', None, 'b', True)
    """
    rest = prefix.rstrip(chr(_LAST))
    if not rest:
        return None
    code = ord(rest[-1]) + 1
    return rest[:-1] + chr(_SURROGATES.stop if code in _SURROGATES else code)

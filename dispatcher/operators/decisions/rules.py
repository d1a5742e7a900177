"""A decision by hand: its key, its body, and when it is refused. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any
from uuid import UUID

from holdfast.dispatcher.operators.reissue.rules import entry_text
from holdfast.dispatcher.shared.text import last_word
from holdfast.sink.contract.canonical import canonical_json, rfc3339
from holdfast.sink.contract.envelope import Envelope
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key

NAMESPACE = "by-hand/v1"
"""The first part of the keys of all decisions by hand."""

TYPES = "payout_hold"
"""The first word of their types, as of the decisions of the exposure job."""


class Action(Enum):
    """What a person decides."""

    BLOCK = "block"
    RELEASE = "release"

    @property
    def type(self) -> str:
        """The type of the entry."""
        return f"{TYPES}.{self.value}"

    @property
    def priority(self) -> int:
        """Blocks stop outgoing money: they are sent before releases that are due."""
        return 0 if self is Action.BLOCK else 1

    @property
    def done(self) -> str:
        """In a sentence."""
        return "blocked" if self is Action.BLOCK else "released"


@dataclass(frozen=True, slots=True)
class ByHand:
    """A decision by hand that is to be written for a stream."""

    stream: str
    subject: str
    action: Action
    id: UUID
    occurred_at: datetime

    @property
    def parts(self) -> list[str]:
        """The parts of its key: nothing that a repeated request would change."""
        return [NAMESPACE, self.stream, self.subject, self.action.value, str(self.id)]

    @property
    def key(self) -> Key:
        """Its key."""
        return Key.of(self.parts)

    @property
    def data(self) -> dict[str, str]:
        """The `data` of its body."""
        return {"merchant_id": self.subject, "action": self.action.value, "origin": "hand"}

    @property
    def text(self) -> str:
        """The entry as JSON text, the sink's form for single entries."""
        body = canonical_json({"data": self.data}).decode()
        entry = {
            "subject": self.subject,
            "type": self.action.type,
            "occurred_at": self.occurred_at,
            "priority": self.action.priority,
            "traceparent": None,
            "body": body,
        }
        return entry_text(entry, self.parts)

    def body(self, sequence: int) -> str:
        """Return the body that receivers get."""
        made = Envelope.of(self.action.type, self.occurred_at, self.key, self.data)
        return made.body(sequence).decode()


def require_decidable(stream: Mapping[str, Any], subject: str, newest: Mapping[str, Any]) -> None:
    """Raise `CommandError` for a stream for which no person may decide about a subject.

    `stream` is a row of `decisions/stream`, `newest` one of `common/newest_decision`.
    """
    name = stream["name"]
    if stream["acts_for"] is not None:
        raise CommandError(
            f"stream {name!r} holds what people wrote by hand for {stream['acts_for']!r}. Nothing"
            f" was changed; decide for that one: --stream {last_word(stream['acts_for'])}.",
            code="stream_written_by_hand",
        )
    if stream["publishes_windows"]:
        raise CommandError(
            f"an exposure job decides for stream {name!r}, and it does not know decisions by hand:"
            f" its next window could overrule this one unseen. Nothing was changed. To keep back"
            f" what it decides about {subject!r}, hold the subject: `holdfast subject hold"
            f" --endpoint NAME --reason TEXT {last_word(subject)}`.",
            code="job_decides",
        )
    if not stream["has_decided"]:
        raise CommandError(
            f"stream {name!r} has not decided anything yet, so nobody can tell whether an exposure"
            " job will, which does not know decisions by hand. Nothing was changed; decide once its"
            " first entry is written (`holdfast stream show`).",
            code="stream_undecided",
        )
    own = newest["own_type"]
    if own is not None and own.rpartition(".")[0] != TYPES:
        raise CommandError(
            f"the last decision about {subject!r} in stream {name!r} is of type {own}, and those by"
            f" hand are of {TYPES}.block and {TYPES}.release. Nothing was changed; let the job"
            " of that stream decide.",
            code="other_types",
        )


def changes_nothing(subject: str, action: Action, newest: Mapping[str, Any]) -> CommandError:
    """Return the error for a subject that is in the wanted state already."""
    at = rfc3339(newest["own_occurred_at"])
    return CommandError(
        f"{subject!r} is {action.done} already, since {at}: another {action.value} would change"
        f" nothing at any receiver. Nothing was changed; see `holdfast why {last_word(subject)}`.",
        ExitCode.NOTHING_MATCHED,
        code="already_decided",
    )


def moved(subject: str) -> CommandError:
    """Return the error for a subject of which another decision was written meanwhile."""
    return CommandError(
        f"another decision about {subject!r} was written since this one was shown. Nothing was"
        f" changed; see `holdfast why {last_word(subject)}`, and decide again if it is still"
        " right.",
        code="subject_changed",
    )

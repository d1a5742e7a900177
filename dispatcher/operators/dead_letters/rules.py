"""What a dead letter holds, and what a person can do about it, from its row alone. Pure."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from holdfast.sink.contract.states import DeadReason

WAITING_MAX = 1000
"""Maximum count of entries behind a dead letter; the maximum means that many or more."""


_ANSWER = re.compile(r"(answered [0-9]+): .*", re.DOTALL)


class Advice(NamedTuple):
    """A command and its effect."""

    command: str
    effect: str


def without_answer(detail: str) -> str:
    """Return the detail of an attempt, a text of `decide.detail_of`, without the receiver's answer.

    >>> without_answer("answered 400: m_482 is unknown"), without_answer("no answer: timed out")
    ('answered 400', 'no answer: timed out')
    """
    return _ANSWER.sub(r"\1", detail) if _ANSWER.fullmatch(detail) else detail


def what_it_holds(row: Mapping[str, Any]) -> str:
    """Return what waits behind the dead letter, from a row of `dead_letters/take`."""
    if row["resolution"] is not None:
        return "nothing: it is resolved"
    if not row["holds_lane"]:
        return "nothing: the lane continues without it"
    count = row["waiting"]
    if not count:
        return "its lane: the next decision about this subject waits behind it"
    number = f"{count} or more" if count == WAITING_MAX else str(count)
    entries = "entry of this subject waits" if count == 1 else "entries of this subject wait"
    return f"its lane: {number} later {entries}"


def what_helps(row: Mapping[str, Any]) -> list[Advice]:
    """Return the advice for an open dead letter; none for a resolved one.

    `row` is one of `dead_letters/take`, with the key as receivers get it.
    """
    if row["resolution"] is not None:
        return []
    key, endpoint, skip = row["key"], row["endpoint"], row["holds_lane"]
    behind = "; its lane then continues" if skip else ""
    return [
        *_first(DeadReason(row["reason"]), endpoint),
        Advice(
            f"holdfast redeliver {key} --endpoint {endpoint} --reason TEXT",
            f"sends the same key and bytes again, which is safe{behind}"
            + _if_rejected(DeadReason(row["reason"])),
        ),
        Advice(
            f"holdfast reissue {key} --reason TEXT",
            "makes the decision again under a new key: the business action is REPEATED if it was"
            " done",
        ),
        Advice(
            f"holdfast dead-letter dismiss {row['id']}{' --skip' if skip else ''} --reason TEXT",
            f"gives it up: {endpoint} never gets it{behind}",
        ),
    ]


def _first(reason: DeadReason, endpoint: str) -> list[Advice]:
    """Return what must be corrected first when Holdfast itself refused to send it."""
    if reason is not DeadReason.REFUSED:
        return []
    effect = "Holdfast itself did not send it: the detail says why; correct that first"
    return [Advice(f"holdfast endpoint show {endpoint}", effect)]


def _if_rejected(reason: DeadReason) -> str:
    if reason is not DeadReason.REJECTED:
        return ""
    return "; the receiver rejected it, and will again unless it was corrected"

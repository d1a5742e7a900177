"""Which decision an entry written by hand would overtake: a newer one by event time. Pure.

Receivers act on a subject's last entry, so no person makes an older decision the last one alone.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from typing_extensions import TypedDict

from holdfast.dispatcher.operators.common.verbs import Doc, Time
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.requeue import Overtakes


class NewerDecision(TypedDict):
    """The newest decision of a subject, which an older entry would follow."""

    stream: str
    type: str
    occurred_at: Time
    sequence: Annotated[int | None, Doc("null once its partition was dropped, as `key`.")]
    key: str | None
    last_sequence: Annotated[int, Doc("The subject's last sequence.")]


def overtaken(
    newest: Mapping[str, Any] | None,
    occurred_at: datetime,
    type_: str,
    *,
    sequence: int | None = None,
    dated_by_hand: bool = False,
) -> dict[str, Any] | None:
    """Return the decision that an entry of this time would overtake, as JSON; None: it is newest.

    `newest` is a row of `common/newest_decision`. Two revisions of one window have one time:
    the later `sequence` is newer, and an entry that has none yet may be the older one. A time that
    was given by hand proves nothing, so such an entry overtakes any decision. `key` and `sequence`
    of the result are None once that is pruned; `last_sequence` is the subject's.
    """
    if newest is None or newest["occurred_at"] is None:
        return None
    behind = newest["sequence"] is None or sequence is None or sequence < newest["sequence"]
    as_old = occurred_at == newest["occurred_at"] and type_ != newest["type"] and behind
    if occurred_at >= newest["occurred_at"] and not as_old and not dated_by_hand:
        return None
    return {
        "stream": newest["stream"],
        "type": newest["type"],
        "occurred_at": rfc3339(newest["occurred_at"]),
        "sequence": newest["sequence"],
        "key": newest["key"] and Key(newest["key"]).text,
        "last_sequence": newest["last_sequence"],
    }


def may_overtake(decision: Mapping[str, Any] | None) -> Overtakes | None:
    """Return a result of `overtaken` for the sink."""
    if decision is None:
        return None
    return Overtakes(decision["last_sequence"], datetime.fromisoformat(decision["occurred_at"]))


def overtaken_text(decision: Mapping[str, Any]) -> str:
    """Return an overtaken decision in words.

    >>> text = "2026-11-02T12:15:00Z"
    >>> overtaken_text({"type": "a.b", "occurred_at": text, "stream": "s", "key": None})
    'a.b of 2026-11-02T12:15:00Z in stream s'
    """
    key = f" ({decision['key']})" if decision["key"] else ""
    return f"{decision['type']} of {decision['occurred_at']} in stream {decision['stream']}{key}"

"""Single entries sent again under their old keys: a plan of these keys, and what it leaves out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from dispatcher.operators.common.person import ALONE_MAX
from dispatcher.operators.common.session import Row
from dispatcher.operators.common.words import MEANS, visible
from dispatcher.operators.entries.rules import Stage
from dispatcher.operators.entries.store import Entries
from dispatcher.operators.reissue.rules import never_sent_again
from dispatcher.operators.replays.actions import planned
from dispatcher.operators.replays.filter import ReplayFilter
from dispatcher.operators.replays.store import ReplayStore
from sink.contract.canonical import rfc3339
from sink.contract.key import Key
from sink.contract.states import ReplayKind, ReplayState

NOTHING_TO_DO = "nothing to do"
NOT_APPLIED = "not applied"
"""Reasons with which a plan of keys is cancelled."""


@dataclass(frozen=True, slots=True)
class Redelivery:
    """A plan of keys."""

    row: Row
    """As `ReplayStore.show` has it."""

    items: list[Row]
    """What is sent: key, subject, endpoint, kind, what_happens."""

    nothing: list[Row]
    """What is left as it is: key, endpoint (None: no endpoint wants it), why."""


def standing_of(store: Entries, keys: Sequence[UUID]) -> list[Row]:
    """Return the entries; raises `CommandError` (nothing matched) where one is not there."""
    return [store.entry(Key(key)) for key in keys]


def plan_of_keys(
    store: ReplayStore,
    id_: UUID,
    standing: Sequence[Row],
    *,
    endpoint: str | None,
    reason: str,
    rate: int | None,
    outside_window: bool,
    alone: int = ALONE_MAX,
) -> Redelivery:
    """Plan to send these entries again; a plan that is there under this id is returned.

    Raises what `planned` does.
    """
    keys = tuple(Key.parse(each["key"]).digest for each in standing)
    wanted = ReplayFilter(endpoint=endpoint, keys=keys)
    row = planned(
        store,
        id_,
        wanted,
        reason=reason,
        rate=rate,
        outside_window=outside_window,
        alone=alone,
    )
    items = [_item(each) for each in store.items(id_, limit=row["item_count"] or 1)]
    return Redelivery(row, items, _nothing(standing, items, endpoint, store.reissued(keys)))


def redelivered_before(plan: Redelivery) -> bool:
    """Return whether the plan is past the point where it can be taken back."""
    return bool(plan.row["state"] != ReplayState.PLANNED)


def _item(item: Row) -> Row:
    return {
        "key": Key(item["key"]).text,
        "subject": item["subject"],
        "endpoint": item["endpoint"],
        "kind": item["kind"],
        "what_happens": MEANS[ReplayKind(item["kind"])],
    }


def _nothing(
    standing: Sequence[Row],
    items: Sequence[Row],
    endpoint: str | None,
    reissued: Mapping[str, str],
) -> list[Row]:
    """Return where nothing is done about an entry, with the reason."""
    done = {(item["key"], item["endpoint"]) for item in items}
    found = []
    for entry in standing:
        at = [each for each in entry["delivery"] if endpoint in (None, each["endpoint"])]
        left = [each for each in at if (entry["key"], each["endpoint"]) not in done]
        found += [
            {
                "key": entry["key"],
                "endpoint": each["endpoint"],
                "why": _why(each, reissued.get(entry["key"])),
            }
            for each in left
        ]
        if not at:
            found.append({"key": entry["key"], "endpoint": None, "why": "no endpoint wants it"})
    return found


def _why(each: Row, new_key: str | None) -> str:
    held = f" ({each['held_up']})" if each["held_up"] else ""
    match Stage(each["state"]):
        case Stage.UNROUTED:
            said = "it is about to be sent for the first time"
        case Stage.SENDING:
            said = f"it is being sent right now, by a lease until {_at(each)}"
        case Stage.DUE:
            said = f"it is due at {_at(each)}, and sent without this; see `holdfast why`"
        case Stage.BEHIND if each["behind_sequence"] is None:
            said = "the endpoint takes its type no more"
        case Stage.BEHIND:
            said = f"it is sent in its turn, behind sequence {each['behind_sequence']}"
        case Stage.STOPPED:
            said = "its lane waits for a person"
        case Stage.DEAD | Stage.PASSED if new_key is not None:
            said = f"it {never_sent_again(new_key)}"
        case Stage.DELIVERED | Stage.DEAD | Stage.PASSED:
            said = "another replay that is under way sends it"
    return said + held


def _at(each: Row) -> str:
    return visible(rfc3339(each["at"])) if each["at"] else "-"

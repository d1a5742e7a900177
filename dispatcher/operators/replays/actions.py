"""Plans of replays under ids that callers make, and single entries sent again under their keys.

The caller's id makes planning idempotent: the same request twice plans once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from holdfast.dispatcher.operators.common.person import ALONE_MAX
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.text import visible
from holdfast.dispatcher.operators.entries.rules import Stage
from holdfast.dispatcher.operators.entries.store import Entries
from holdfast.dispatcher.operators.reissue.rules import never_sent_again
from holdfast.dispatcher.operators.replays.rules import MEANS, ReplayFilter
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.states import ReplayKind, ReplayState, ReplayVerb


def planned(
    store: Replays,
    id_: UUID,
    filter_: ReplayFilter,
    *,
    reason: str,
    rate: int | None = None,
    outside_window: bool = False,
    limit: int | None = None,
    alone_max: int = ALONE_MAX,
) -> Row:
    """Write a plan under the caller's id, or return the existing one with that id.

    Raises `CommandError` when the existing one is another plan, and what `Replays.plan` raises.
    """
    row = store.plan(
        filter_,
        reason=reason,
        rate=rate,
        outside_window=outside_window,
        limit=limit,
        id_=id_,
        alone_max=alone_max,
    )
    requested = (ReplayVerb.REDELIVER, filter_.stored(), reason, rate, outside_window, limit)
    stored = (row["verb"], row["filter"], row["reason"], row["rate_per_second"])
    if requested != (*stored, row["outside_window"], row["item_limit"]):
        raise taken(id_)
    return row


def applied(store: Replays, id_: UUID, reason: str | None = None) -> Row:
    """Apply a plan and return its `status`; idempotent for one that is applying or applied.

    The audit trail gets `reason`, or the plan's reason. Raises what `Replays.apply` raises.
    """
    row = store.show(id_)
    if (row["verb"], row["state"]) != (ReplayVerb.REDELIVER, ReplayState.APPLIED):
        store.apply(id_, reason)
    return store.status(id_)


def taken(id_: UUID) -> CommandError:
    """Return the error for an id of another replay."""
    return CommandError(
        f"the id {id_} belongs to another replay. Nothing was changed; use a new id.",
        code="id_in_use",
    )


NOTHING_TO_DO = "nothing to do"
NOT_APPLIED = "not applied"
"""The reasons with which a plan of keys is cancelled."""


@dataclass(frozen=True, slots=True)
class Redelivery:
    """A plan of keys."""

    row: Row
    """A result of `Replays.show`."""

    items: list[Row]
    """What is sent: key, subject, endpoint, kind, what_happens."""

    nothing: list[Row]
    """What stays unchanged: key, endpoint (None: no endpoint takes it), why."""


def standing_of(store: Entries, keys: Sequence[UUID]) -> list[Row]:
    """Return the entries; raises `CommandError` (nothing matched) if one is not stored."""
    return [store.entry(Key(key)) for key in keys]


def plan_of_keys(
    store: Replays,
    id_: UUID,
    standing: Sequence[Row],
    *,
    endpoint: str | None,
    reason: str,
    rate: int | None,
    outside_window: bool,
    alone_max: int = ALONE_MAX,
) -> Redelivery:
    """Plan to send these entries again, or return the existing plan with this id.

    A plan that has nothing to do is cancelled. Raises what `planned` raises.
    """
    keys = tuple(Key.parse(each["key"]).digest for each in standing)
    filter_ = ReplayFilter(endpoint=endpoint, keys=keys)
    row = planned(
        store,
        id_,
        filter_,
        reason=reason,
        rate=rate,
        outside_window=outside_window,
        alone_max=alone_max,
    )
    items = [_item(each) for each in store.items(id_, limit=row["item_count"] or 1)]
    if not items and row["state"] == ReplayState.PLANNED:
        store.cancel(id_, NOTHING_TO_DO)
    return Redelivery(row, items, _nothing(standing, items, endpoint, store.reissued(keys)))


def apply_keys(store: Replays, plan: Redelivery) -> Row:
    """Apply a plan of keys as `applied` does; cancel it if it is refused."""
    try:
        return applied(store, plan.row["id"])
    except CommandError:
        cancel_keys(store, plan)
        raise


def cancel_keys(store: Replays, plan: Redelivery) -> None:
    """Cancel a plan of keys that is not applied, unless it ended before."""
    if plan.row["state"] == ReplayState.PLANNED:
        store.cancel(plan.row["id"], NOT_APPLIED)


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
    """Return the entries and endpoints at which nothing is done, with the reason."""
    done = {(item["key"], item["endpoint"]) for item in items}
    unchanged = []
    for entry in standing:
        at = [each for each in entry["delivery"] if endpoint in (None, each["endpoint"])]
        left = [each for each in at if (entry["key"], each["endpoint"]) not in done]
        unchanged += [
            {
                "key": entry["key"],
                "endpoint": each["endpoint"],
                "why": _why(each, reissued.get(entry["key"])),
            }
            for each in left
        ]
        if not at:
            unchanged.append({"key": entry["key"], "endpoint": None, "why": "no endpoint takes it"})
    return unchanged


def _why(each: Row, new_key: str | None) -> str:
    held = f" ({each['held_up']})" if each["held_up"] else ""
    match Stage(each["state"]):
        case Stage.UNROUTED:
            reason = "it is about to be sent for the first time"
        case Stage.SENDING:
            reason = f"it is being sent right now, by a lease until {_at(each)}"
        case Stage.DUE:
            reason = f"it is due at {_at(each)}, and sent in any case; see `holdfast why`"
        case Stage.BEHIND if each["behind_sequence"] is None:
            reason = "the endpoint no longer takes its type"
        case Stage.BEHIND:
            reason = f"it is sent in order, after sequence {each['behind_sequence']}"
        case Stage.STOPPED:
            reason = "its lane waits for a person"
        case Stage.CANCELLED:
            reason = (
                f"{visible(each['cancelled_by'])} cancelled it at {_at(each)}: it is never sent"
            )
        case Stage.DEAD | Stage.PASSED if new_key is not None:
            reason = f"it {never_sent_again(new_key)}"
        case Stage.DELIVERED | Stage.DEAD | Stage.PASSED:
            reason = "another replay that is being applied sends it"
    return reason + held


def _at(each: Row) -> str:
    return visible(rfc3339(each["at"])) if each["at"] else "-"

"""Plans of replays whose ids their callers made, so that asking twice plans once."""

from uuid import UUID

from dispatcher.operators.common.person import ALONE_MAX
from dispatcher.operators.common.session import Row
from dispatcher.operators.replays.filter import ReplayFilter
from dispatcher.operators.replays.store import ReplayStore
from sink.contract.exits import CommandError
from sink.contract.states import ReplayState, ReplayVerb


def planned(
    store: ReplayStore,
    id_: UUID,
    wanted: ReplayFilter,
    *,
    reason: str,
    rate: int | None = None,
    outside_window: bool = False,
    limit: int | None = None,
    alone: int = ALONE_MAX,
) -> Row:
    """Write a plan under the id that its caller made, or return the one that is there.

    Raises `CommandError` where the plan that is there is another, and what `ReplayStore.plan` does.
    """
    row = store.plan(
        wanted,
        reason=reason,
        rate=rate,
        outside_window=outside_window,
        limit=limit,
        id_=id_,
        alone=alone,
    )
    asked = (ReplayVerb.REDELIVER, wanted.stored(), reason, rate, outside_window, limit)
    there = (row["verb"], row["filter"], row["reason"], row["rate_per_second"])
    if asked != (*there, row["outside_window"], row["item_limit"]):
        raise taken(id_)
    return row


def applied(store: ReplayStore, id_: UUID, reason: str | None = None) -> Row:
    """Let a plan begin, and return its `status`; one that has begun or ended by itself stays so.

    The audit trail has the reason for applying it, where that is another than the plan's. Raises
    what `ReplayStore.apply` does.
    """
    row = store.show(id_)
    if (row["verb"], row["state"]) != (ReplayVerb.REDELIVER, ReplayState.APPLIED):
        store.apply(id_, reason)
    return store.status(id_)


def taken(id_: UUID) -> CommandError:
    """Return the error for an id that something else has."""
    return CommandError(
        f"the id {id_} is that of another replay. Nothing was changed; make a new id for what is"
        " another thing."
    )

"""Warms a new connection before the pool lends it: runs the frequent statements once.

The first run of a statement on a connection parses and plans it, and loads the server's catalogue
caches: some tens of milliseconds.
"""

from uuid import UUID

from holdfast.dispatcher.delivery.rules.pace import Allowance
from holdfast.dispatcher.delivery.rules.values import ClaimRequest
from holdfast.dispatcher.delivery.store.claiming import claim_step, due_step
from holdfast.dispatcher.delivery.store.messages import Plans, run, run_bare
from holdfast.dispatcher.delivery.store.pool import Connection
from holdfast.dispatcher.delivery.store.scan_plan import BEGINNING, END, ScanRange

_NOBODY = [0]
"""An id that no endpoint, subject, batch or priority has: ids start at 1."""

_TOKEN = UUID(int=0)

_REQUEST = ClaimRequest({0: 1}, _TOKEN, lease_seconds=1.0, entries_per_lane=1)
_CLAIM = (
    due_step({0: Allowance(1, 1)}, [ScanRange(0, 0, BEGINNING, END)], free=True),
    claim_step(_REQUEST),
)
_ROUTE = {
    "batch_nos": _NOBODY,
    "first_written_at": BEGINNING,
    "last_written_at": BEGINNING,
    "past": END,
}
_SETTLE = {
    "endpoint_ids": _NOBODY,
    "subject_ids": _NOBODY,
    "tokens": [_TOKEN],
    "delivered": [0],
    "attempts": [0],
    "rescued": [0],
    "delays_us": [None],
    "asked_us": [0],
    "stopped": [False],
}


async def warm(connection: Connection) -> None:
    """Run the statements of routing, claiming and settling without effect, in an open transaction.

    Statements that may block, such as the lock of routing, are left out. Gives up on a locked
    table: the caller may not need it.
    """
    await run(connection, "connection/warm_patience")
    await run(connection, "routing/route_patience")
    await run(connection, "routing/route_lock_try")
    await run(connection, "routing/batch_take", {"batches": 0})
    await run(connection, "routing/plan_mode", {"plans": Plans.GENERIC.value})
    await run(connection, "claiming/lane_expired", {"since": END})
    await run(connection, "claiming/pace_take", {"endpoint_ids": _NOBODY, "free_too": False})
    await run_bare(connection, *_CLAIM)
    await run(connection, "settling/lane_hold", _SETTLE)
    await run(connection, "settling/lane_settle", _SETTLE)
    await run(connection, "routing/lane_route_hold", _ROUTE)
    await run(connection, "routing/lane_route", _ROUTE)

"""What keeps a replay from being sent, in words: nothing may silently not happen. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dispatcher.operators.common.words import visible
from sink.contract.canonical import rfc3339
from sink.contract.states import BreakerState, EndpointState


def obstacles(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a sentence for each row of `replay_obstacles.sql`: what it is, and what ends it.

    >>> list(obstacles([{"endpoint": None}]))
    ['no dispatcher is running: nothing is sent before `holdfast dispatch` runs']
    """
    for row in rows:
        name = row["endpoint"]
        if name is None:
            yield "no dispatcher is running: nothing is sent before `holdfast dispatch` runs"
        elif row["endpoint_state"] != EndpointState.ACTIVE:
            why = f" ({visible(row['state_reason'])})" if row["state_reason"] else ""
            yield (
                f"endpoint {name} is {row['endpoint_state']}{why}: nothing is sent there before"
                f" `holdfast endpoint resume {name} --reason TEXT`"
            )
        elif row["breaker"] == BreakerState.OPEN:
            yield (
                f"the breaker of endpoint {name} is open: nothing is sent there before a probe"
                " gets through"
            )
        else:
            yield (
                f"endpoint {name} is held until {rfc3339(row['held_until'])}, as its receiver asked"
            )

"""The text that explains why an endpoint gets no requests, and until when."""

from collections.abc import Mapping
from typing import Any

from holdfast.dispatcher.shared.text import one_line
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.states import BreakerState, EndpointState


def why_held_up(row: Mapping[str, Any]) -> str:
    """Return the reason in a row of `endpoint_held_up`.

    A pause comes before a breaker, and a breaker before Retry-After: the hold that ends last, as
    far as that is known.
    """
    if row["state"] != EndpointState.ACTIVE:
        said = f" ({one_line(row['state_reason'])})" if row["state_reason"] else ""
        way_out = f"`holdfast endpoint resume {row['name']} --reason TEXT`"
        return f"it is {row['state']}{said} until {way_out}"
    if row["breaker"] in (BreakerState.OPEN, BreakerState.HALF_OPEN):
        said = f", after {one_line(row['breaker_reason'])}" if row["breaker_reason"] else ""
        return f"its breaker is open until {rfc3339(row['breaker_until'])}{said}"
    asked = one_line(row["held_by"]) if row["held_by"] else "asked for time"
    return f"its receiver {asked}: it is held until {rfc3339(row['held_until'])}"

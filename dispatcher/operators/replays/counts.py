"""What the plan of a replay says of what its filter found: sums over endpoints and kinds. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from dispatcher.shared.rate import sustained
from sink.contract.states import ReplayKind

Row = dict[str, Any]


def plan_counts(rows: Iterable[Row], overlaps: Iterable[Row]) -> Row:
    """Return what a plan says of what it found, as JSON.

    `entries`; `kinds` by `ReplayKind`; `endpoints` by name and kind; `items_at` and `rates` by
    endpoint; `oldest` and `newest` of the items; `no_op_there`: delivered with the receiver's
    signed receipt; `outside_window`; `taken`: left out, another replay is about to send them;
    `overlaps`: the other replays, with how many of them.
    """
    kinds: dict[str, int] = {}
    endpoints: dict[str, dict[str, int]] = {}
    items_at: dict[str, int] = {}
    rates: dict[str, int | None] = {}
    totals = dict.fromkeys(("entries", "no_op_there", "outside_window", "taken"), 0)
    oldest, newest = [], []
    for row in rows:
        name, kind, entries = row["endpoint"], row["kind"], row["entries"]
        kinds[kind] = kinds.get(kind, 0) + entries
        endpoints.setdefault(name, {})[kind] = entries
        rates[name] = row["rate_per_second"]
        for total in totals:
            totals[total] += row[total]
        if kind != ReplayKind.NOTHING:
            items_at[name] = items_at.get(name, 0) + entries
            oldest.append(row["oldest"])
            newest.append(row["newest"])
    return {
        **totals,
        "kinds": kinds,
        "endpoints": endpoints,
        "items_at": items_at,
        "rates": rates,
        "oldest": _text(min(oldest, default=None)),
        "newest": _text(max(newest, default=None)),
        "overlaps": [{**row, "id": str(row["id"])} for row in overlaps],
    }


def _text(moment: Any) -> str | None:
    return moment.isoformat() if moment is not None else None


def drain_seconds(
    items: Mapping[str, int], rates: Mapping[str, int | None], rate: int | None
) -> float | None:
    """Return how long `items` take at least, by endpoint, or None where no rate bounds them.

    `rates` are those of the endpoints, `rate` that of the whole replay; all in items a second.
    """
    bounds = [count / sustained(each) for name, count in items.items() if (each := rates.get(name))]
    if rate:
        bounds.append(sum(items.values()) / rate)
    return max(bounds, default=None)

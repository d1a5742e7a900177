"""Replays for people and programs: items as JSON, sentences about plans and progress."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from holdfast.dispatcher.operators.common.overtaking import overtaken_text
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.text import span
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.states import ReplayState

ENDED = (ReplayState.APPLIED, ReplayState.CANCELLED)


def item_row(item: Row) -> Row:
    """Return an item with its keys as receivers get them, without internal ids."""
    keys = {name: item[name] and Key(item[name]).text for name in ("key", "new_key")}
    return {**{k: v for k, v in item.items() if not k.endswith("_id")}, **keys}


def drain_text(seconds: float | None, rate: int | None) -> str:
    """Return the minimum duration of a replay; `rate` is its own, in entries per second."""
    if seconds is None:
        return "unknown, because neither the replay nor its endpoints have a rate limit"
    at = f"at {rate:,} per second" if rate else "at the rates of its endpoints"
    return f"at least {span(max(1.0, seconds))}, {at}"


def hold_reason(endpoint: Row, moment: Callable[[datetime], str]) -> str | None:
    """Return what keeps an endpoint of a replay's status from being sent to; None if nothing.

    `moment` formats a time.
    """
    if endpoint["endpoint_state"] != "active":
        return f"the endpoint is {endpoint['endpoint_state']}"
    if endpoint["breaker"] == "open":
        return "its breaker is open"
    held_until = endpoint["held_until"]
    return None if held_until is None else f"held until {moment(held_until)}"


def plan_warnings(row: Row, overlaps: Iterable[Row]) -> Iterator[str]:
    """Yield what a person must know before a plan is applied, without capitals and full stops.

    `overlaps` are other replays with entries of this plan.
    """
    counts = row["counts"]
    yield from row["obstacles"]
    for key, over in counts.get("overtakes", {}).items():
        yield f"{key} overtakes the newest decision of its subject, {overtaken_text(over)}"
    for other in overlaps:
        yield (
            f"{_entries(other['entries'], 'is', 'are')} in replay {str(other['id'])[:8]} too"
            f" ({other['state']}, by {other['actor']}); none is in flight from both at once"
        )
    if counts.get("taken"):
        yield f"{_entries(counts['taken'], 'is', 'are')} left to a running replay"
    if counts.get("beyond_limit"):
        yield f"{_entries(counts['beyond_limit'], 'was', 'were')} omitted: beyond the limit"
    if counts.get("outside_window"):
        first = _entries(counts["outside_window"], "was", "were")
        yield (
            f"{first} first attempted longer ago than the receiver keeps keys: it may have"
            " forgotten them and act again; "
            + (
                "they are sent, because sending outside of the window was allowed"
                if row["outside_window"]
                else "this plan is refused: plan again with a later start time, or allow sending"
                " outside of the window"
            )
        )


def _entries(count: int, verb: str, verbs: str) -> str:
    return f"{count:,} {f'entry {verb}' if count == 1 else f'entries {verbs}'}"

"""The answer as JSON: times in RFC 3339 UTC, money as integers in minor units, every event id."""

from typing import Any, NamedTuple

from holdfast.sink.contract.canonical import rfc3339_from_micros
from holdfast.spark_app.inspection.diff import Difference, WindowChange
from holdfast.spark_app.inspection.view import Snapshot, Timer, Window


class StateLocation(NamedTuple):
    """Where a merchant's state was searched."""

    checkpoint: str
    merchant_id: str
    stream: str
    key_group: int
    key_groups: int
    batches: tuple[int, int] | None
    """The oldest and the newest batch after which the state can be read; None without one."""


def unbegun(location: StateLocation) -> dict[str, Any]:
    """Return the answer before the first batch."""
    return _location(location) | {"found": False}


def inspected(location: StateLocation, snapshot: Snapshot) -> dict[str, Any]:
    """Return the state after a batch; without `held` and the rest where there is none."""
    merchant = snapshot.merchant
    answer = _location(location) | _batch(snapshot) | {"found": merchant is not None}
    if merchant is not None:
        answer |= {
            "held": merchant.held,
            "latest_window_end": _time(merchant.latest_end_us),
            "windows": [_window(window) for window in merchant.windows],
            "timers": [_timer(timer) for timer in merchant.timers],
        }
    return answer


def compared(location: StateLocation, found: Difference) -> dict[str, Any]:
    """Return what changed between two batches."""
    was_held, is_held = found.held
    was_latest, is_latest = found.latest_end_us
    return _location(location) | {
        "from": _batch(found.before),
        "to": _batch(found.after),
        "found": found.known,
        "changed": found.changed,
        "held": {"from": was_held, "to": is_held},
        "latest_window_end": {"from": _time(was_latest), "to": _time(is_latest)},
        "windows": [_change(change) for change in found.windows],
        "timers": {
            "set": [_timer(timer) for timer in found.timers_set],
            "gone": [_timer(timer) for timer in found.timers_gone],
        },
    }


def _location(location: StateLocation) -> dict[str, Any]:
    first, last = location.batches or (None, None)
    return {
        "checkpoint": location.checkpoint,
        "merchant_id": location.merchant_id,
        "stream": location.stream,
        "key_group": location.key_group,
        "key_groups": location.key_groups,
        "first_batch_id": first,
        "last_batch_id": last,
    }


def _batch(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "batch_id": snapshot.batch,
        "watermark": _time(snapshot.judged_us),
        "settled_until": _time(snapshot.settled_until_us),
        "key_group_timer": _time(snapshot.group_timer_us),
    }


def _window(window: Window) -> dict[str, Any]:
    return _span(window) | _figures(window) | {"event_ids": list(window.event_ids)} | _due(window)


def _change(change: WindowChange) -> dict[str, Any]:
    return _span(change.window) | {
        "change": change.change.value,
        "from": None if change.before is None else _figures(change.before),
        "to": None if change.after is None else _figures(change.after),
        "absorbed": list(change.absorbed),
        "forgotten": list(change.forgotten),
    }


def _span(window: Window) -> dict[str, Any]:
    return {"window_start": _time(window.start_us), "window_end": _time(window.end_us)}


def _figures(window: Window) -> dict[str, Any]:
    return {
        "status": "open" if window.is_open else "emitted",
        "revision": window.revision,
        "exposure_minor": window.exposure_minor,
        "blocks": window.blocks,
        "releases": window.releases,
    }


def _due(window: Window) -> dict[str, Any]:
    return {"emit_at": _time(window.emit_us), "expire_at": _time(window.expire_us)}


def _timer(timer: Timer) -> dict[str, Any]:
    return {
        "at": _time(timer.at_us),
        "due": timer.due.value,
        "window_end": _time(timer.window_end_us),
    }


def _time(moment_us: int | None) -> str | None:
    return None if moment_us is None else rfc3339_from_micros(moment_us)

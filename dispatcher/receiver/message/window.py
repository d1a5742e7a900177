"""How long a receiver keeps a key, and how it declares that (PROTOCOL.md, section 7). Pure.

45 days cover the longest retry budget of an endpoint (30 days) and two weeks in which a person may
replay. The minimum of a week covers the sender's default retries (5 days while the endpoint is
enabled) and a weekend.
"""

from datetime import timedelta

from holdfast.sink.contract.wire import KEY_WINDOW_FOREVER

KEY_WINDOW_DEFAULT = timedelta(days=45)
KEY_WINDOW_MIN = timedelta(days=7)
KEY_WINDOW_MAX = timedelta(days=36_500)


def key_window_text(window: timedelta | None) -> str:
    """Return the header's value: whole seconds, or `forever` for None.

    Raises `ValueError` outside `KEY_WINDOW_MIN` to `KEY_WINDOW_MAX`: a key deleted while its
    delivery is still retried does not prevent a second action.
    """
    if window is None:
        return KEY_WINDOW_FOREVER
    if not KEY_WINDOW_MIN <= window <= KEY_WINDOW_MAX:
        raise ValueError(
            f"the key window must be {KEY_WINDOW_MIN.days} to {KEY_WINDOW_MAX.days} days, or None"
            f" (forever), not {window}: the sender retries for days, and people replay later"
        )
    return str(int(window.total_seconds()))


PRUNE_MAX = 10_000
"""Default maximum number of keys deleted per call: some tens of milliseconds."""


def prune_parameters(window: timedelta | None, limit: int) -> dict[str, int]:
    """Return the parameters of `inbox_prune`; raises `ValueError` if it is disabled."""
    if window is None:
        raise ValueError("this inbox keeps keys forever: set a window to prune")
    if limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit}")
    return {"window_seconds": int(window.total_seconds()), "limit": limit}

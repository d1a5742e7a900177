"""How long a receiver keeps a key, and how it tells the sender (PROTOCOL.md, section 7). Pure.

45 days are the longest that an endpoint can try one entry (a budget of 30 days) and two weeks in
which a person may replay it. Less than a week is shorter than the sender's default retries (5
days of running time) and a weekend in which nobody looks.
"""

from datetime import timedelta

from sink.contract.wire import KEY_WINDOW_FOREVER

KEY_WINDOW_DEFAULT = timedelta(days=45)
KEY_WINDOW_MIN = timedelta(days=7)
KEY_WINDOW_MAX = timedelta(days=36_500)


def key_window_text(window: timedelta | None) -> str:
    """Return the header's value: whole seconds, or `forever` for None.

    Raises `ValueError` outside `KEY_WINDOW_MIN` to `KEY_WINDOW_MAX`: a key that is forgotten while
    its delivery is still retried is no protection.
    """
    if window is None:
        return KEY_WINDOW_FOREVER
    if not KEY_WINDOW_MIN <= window <= KEY_WINDOW_MAX:
        raise ValueError(
            f"keys are kept for {KEY_WINDOW_MIN.days} to {KEY_WINDOW_MAX.days} days, or for ever"
            f" (None), not for {window}: the sender retries for days, and people replay later"
        )
    return str(int(window.total_seconds()))


PRUNE_MAX = 10_000
"""How many keys one call forgets: some tens of milliseconds."""


def prune_parameters(window: timedelta | None, limit: int) -> dict[str, int]:
    """Return the parameters of `sql/prune.sql`; raises `ValueError` where nothing may be pruned."""
    if window is None:
        raise ValueError("this inbox keeps its keys for ever: give it a window to prune by")
    if limit < 1:
        raise ValueError(f"prune at least one key at a time, not {limit}")
    return {"window_seconds": int(window.total_seconds()), "limit": limit}

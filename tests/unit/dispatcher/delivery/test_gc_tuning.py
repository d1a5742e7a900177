"""A dispatcher's settings of the interpreter: they hold while it runs, and no longer."""

import gc
from contextlib import suppress

from holdfast.dispatcher.delivery.gc_tuning import YOUNG_MAX, tuned_for_deliveries


def test_interpreter_is_tuned_while_a_dispatcher_runs_and_as_before_afterwards() -> None:
    before = gc.get_threshold()
    with suppress(KeyError), tuned_for_deliveries():
        within = gc.get_threshold(), gc.get_freeze_count()
        raise KeyError
    assert within[0] == (YOUNG_MAX, *before[1:])
    assert within[1] > 0
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)

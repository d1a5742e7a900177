"""Sorting by merchant and time, for any times."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from holdfast.spark_app.exposure.book import by_owner

MOMENTS = st.one_of(st.integers(-20, 20), st.integers(-(2**63), 2**63 - 1))


@given(st.lists(st.tuples(st.integers(0, 5), MOMENTS)))
def test_order_is_by_owner_and_then_by_moment(pairs: list[tuple[int, int]]) -> None:
    owner, moment = (np.array([p[i] for p in pairs], np.int64) for i in (0, 1))
    assert [pairs[i] for i in by_owner(owner, moment)] == sorted(pairs)

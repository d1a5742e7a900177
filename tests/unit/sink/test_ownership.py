from uuid import uuid4

import pytest

from holdfast.sink.errors import Fenced
from holdfast.sink.transaction.ownership import Ownership


def test_run_that_took_the_stream_without_an_answer_is_own() -> None:
    ownership, claim, unanswered, other = Ownership("payouts"), uuid4(), uuid4(), uuid4()
    # Without a claim, a run may replace any other.
    ownership.require({"run_id": other})
    ownership.claimed(claim)
    ownership.expect(unanswered)
    for run_id in (claim, unanswered):
        ownership.require({"run_id": run_id})
    with pytest.raises(Fenced, match=f"run {other} took the stream"):
        ownership.require({"run_id": other})


def test_free_stream_is_no_longer_free_once_a_run_has_it() -> None:
    ownership = Ownership("payouts")
    ownership.claimed(None)
    ownership.require(None)
    ownership.require({"run_id": None})
    with pytest.raises(Fenced):
        ownership.require({"run_id": uuid4()})

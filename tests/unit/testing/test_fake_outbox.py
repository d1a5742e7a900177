"""The outbox in memory: its example, its errors, and what importing it needs."""

import doctest
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import sink
from holdfast.sink import QuarantineLimit, ReplayDiverged, TooManyRefused
from holdfast.sink.contract.states import SuppressedCause
from holdfast.testing import FakeOutbox
from tests.support.dispatch.sender import RELEASE, decision, table

NOT_NEEDED = ("pyspark", "pandas", "psycopg", "sqlalchemy", "typer", "httpx", "pytest", "psutil")
"""Packages without which the fake works; `sink` brings PyArrow and NumPy."""

EXTRAS = (*NOT_NEEDED, "pyarrow", "numpy", "alembic")


def test_example_of_the_fake_outbox() -> None:
    assert FakeOutbox.__doc__
    names = {"FakeOutbox": FakeOutbox, "decisions": table(decision("m_1"), decision("m_2"))}
    example = doctest.DocTestParser().get_doctest(FakeOutbox.__doc__, names, "fake", None, 0)
    texts: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=texts.append)
    assert example.examples
    assert not texts, "".join(texts)


@pytest.mark.parametrize(
    ("missing", "program"),
    [
        (NOT_NEEDED, "from holdfast.testing import FakeOutbox; FakeOutbox().sink('payouts')"),
        (EXTRAS, "import holdfast.testing"),
    ],
)
def test_import_needs_the_sink_and_no_other_extra(missing: tuple[str, ...], program: str) -> None:
    blocked = f"import sys; sys.modules |= dict.fromkeys({missing})"
    subprocess.run([sys.executable, "-c", f"{blocked}; {program}"], check=True, timeout=60)


def test_rest_of_the_product_does_not_import_the_kit() -> None:
    program = (
        "import sys; from holdfast.sink import *; from holdfast.dispatcher.cli.main import main;"
        "assert not [name for name in sys.modules if name.startswith('holdfast.testing')]"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_refused_batch_leaves_nothing_behind() -> None:
    outbox = FakeOutbox()
    limited = outbox.sink("payouts", quarantine_limit=QuarantineLimit(rows=0))
    rows = table(decision("m_1"), decision(""))
    with pytest.raises(TooManyRefused, match="1 of its 2 rows were refused"):
        limited(rows, 0)
    assert not outbox.entries
    assert not outbox.quarantined
    assert outbox.sink("payouts")(rows, 0).counts.entries == 1


def test_adopted_checkpoint_repeats_no_key() -> None:
    outbox = FakeOutbox()
    payouts = outbox.sink("payouts")
    payouts(table(decision("m_1")), 0)
    outbox.adopt("payouts")
    again = payouts(table(decision("m_1"), decision("m_1", 2)), 0)
    assert isinstance(again, sink.Written)
    assert (again.counts.duplicates, again.counts.entries) == (1, 1)
    assert [entry.sequence for entry in outbox.entries] == [1, 2]


def test_replay_that_differs_is_refused_until_it_is_accepted() -> None:
    outbox = FakeOutbox()
    payouts = outbox.sink("payouts")
    payouts(table(decision("m_1")), 0)
    changed = table(decision("m_1"), decision("m_2"))
    with pytest.raises(ReplayDiverged, match="1 key only in this replay"):
        payouts(changed, 0)
    outbox.accept("payouts", 0)
    assert payouts(changed, 0).counts.entries == 1
    assert isinstance(payouts(changed, 0), sink.Replayed)

    payouts(table(decision("m_3")), 1)
    with pytest.raises(ValueError, match="not the newest"):
        outbox.accept("payouts", 0)


@pytest.mark.parametrize("name", ["Bad Name", "p" * 64, "payouts.requeue"])
def test_name_that_no_job_may_have_is_refused_as_by_the_sink(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        FakeOutbox().sink(name)


def test_clock_of_the_test_decides_what_is_dated_in_the_future() -> None:
    noon = datetime(2026, 11, 2, 12, tzinfo=UTC)
    outbox = FakeOutbox(lambda: noon)
    payouts = outbox.sink("payouts", future_tolerance=timedelta(minutes=15))
    payouts(table(decision("m_1", 1), decision("m_1", 2)), 0)
    [quarantined] = outbox.quarantined
    assert quarantined.reason == "future_dated"
    assert "12:30" in quarantined.row


def test_suppressed_decision_has_its_cause_and_its_data() -> None:
    outbox = FakeOutbox()
    payouts = outbox.sink("payouts", suppress_repeats=True)
    payouts(table(decision("m_1", 2), decision("m_1", 3), decision("m_1", 1, RELEASE)), 0)
    causes = [(each.key[2], each.cause, each.data["merchant_id"]) for each in outbox.suppressed]
    assert causes == [("2026-11-02T12:45:00+00:00", SuppressedCause.REPEATED, "m_1")]
    payouts(table(decision("m_1", 0, RELEASE)), 1)
    assert outbox.suppressed[-1].cause == SuppressedCause.OVERTAKEN

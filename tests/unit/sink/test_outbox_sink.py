"""What `OutboxSink` is before it meets Spark or a database, and which path it chooses."""

import pickle
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from holdfast.sink import BatchInput, OutboxSink
from holdfast.sink.foreach_batch import STAGED_BYTES, UNKNOWN_BYTES, Identity, PathChoice
from tests.support.dispatch.entries import decision, table

DSN = "postgresql://app:s3cret@db/holdfast"


def test_copy_through_pickle_has_the_settings_and_no_connection() -> None:
    sink = OutboxSink(DSN, stream="payouts", checkpoint="/tmp/c", suppress_repeats=False)  # noqa: S108 (a name, no file)
    copy = pickle.loads(pickle.dumps(sink))  # noqa: S301 (our own bytes)
    assert copy._settings == sink._settings
    assert copy._dsn == DSN
    assert copy.last is None
    assert copy._writer._connection is None


def test_repr_hides_the_password() -> None:
    assert repr(OutboxSink(DSN, stream="payouts")) == (
        "OutboxSink('postgresql://app:***@db/holdfast', stream='payouts')"
    )


def test_dsn_that_cannot_be_read_is_refused_without_quoting_it() -> None:
    with pytest.raises(ValueError, match=r"^the DSN cannot be read") as raised:
        OutboxSink("app:s3cret@db", stream="payouts")
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("name", ["", "Payouts", "a b", "x" * 64, "-a"])
def test_stream_name_is_one_the_database_takes(name: str) -> None:
    with pytest.raises(ValueError, match="is not a stream name"):
        OutboxSink(DSN, stream=name)


def _as_it_is(rows: pa.Table) -> Any:
    return rows


def _in_pieces(rows: pa.Table) -> Any:
    return BatchInput(rows.to_batches()[0])  # what Arrow gives when it reads a file


def _with_a_list(rows: pa.Table) -> Any:
    return BatchInput(rows, companions={"scores": [rows]})  # type: ignore[dict-item]


@pytest.mark.parametrize("select", [_as_it_is, _in_pieces, _with_a_list])
def test_select_that_makes_no_batch_is_told_what_it_has_to_make(select: Any) -> None:
    sink = OutboxSink(DSN, stream="payouts", select=select)
    identity = Identity(UUID(int=1), UUID(int=2), 0)
    with pytest.raises(TypeError, match=r"`select` .*BatchInput.*nothing was written"):
        sink.apply(table(decision()), identity)


@pytest.mark.parametrize(
    ("estimated", "before", "staged"),
    [
        (0, 0, False),
        (STAGED_BYTES - 1, STAGED_BYTES, False),
        (STAGED_BYTES, 0, True),
        (UNKNOWN_BYTES, 0, False),
        (UNKNOWN_BYTES, STAGED_BYTES - 1, False),
        (2**63 - 1, STAGED_BYTES, True),
    ],
)
def test_auto_goes_by_the_plan_and_else_by_the_batch_before(
    estimated: int, before: int, *, staged: bool
) -> None:
    choice = PathChoice("auto", rows_in_driver=False)
    choice.record(before)
    assert choice.is_staged(lambda: estimated) is staged


def test_path_that_is_set_asks_for_no_estimate() -> None:
    def never() -> int:
        raise AssertionError

    assert PathChoice("staged", rows_in_driver=False).is_staged(never)
    assert not PathChoice("driver", rows_in_driver=False).is_staged(never)
    assert not PathChoice("auto", rows_in_driver=True).is_staged(never)


def test_staged_path_is_refused_where_somebody_wants_the_rows_in_the_driver() -> None:
    for wish in ({"select": lambda table: table}, {"also": lambda *_: None}):
        with pytest.raises(ValueError, match="leave both out, or use path='driver'"):
            OutboxSink(DSN, stream="payouts", path="staged", **wish)


def test_path_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="use one of auto, driver, staged"):
        OutboxSink(DSN, stream="payouts", path="fast")  # type: ignore[arg-type]

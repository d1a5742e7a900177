"""The operator around the step, in Spark's own tester: what it stores, and which timer it arms."""

from typing import Any

import pytest

from spark_app.blobs import SCHEMAS, Kind, from_blob, to_blob
from spark_app.exposure.policy import Policy
from spark_app.exposure.settings import Settings
from tests.support.exposure import FIFTY_THOUSAND, at, row, table

MILLI = 1_000


def _ms(clock: str) -> int:
    return at(clock) // MILLI


class Operator:
    """One key group, called as Spark would call it."""

    def __init__(self) -> None:
        from pyspark.sql.streaming import TwsTester

        from spark_app.processor import KeyGroupProcessor

        processor = KeyGroupProcessor(Policy.parse(FIFTY_THOUSAND), Settings())
        # The tester drops late rows; Spark does not, because it sees no event time here.
        self._tester = TwsTester(
            processor,
            timeMode="EventTime",
            outputMode="Update",
            eventTimeExtractor=lambda _: 2**62,
        )
        self.writes = 0
        value = processor._value
        update = value.update

        def counted(new: Any) -> None:
            self.writes += 1
            update(new)

        value.update = counted  # type: ignore[method-assign] # counts, then does what it did

    def rows(self, *parts: Any) -> list[tuple[str, list[dict[str, Any]]]]:
        """Hand over blobs of events, and blobs (bytes) of refused rows."""
        from pyspark.sql import Row

        given = [
            Row(events=None, refused=part)
            if isinstance(part, bytes)
            else Row(events=to_blob(part), refused=None)
            for part in parts
        ]
        return _read(self._tester.test(0, given))

    def watermark(self, clock: str) -> list[tuple[str, list[dict[str, Any]]]]:
        """Move the watermark; returns what the timers put out."""
        return _read(self._tester.setWatermark(_ms(clock)))

    @property
    def timers(self) -> list[int]:
        return list(self._tester.handle.listTimers())

    @property
    def stored(self) -> Any:
        return self._tester.peekValueState("group", 0)


def _read(rows: Any) -> list[tuple[str, list[dict[str, Any]]]]:
    return [
        (r.kind, from_blob(r.blob, SCHEMAS[Kind(r.kind)]).to_pylist())
        for r in rows
        if r.kind != Kind.REFUSED
    ]


@pytest.fixture
def operator() -> Operator:
    return Operator()


def test_one_timer_is_armed_at_the_earliest_moment_at_which_something_is_due(
    operator: Operator,
) -> None:
    operator.rows(table(row("e1", "12:20", 1)))
    assert operator.timers == [_ms("12:30")]
    operator.rows(table(row("e2", "12:01", 1)), table(row("e3", "12:40", 1)))
    assert operator.timers == [_ms("12:15")]
    operator.watermark("12:16")
    assert operator.timers == [_ms("12:17")]
    operator.watermark("12:20")
    assert operator.timers == [_ms("12:30")]


def test_a_timer_publishes_without_rows(operator: Operator) -> None:
    operator.rows(table(row("e1", "12:01", 6_000_000)))
    put_out = dict(operator.watermark("12:15"))
    assert set(put_out) == {"windows", "decisions"}
    assert [d["action"] for d in put_out["decisions"]] == ["block"]


def test_rows_at_a_later_watermark_publish_and_leave_nothing_for_the_old_timer(
    operator: Operator,
) -> None:
    operator.rows(table(row("e1", "12:01", 6_000_000)))
    # Spark hands rows over at the new watermark before it fires the timers that are due by it.
    operator._tester._currentWatermarkMs = _ms("12:15")
    operator._tester.handle.setWatermark(_ms("12:15"))
    put_out = dict(operator.rows(table(row("e2", "12:16", 1))))
    assert set(put_out) == {"windows", "decisions"}
    assert operator.timers == [_ms("12:17")]


def test_the_state_is_gone_when_nothing_is_waited_for(operator: Operator) -> None:
    operator.rows(table(row("e1", "12:01", 1)))
    assert operator.stored is not None
    operator.watermark("12:15")
    operator.watermark("12:17")
    assert operator.stored is None
    assert operator.timers == []


def test_a_batch_that_changes_nothing_writes_nothing(operator: Operator) -> None:
    operator.rows(table(row("e1", "12:01", 1)))
    assert operator.writes == 1
    late = dict(operator.rows(table(row("e1", "12:01", 1))))
    assert [e["reason"] for e in late["late"]] == ["duplicate"]
    assert operator.writes == 1


def test_refused_rows_pass_through_and_touch_no_state(operator: Operator) -> None:
    from pyspark.sql import Row

    blob = b"whatever the map side packed"
    passed = operator._tester.test(0, [Row(events=None, refused=blob)])
    assert [(r.kind, r.blob) for r in passed] == [("refused", blob)]
    assert operator.writes == 0
    assert operator.stored is None

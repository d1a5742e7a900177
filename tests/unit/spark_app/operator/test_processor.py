"""The operator around the step, in Spark's own tester: what it stores, and which timer it arms."""

import subprocess
import sys
from collections import Counter
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.spark_app.exposure import codec
from holdfast.spark_app.exposure.errors import StateTooNew
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.schema import STATE_MERCHANTS
from holdfast.spark_app.exposure.settings import MILLISECOND_US, MINUTE_US, Settings
from holdfast.spark_app.exposure.state import GroupState, resumed
from holdfast.spark_app.exposure.step import next_timer_us
from holdfast.spark_app.operator import initial_state
from holdfast.spark_app.operator.blobs import SCHEMAS, Kind, from_blob, to_blob
from holdfast.spark_app.operator.stored import GroupValue, Segment, SegmentKey
from tests.support.examples import examples
from tests.support.job.exposure import (
    EPOCH,
    FIFTY_THOUSAND,
    Run,
    apply,
    arrow,
    at,
    row,
    runs,
    table,
)
from tests.support.job.stored_state import Kept, content

if TYPE_CHECKING:
    from pyspark.sql import Row

GROUP = 0

PutOut = list[tuple[str, list[dict[str, Any]]]]
"""Kind and rows of each blob, in order."""


class Operator:
    """One key group; `initial` is the state from which its checkpoint begins, at a watermark."""

    def __init__(
        self,
        initial: GroupState | None = None,
        policy: str = FIFTY_THOUSAND,
        settings: Settings | None = None,
        watermark_us: int | None = None,
    ) -> None:
        from pyspark.sql.streaming import TwsTester

        from holdfast.spark_app.operator.processor import KeyGroupProcessor

        self.calls: Counter[str] = Counter()
        """How often each access to the state was made, as `ids.iterator`."""
        # The tester drops late rows; Spark does not, because it sees no event time here.
        self.tester = TwsTester(
            KeyGroupProcessor(Policy.parse(policy), settings or Settings()),
            initialStateRow=None
            if initial is None
            else _initial_rows(initial, settings, watermark_us),
            timeMode="EventTime",
            outputMode="Update",
            eventTimeExtractor=lambda _: 2**62,
        )
        for name in ("get", "update", "clear"):
            self._count(self.tester.handle.value_states["group"], "group", name)
        for state in ("windows", "ids"):
            for name in ("iterator", "keys", "getValue", "updateValue", "removeKey"):
                self._count(self.tester.handle.map_states[state], state, name)

    def _count(self, state: Any, label: str, name: str) -> None:
        call = getattr(state, name)

        def counted(*arguments: Any) -> Any:
            self.calls[f"{label}.{name}"] += 1
            return call(*arguments)

        setattr(state, name, counted)

    def rows(self, *parts: "pa.Table | bytes") -> PutOut:
        """Hand over blobs of events, and blobs (bytes) of refused rows."""
        from pyspark.sql import Row

        arguments = [
            Row(events=None, refused=part)
            if isinstance(part, bytes)
            else Row(events=to_blob(part), refused=None)
            for part in parts
        ]
        return read(self.tester.test(GROUP, arguments))

    def tick(self) -> PutOut:
        """Hand over the row of a tick of the idle clock."""
        from pyspark.sql import Row

        return read(self.tester.test(GROUP, [Row(events=None, refused=None)]))

    def batch(self, watermark_us: int | None, rows: pa.Table) -> PutOut:
        """Take one batch as Spark runs it: rows at the new watermark, then the timers due by it."""
        if watermark_us is not None:
            self.tester._currentWatermarkMs = watermark_us // MILLISECOND_US
            self.tester.handle.setWatermark(watermark_us // MILLISECOND_US)
        put_out = self.rows(rows) if rows.num_rows else []
        return put_out + read(self.tester._handleExpiredTimers())

    def watermark(self, moment_us: int) -> PutOut:
        """Move the watermark; returns what the timers put out."""
        return read(self.tester.setWatermark(moment_us // MILLISECOND_US))

    @property
    def timers(self) -> list[int]:
        """The timers that are armed, in microseconds."""
        return [ms * MILLISECOND_US for ms in self.tester.handle._timers.listTimers(GROUP)]

    @property
    def kept(self) -> Kept:
        """What is in Spark's state."""
        group = self.tester.handle.value_states["group"].state.get(GROUP)
        windows = self.tester.handle.map_states["windows"].state.get(GROUP, {})
        ids = self.tester.handle.map_states["ids"].state.get(GROUP, {})
        return Kept(
            GroupValue(*(group or ())),
            {end: frame for (end,), (frame,) in windows.items()},
            {SegmentKey(*key): Segment(*segment) for key, segment in ids.items()},
        )


def _initial_rows(
    state: GroupState, settings: Settings | None, watermark_us: int | None
) -> "list[tuple[int, Row]]":
    from pyspark.sql import Row

    rows = initial_state.rows(GROUP, state, watermark_us, settings or Settings())
    return [(GROUP, Row(**row)) for row in rows.to_pylist()]


def read(rows: Any) -> PutOut:
    """Unpack rows of the operator; refused ones were packed by the test and are left out."""
    return [
        (row.kind, from_blob(row.blob, SCHEMAS[Kind(row.kind)]).to_pylist())
        for row in rows
        if row.kind != Kind.REFUSED
    ]


OVER = 6_000_000


@pytest.fixture
def operator() -> Operator:
    return Operator()


def _moments(put_out: PutOut, kind: str, *names: str) -> list[tuple[Any, ...]]:
    """The named columns of all blobs of a kind; times in minutes of the day of the tests."""
    return [
        tuple(_minute(r[name]) if name == "window_end" else r[name] for name in names)
        for blob_kind, rows in put_out
        if blob_kind == kind
        for r in rows
    ]


def _minute(moment: Any) -> int:
    return int((moment - EPOCH).total_seconds() * 1e6 - at("00:00")) // MINUTE_US


def test_one_timer_is_armed_at_the_earliest_due_moment(operator: Operator) -> None:
    operator.rows(table(row("e1", "12:20", 1)))
    assert operator.timers == [at("12:30")]
    operator.rows(table(row("e2", "12:01", 1)), table(row("e3", "12:40", 1)))
    assert operator.timers == [at("12:15")]
    operator.watermark(at("12:16"))
    assert operator.timers == [at("12:17")]
    operator.watermark(at("12:20"))
    assert operator.timers == [at("12:30")]


def test_a_tick_has_no_part_in_any_group(operator: Operator) -> None:
    operator.tick()
    assert (operator.timers, operator.calls.total()) == ([], 0)
    operator.rows(table(row("e1", "12:20", 1)))
    before, calls = operator.kept, operator.calls.copy()
    assert operator.tick() == []
    assert (operator.kept, operator.calls) == (before, calls)


def test_a_timer_publishes_without_rows(operator: Operator) -> None:
    operator.rows(table(row("e1", "12:01", OVER)))
    put_out = dict(operator.watermark(at("12:15")))
    assert set(put_out) == {"windows", "decisions"}
    assert [d["action"] for d in put_out["decisions"]] == ["block"]


def test_rows_at_a_later_watermark_leave_the_old_timer_nothing(operator: Operator) -> None:
    operator.rows(table(row("e1", "12:01", OVER)))
    put_out = operator.batch(at("12:15"), table(row("e2", "12:16", 1)))
    assert [kind for kind, _ in put_out] == ["windows", "decisions"]
    assert operator.timers == [at("12:17")]


def test_hold_closes_its_empty_window_without_events(operator: Operator) -> None:
    operator.rows(table(row("e1", "12:01", OVER)))
    operator.watermark(at("12:15"))
    operator.watermark(at("12:17"))
    assert operator.timers == [at("12:30")]
    put_out = operator.watermark(at("12:30"))
    assert _moments(put_out, "windows", "window_end", "exposure_minor") == [(12 * 60 + 30, 0)]
    assert _moments(put_out, "decisions", "window_end", "action") == [(12 * 60 + 30, "release")]


def test_watermark_jump_closes_every_window_in_order(operator: Operator) -> None:
    operator.rows(
        table(
            row("e1", "12:50", OVER),
            row("e2", "12:01", OVER),
            row("e3", "12:20", OVER),
            row("e4", "17:00", 1),
        )
    )
    put_out = operator.watermark(at("16:00"))
    assert _moments(put_out, "windows", "window_end", "exposure_minor") == [
        (12 * 60 + 15, OVER),
        (12 * 60 + 30, OVER),
        (12 * 60 + 45, 0),
        (13 * 60, OVER),
        (13 * 60 + 15, 0),
    ]
    assert _moments(put_out, "decisions", "window_end", "action") == [
        (12 * 60 + 15, "block"),
        (12 * 60 + 45, "release"),
        (13 * 60, "block"),
        (13 * 60 + 15, "release"),
    ]
    assert set(operator.kept.windows) == {at("17:15")} == {end for end, _ in operator.kept.ids}
    assert operator.timers == [at("17:15")]


def test_the_state_is_gone_when_nothing_is_waited_for(operator: Operator) -> None:
    operator.rows(table(row("e1", "12:01", 1)))
    assert not operator.kept.is_empty
    operator.watermark(at("12:15"))
    operator.watermark(at("12:17"))
    assert operator.kept.is_empty
    assert operator.timers == []


def test_batch_without_change_reads_thrice_and_writes_nothing(operator: Operator) -> None:
    operator.rows(table(row("e1", "12:01", 1)))
    operator.calls.clear()
    late = dict(operator.rows(table(row("e1", "12:01", 1))))
    assert [e["reason"] for e in late["late"]] == ["duplicate"]
    assert operator.calls == {"group.get": 1, "windows.iterator": 1, "ids.iterator": 1}


def test_a_batch_writes_the_window_and_the_ids_that_it_added(operator: Operator) -> None:
    operator.rows(table(row("e1", "12:01", 1), row("e2", "12:20", 1)))
    operator.calls.clear()
    operator.rows(table(row("e3", "12:20", 1)))
    assert operator.calls == {
        "group.get": 1,
        "windows.iterator": 1,
        "windows.updateValue": 1,
        "ids.iterator": 1,
        "ids.updateValue": 1,
    }


def test_timer_reads_no_ids_and_lists_them_only_to_forget(operator: Operator) -> None:
    operator.rows(table(row("e1", "12:01", 1), row("e2", "12:20", 1)))
    operator.calls.clear()
    operator.watermark(at("12:15"))
    emitted = {"group.get": 1, "windows.iterator": 1, "windows.updateValue": 1, "group.update": 1}
    assert operator.calls == emitted
    operator.calls.clear()
    operator.watermark(at("12:17"))
    assert operator.calls == {
        "group.get": 1,
        "group.update": 1,
        "windows.iterator": 1,
        "windows.removeKey": 1,
        "ids.keys": 1,
        "ids.removeKey": 1,
    }


def test_eight_pieces_of_ids_become_one(operator: Operator) -> None:
    for number in range(8):
        assert [segment for _, segment in operator.kept.ids] == list(range(number))
        operator.rows(table(row(f"e{number}", "12:01", 1)))
    ((key, segment),) = operator.kept.ids.items()
    assert (key, segment.level) == ((at("12:15"), 0), 1)
    duplicates = dict(operator.rows(table(*(row(f"e{n}", "12:01", 1) for n in range(8)))))
    assert len(duplicates["late"]) == 8


def test_state_of_a_newer_version_is_refused_unchanged(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(codec, "version_of", lambda _: 99)
        operator.rows(table(row("e1", "12:01", 1)))
    before = deepcopy(operator.kept)
    with pytest.raises(StateTooNew, match="version 99 and this Holdfast reads up to"):
        operator.rows(table(row("e2", "12:02", 1)))
    assert operator.kept == before


def test_process_that_describes_the_operator_imports_no_pandas() -> None:
    """Spark starts one for each start of a query, which would use twice the processor time."""
    program = (
        "import sys, pyspark.sql.streaming.transform_with_state_driver_worker;"
        "import holdfast.spark_app.operator.processor, holdfast.spark_app.operator.pack;"
        "sys.exit('pandas' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_refused_rows_pass_through_and_touch_no_state(operator: Operator) -> None:
    from pyspark.sql import Row

    blob = b"whatever the map side packed"
    passed = operator.tester.test(0, [Row(events=None, refused=blob)])
    assert [(r.kind, r.blob) for r in passed] == [("refused", blob)]
    assert operator.calls == {}
    assert operator.kept.is_empty


@pytest.mark.rest
@given(runs())
@settings(max_examples=examples(60), deadline=None)
def test_the_operator_keeps_what_the_step_remembers(run: Run) -> None:
    policy, memory = Policy.parse(run.policy), GroupState.empty()
    operator = Operator(policy=run.policy, settings=run.settings)
    for batch in run.batches:
        # Without rows, Spark calls a group only if a timer is due: nothing else may happen then.
        memory, output = apply(memory, batch, policy, run.settings)
        put_out = operator.batch(batch.watermark, arrow(batch.rows))
        assert dict(put_out) == {
            name: table.to_pylist()
            for name, table in (
                ("windows", output.windows),
                ("decisions", output.decisions),
                ("late", output.late),
            )
            if table.num_rows
        }
        assert content(operator.kept.load()) == content(memory)
        due = next_timer_us(memory, batch.watermark, run.settings)
        assert operator.timers == ([] if due is None else [due])
    assert operator.kept.is_empty is memory.is_empty


def _held(*merchants: tuple[str, str], settled: str | None) -> GroupState:
    """As read from the stream's record: who is held, since the window that ended when."""
    rows = [{"merchant_id": m, "held": True, "latest_end": at(end)} for m, end in merchants]
    held = pa.Table.from_pylist(rows, schema=STATE_MERCHANTS)
    return resumed(None if settled is None else at(settled), held, Settings())


def test_initial_holds_wait_for_their_empty_windows() -> None:
    operator = Operator(_held(("m", "12:15"), settled="12:15"))
    assert operator.timers == [at("12:17")]  # nothing is settled any more
    assert operator.kept.load().merchants.num_rows == 1
    assert operator.watermark(at("12:17")) == []
    assert operator.kept.group.settled_until is None
    assert operator.timers == [at("12:30")]
    put_out = operator.watermark(at("12:30"))
    assert _moments(put_out, "decisions", "window_end", "action") == [(12 * 60 + 30, "release")]


def test_rows_of_settled_windows_are_emitted_and_change_nothing() -> None:
    operator = Operator(_held(("m", "12:15"), settled="12:15"))
    put_out = operator.rows(
        table(row("a", "12:01", OVER), row("b", "11:00", 1, "other"), row("c", "12:16", 5))
    )
    assert [kind for kind, _ in put_out] == ["late"]
    kept = [
        (row["reason"], row["merchant_id"], row["event_id"], row["amount_minor"])
        for row in put_out[0][1]
    ]
    assert kept == [("settled", "m", "a", OVER), ("settled", "other", "b", 1)]
    assert [row["occurred_at"].strftime("%H:%M") for row in put_out[0][1]] == ["12:01", "11:00"]
    assert set(operator.kept.windows) == {at("12:30")}


def test_group_without_holds_or_settled_windows_has_no_timer() -> None:
    operator = Operator(_held(settled="12:15"))
    assert not operator.kept.is_empty
    assert operator.timers == [at("12:17")]
    assert operator.watermark(at("12:17")) == []
    assert operator.kept.is_empty
    assert operator.timers == []


def test_a_group_without_a_past_begins_with_nothing() -> None:
    operator = Operator(_held(settled=None))
    assert operator.kept.is_empty
    assert operator.timers == []


@pytest.mark.rest
@given(runs(), st.data())
@settings(max_examples=examples(30), deadline=None)
def test_checkpoint_continues_from_a_full_initial_state(run: Run, data: st.DataObject) -> None:
    policy, state = Policy.parse(run.policy), GroupState.empty()
    first = data.draw(st.integers(0, len(run.batches)))
    watermark = None
    for batch in run.batches[:first]:
        state, _ = apply(state, batch, policy, run.settings)
        watermark = batch.watermark
    operator = Operator(state, run.policy, run.settings, watermark)
    assert content(operator.kept.load()) == content(state)
    for batch in run.batches[first:]:
        state, output = apply(state, batch, policy, run.settings)
        put_out = dict(operator.batch(batch.watermark, arrow(batch.rows)))
        assert put_out.get("decisions", []) == output.decisions.to_pylist()
        assert put_out.get("windows", []) == output.windows.to_pylist()
        assert content(operator.kept.load()) == content(state)

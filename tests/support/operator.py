"""The exposure operator in Spark's own tester: one key group, called as Spark calls it."""

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.settings import MILLISECOND_US, Settings
from holdfast.spark_app.exposure.state import GroupState
from holdfast.spark_app.operator import initial_state
from holdfast.spark_app.operator.blobs import SCHEMAS, Kind, from_blob, to_blob
from holdfast.spark_app.operator.stored import GroupValue, Segment, SegmentKey
from tests.support.job.exposure import FIFTY_THOUSAND
from tests.support.job.stored_state import Kept

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

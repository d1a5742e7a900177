"""Shorthand for tests of the exposure step: clock times for microseconds, tuples for rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from holdfast.deploy.local.demo.reference import BatchResult, Event, Hand
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.schema import BY_HAND, ROWS, STATE_ABSORBED
from holdfast.spark_app.exposure.settings import Settings
from holdfast.spark_app.exposure.state import GroupState
from holdfast.spark_app.exposure.step import StepOutput, next_timer_us, step

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = datetime(2026, 11, 2, tzinfo=UTC)

FIFTY_THOUSAND = """
version = "v1"
[[default]]
limit_minor = 5000000
release_level_minor = 5000000
"""


def at(clock: str) -> int:
    """`12:15`, `12:15:30` or `12:15:30.000001` on the day of the tests, in microseconds."""
    hours, minutes, *seconds = clock.split(":")
    moment = DAY + timedelta(hours=int(hours), minutes=int(minutes))
    return (moment - EPOCH) // timedelta(microseconds=1) + round(float((seconds or ["0"])[0]) * 1e6)


def clock(moment: datetime) -> str:
    """The inverse of `at`, for whole minutes of the day of the tests and the days around it."""
    days = (moment - DAY).days
    return f"{moment:%H:%M}" + (f"{days:+d}d" if days else "")


def row(event_id: str, when: str, amount: int, merchant: str = "m", **other: Any) -> dict[str, Any]:
    """One event; `other` replaces type, currency or future_dated."""
    return {
        "event_id": event_id,
        "merchant_id": merchant,
        "type": "payout_submitted",
        "currency": "USD",
        "amount_minor": amount,
        "occurred_at": at(when),
        "future_dated": False,
    } | other


def table(*rows: dict[str, Any]) -> pa.Table:
    """Rows as the step takes them."""
    return pa.Table.from_pylist(list(rows), schema=ROWS)


class Group:
    """One key group through several batches."""

    def __init__(self, policy: str = FIFTY_THOUSAND, **settings: int) -> None:
        self.policy = Policy.parse(policy)
        self.settings = Settings(**settings)
        self.state = GroupState.empty()
        self.watermark: int | None = None
        self.output = StepOutput.empty()

    def batch(
        self, watermark: str | None, *rows: dict[str, Any], by_hand: Sequence[Hand] = ()
    ) -> "Group":
        """Take one batch; what it put out is in `emitted`, `decided` and `refused`."""
        self.watermark = None if watermark is None else at(watermark)
        self.state, self.output = step(
            self.state, table(*rows), self.watermark, self.policy, self.settings, decisions(by_hand)
        )
        return self

    @property
    def emitted(self) -> list[tuple[str, str, int, int]]:
        """(merchant, window end, revision, exposure) of the last batch."""
        return [
            (w["merchant_id"], clock(w["window_end"]), w["revision"], w["exposure_minor"])
            for w in self.output.windows.to_pylist()
        ]

    @property
    def decided(self) -> list[tuple[str, str, str, int, int]]:
        """(merchant, action, window end, ordinal, exposure) of the last batch."""
        return [
            (
                d["merchant_id"],
                d["action"],
                clock(d["window_end"]),
                d["ordinal"],
                d["exposure_minor"],
            )
            for d in self.output.decisions.to_pylist()
        ]

    @property
    def refused(self) -> list[tuple[str, str]]:
        """(reason, event id) of the last batch."""
        return [(r["reason"], r["event_id"]) for r in self.output.late.to_pylist()]

    @property
    def windows(self) -> list[tuple[str, str, int, int]]:
        """(merchant, window end, revision, exposure) in state; revision 0 is an open window."""
        rows = self.state.windows.to_pylist()
        rows.sort(key=lambda w: (w["merchant_id"], w["window_end"]))
        return [
            (w["merchant_id"], clock(w["window_end"]), w["revision"], w["exposure_minor"])
            for w in rows
        ]

    @property
    def ids(self) -> list[str]:
        """The event ids in state."""
        return sorted(self.state.absorbed["event_id"].to_pylist())

    @property
    def absorbed(self) -> list[tuple[str, str, str]]:
        """(merchant, window end, event id) in state, in the order of the state."""
        return [
            (a["merchant_id"], clock(a["window_end"]), a["event_id"])
            for a in self.state.absorbed.to_pylist()
        ]

    def forget_ids(self) -> GroupState:
        """The state as it is read for a step without rows."""
        return replace(self.state, absorbed=STATE_ABSORBED.empty_table())

    @property
    def merchants(self) -> dict[str, bool]:
        """Merchants in state, and whether they are held."""
        return {m["merchant_id"]: m["held"] for m in self.state.merchants.to_pylist()}

    @property
    def timer(self) -> int | None:
        """When the group has to be called next."""
        return next_timer_us(self.state, self.watermark, self.settings)


MINUTE = 60_000_000
WINDOW = 15 * MINUTE
DELAY = MINUTE // 2
START = 1_793_620_800_000_000  # 2026-11-02T12:00:00Z
END = START + 40 * WINDOW
CUTOFFS = st.sampled_from([0, 2, 2, 2, 20, 60]).map(lambda minutes: minutes * MINUTE)

MERCHANTS = ["m_1", "m_2", "m_3"]
AMOUNTS = [-120, -60, -40, -1, 0, 1, 40, 41, 60, 100, 101, 300]


@dataclass(frozen=True)
class Batch:
    """Rows that arrive together, and the watermark at which they do."""

    rows: Sequence[Event]
    watermark: int | None
    by_hand: Sequence[Hand] = ()


@dataclass(frozen=True)
class Run:
    """Everything that a run of the job depends on."""

    policy: str
    settings: Settings
    batches: list[Batch]


def moments(first: int, last: int) -> st.SearchStrategy[int]:
    """Times so many minutes from the start, often on or beside a boundary."""
    return st.builds(
        lambda minute, off: START + minute * MINUTE + off,
        st.one_of(st.integers(first, last), st.sampled_from(range(first, last + 1, 5))),
        st.sampled_from([0, 0, -1, 1, 7]),
    )


def events(**fixed: st.SearchStrategy[Any]) -> st.SearchStrategy[Event]:
    """Events of a few merchants; ids repeat, also with other content."""
    columns: dict[str, st.SearchStrategy[Any]] = {
        "event_id": st.integers(0, 60).map("e{}".format),
        "merchant_id": st.sampled_from(MERCHANTS),
        "type": st.sampled_from(["payout_submitted", "payout_failed"]),
        "amount_minor": st.sampled_from(AMOUNTS),
        "currency": st.sampled_from(["USD", "USD", "EUR"]),
        "occurred_at_us": moments(-25, 20),
        "future_dated": st.just(value=False),
    }
    return st.builds(Event, **(columns | fixed))


@st.composite
def policies(draw: st.DrawFn) -> str:
    """A default and some overrides, some of which begin during the run."""
    entries = ['version = "v1"']
    starts = st.sampled_from(["", *(f"2026-11-02T{h}:{m}:00Z" for h in (12, 13) for m in (15, 30))])
    taken = {("default", "")}
    entries.append(_entry("[[default]]", draw(_limits()), ""))
    for _ in range(draw(st.integers(0, 5))):
        owner, since = draw(st.sampled_from(["default", *MERCHANTS[:2]])), draw(starts)
        if (owner, since) not in taken:
            taken.add((owner, since))
            head = "[[default]]" if owner == "default" else f'[[merchant]]\nid = "{owner}"'
            entries.append(_entry(head, draw(_limits()), since))
    return "\n".join(entries)


def _limits() -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(0, 120), st.integers(0, 120)).map(lambda p: (max(p), min(p)))


def _entry(head: str, limits: tuple[int, int], since: str) -> str:
    limit, release_level = limits
    text = f"{head}\nlimit_minor = {limit}\nrelease_level_minor = {release_level}"
    return f"{text}\neffective_from = {since}" if since else text


@st.composite
def hands(draw: st.DrawFn, clock: int) -> Hand:
    """A decision by hand about now, of any number: also one that came before another."""
    decided = clock + draw(moments(-20, 5)) - START
    lasts = draw(st.sampled_from([None, None, 1, 10, 15, 16, 40]))
    until = None if lasts is None else decided + lasts * MINUTE
    merchant = draw(st.sampled_from(MERCHANTS))
    return Hand(merchant, draw(st.integers(1, 9)), draw(st.booleans()), decided, until)


def decisions(by_hand: Sequence[Hand]) -> pa.Table:
    """Decisions by hand as the step takes them."""
    columns = [list(column) for column in zip(*by_hand, strict=True)] or [[]] * len(BY_HAND)
    return pa.table(dict(zip(BY_HAND.names, columns, strict=True)), schema=BY_HAND)


@st.composite
def runs(draw: st.DrawFn, merchants: Sequence[str] = MERCHANTS, *, by_hand: bool = False) -> Run:
    """Batches around a clock that stands still, creeps or jumps; rows early, late and far ahead."""
    merchant_rows = events(merchant_id=st.sampled_from(merchants))
    clock, watermark, batches = START, None, []
    for _ in range(draw(st.integers(1, 10))):
        rows = [
            row._replace(occurred_at_us=row.occurred_at_us + clock - START)
            for row in draw(st.lists(merchant_rows, max_size=8))
        ]
        # Whether a row is believed depends on its time alone, as it does on the batch's clock.
        horizon = clock + draw(st.sampled_from([15, 15, 5])) * MINUTE
        rows = [row._replace(future_dated=row.occurred_at_us > horizon) for row in rows]
        few = st.lists(hands(clock), max_size=2, unique_by=lambda hand: hand.number)
        batches.append(Batch(rows, watermark, draw(few) if by_hand else ()))
        clock += draw(st.sampled_from([0, 1, 1, 2, 5, 14, 15, 60])) * MINUTE
        if draw(st.integers(0, 3)):
            watermark = clock
    batches.append(Batch([], watermark))
    return Run(draw(policies()), Settings(late_cutoff_us=draw(CUTOFFS)), batches)


@st.composite
def splits(draw: st.DrawFn) -> tuple[list[Batch], list[Batch]]:
    """The same arrivals, cut in two ways; no row comes after the end of its window in either.

    The watermark is the newest time of *earlier* batches minus the delay, so it is enough that no
    row is older than another one before it by more than the delay. Ids are unique but for exact
    copies, which is what the source promises.
    """
    times = sorted(draw(st.lists(moments(0, 240), max_size=40)))
    jitter = [draw(st.integers(-DELAY // 2, DELAY // 2)) for _ in times]
    arrivals = []
    for number, (time, late) in enumerate(zip(times, jitter, strict=True)):
        columns = {"event_id": st.just(f"e{number}"), "occurred_at_us": st.just(time + late)}
        arrivals += [draw(events(**columns))] * draw(st.sampled_from([1, 1, 1, 2]))
    return cut(draw, arrivals), cut(draw, arrivals)


def cut(draw: st.DrawFn, arrivals: Sequence[Event]) -> list[Batch]:
    """Arrivals as batches, each at the watermark of those before it, and the end of all."""
    places = draw(st.lists(st.integers(0, len(arrivals)), max_size=10))
    edges = [0, *sorted(places), len(arrivals)]
    batches = []
    for begin, end in pairwise(edges):
        newest = max((row.occurred_at_us for row in arrivals[:begin]), default=None)
        batches.append(Batch(arrivals[begin:end], None if newest is None else newest - DELAY))
    return [*batches, Batch([], END)]


def arrow(rows: Sequence[Event], *, chunks: int = 1) -> pa.Table:
    """Events as the step takes them, in so many pieces."""
    columns = {
        "event_id": [row.event_id for row in rows],
        "merchant_id": [row.merchant_id for row in rows],
        "type": [row.type for row in rows],
        "currency": [row.currency for row in rows],
        "amount_minor": [row.amount_minor for row in rows],
        "occurred_at": [row.occurred_at_us for row in rows],
        "future_dated": [row.future_dated for row in rows],
    }
    table = pa.table(columns, schema=ROWS)
    size = max(1, -(-len(rows) // chunks))
    return pa.concat_tables([table.slice(i, size) for i in range(0, max(1, len(rows)), size)])


def apply(
    state: GroupState, batch: Batch, policy: Policy, settings: Settings
) -> tuple[GroupState, StepOutput]:
    """One step."""
    rows, by_hand = arrow(batch.rows), decisions(batch.by_hand)
    return step(state, rows, batch.watermark, policy, settings, by_hand)


def plain(output: StepOutput) -> BatchResult:
    """What a step put out, as the reference says it."""
    return BatchResult(*(_tuples(t) for t in (output.windows, output.decisions, output.late)))


def _tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [
        (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
        for column in table.columns
    ]
    return list(zip(*columns, strict=True))

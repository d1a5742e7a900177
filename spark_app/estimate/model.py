"""The arithmetic of an estimate: pure, from a load and the unit costs.

recovery time = detection + restart + restore(state) + reprocess(interval x rate)
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from holdfast.spark_app.estimate.units import GROUPS, MEASURED, RANGE, Units
from holdfast.spark_app.exposure.settings import SECOND_US, Settings
from holdfast.spark_app.operator.id_segments import BASE

INTERVALS_S: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0)
"""Of which one is recommended."""

BUSY_MAX: Final = 0.7
"""Of the recommended interval: the rest is for peaks, and to catch up after a restart."""

OVERHEAD_MAX: Final = 0.2
"""Of the recommended interval, that a batch may cost whatever events are in it."""

IDS_PER_GROUP_MAX: Final = 90_000_000
"""The ids of a group are read in one answer of at most 2 GiB."""

SNAPSHOT_BATCHES: Final = 10
SNAPSHOT_S: Final = 60.0
"""Spark uploads a snapshot after so many batches, and looks for one so often."""

KEPT_BATCHES: Final = 100
"""Of which Spark keeps the state."""

DETECTION_S: Final = 10.0
"""Assumed where nothing is said."""

UNKNOWN: Final = (
    "your machine: another number of cores, disk or load changes every unit cost",
    "a remote checkpoint: the measured one is on a local file system with a warm cache",
    "your ids: random UUIDs take about 1.7 times the measured ones of 20 characters",
    "other partitions than two: more cores divide what depends on events and ids",
    "a merchant with a large share of the events: its group is one task",
    "decisions in one batch: each takes about 2 KB of the driver's memory (docs/spark/cluster.md)",
    "late events, and merchants with more than one open window",
)
"""What no option tells an estimate."""


@dataclass(frozen=True, slots=True)
class Load:
    """What arrives and how the job runs; seconds. Raises ValueError for what cannot be."""

    events_per_second: float
    merchants: int
    ids_open: int | None = None
    """None: what arrives while an id is kept."""
    interval_s: float | None = None
    """None: the recommended one."""
    key_groups: int = GROUPS
    detection_s: float | None = None
    """None: `DETECTION_S`, which is a guess."""
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        if not 0 < self.events_per_second <= 1e8:
            raise ValueError(
                f"{self.events_per_second:g} events per second: expected a number above 0, at most"
                " 100,000,000"
            )
        if not 1 <= self.merchants <= 1_000_000_000:
            raise ValueError(f"{self.merchants:,} merchants: expected 1 to 1,000,000,000")
        if self.ids_open is not None and not 0 <= self.ids_open <= 10**11:
            raise ValueError(f"{self.ids_open:,} open ids: expected 0 to 100,000,000,000")
        if self.interval_s is not None and not 0 < self.interval_s <= 3_600:
            raise ValueError(
                f"an interval of {self.interval_s:g} s: expected more than 0, up to 1 h"
            )
        if self.detection_s is not None and not 0 <= self.detection_s <= 86_400:
            raise ValueError(f"a detection of {self.detection_s:g} s: expected 0 s to 24 h")
        batch = self.events_per_second * (self.interval_s or 0)
        if self.ids_open is not None and batch > self.ids_open:
            raise ValueError(
                f"{self.ids_open:,} open ids are fewer than the {batch:,.0f} events of one"
                " interval, whose ids are all open"
            )

    @property
    def kept_s(self) -> float:
        """How long an id is kept at most: its window, the cutoff and the watermark's delay."""
        kept = self.settings
        return (kept.window_us + kept.late_cutoff_us + kept.watermark_delay_us) / SECOND_US

    @property
    def ids(self) -> int:
        """Ids in the state."""
        if self.ids_open is not None:
            return self.ids_open
        return math.ceil(self.events_per_second * self.kept_s)


@dataclass(frozen=True, slots=True)
class Recovery:
    """The terms of the recovery time, in seconds."""

    detection_s: float
    restart_s: float
    """Python, JVM, session, query, and a first batch without state."""
    restore_s: float
    """Of the state."""
    reprocess_s: float
    """Of the events of the interval that was lost."""

    @property
    def total_s(self) -> float:
        return self.detection_s + self.restart_s + self.restore_s + self.reprocess_s


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a load comes to; seconds and bytes."""

    recommended_interval_s: float | None
    """None: no interval is enough on one machine like the measured one."""
    interval_s: float
    batch_s: float
    busy: float
    """The batch's share of the interval; above 1 the job falls behind."""
    ids_open: int
    state_bytes: float
    snapshot_bytes: float
    changelog_bytes: float
    """Of one batch."""
    written_bytes_per_second: float
    """Changelogs, snapshots and logs."""
    checkpoint_bytes: float
    """With the batches that Spark keeps; at most, because snapshots share files."""
    java_bytes: float
    python_bytes: float
    recovery: Recovery
    caught_up_s: float | None
    """After the recovery, until what arrived in the meantime is processed; None: never."""
    warnings: tuple[str, ...]
    """Why one machine like the measured one is not enough."""
    extrapolated: tuple[str, ...]
    """What is beyond the range that was measured."""
    not_known: tuple[str, ...]
    """What the estimate cannot say of this load."""


def estimate(load: Load, units: Units = MEASURED) -> Estimate:
    """Estimate a load."""
    recommended = _recommended(load, units)
    interval_s = load.interval_s or recommended or INTERVALS_S[-1]
    batch_s = _batch_s(load, units, interval_s)
    millions = load.ids / 1e6
    state = load.ids * units.state_bytes_per_id + load.merchants * units.state_bytes_per_merchant
    changelog = _changelog_bytes(load, units, interval_s)
    snapshot_every_s = max(SNAPSHOT_BATCHES * interval_s, SNAPSHOT_S)
    snapshots_kept = math.ceil(KEPT_BATCHES * interval_s / snapshot_every_s) + 1
    logs = units.log_bytes_per_batch
    recovery = Recovery(
        detection_s=DETECTION_S if load.detection_s is None else load.detection_s,
        restart_s=units.start_s + units.first_batch_s,
        restore_s=units.restore_s_per_million_ids * millions,
        reprocess_s=(units.replay_s_per_million_events * load.events_per_second * interval_s / 1e6),
    )
    return Estimate(
        recommended_interval_s=recommended,
        interval_s=interval_s,
        batch_s=batch_s,
        busy=batch_s / interval_s,
        ids_open=load.ids,
        state_bytes=state,
        snapshot_bytes=state,
        changelog_bytes=changelog,
        written_bytes_per_second=(changelog + logs) / interval_s + state / snapshot_every_s,
        checkpoint_bytes=KEPT_BATCHES * (changelog + logs) + snapshots_kept * state,
        java_bytes=units.java_bytes + units.java_bytes_per_million_ids * millions,
        python_bytes=units.python_bytes + units.python_bytes_per_million_ids * millions,
        recovery=recovery,
        caught_up_s=_caught_up_s(load, units, recovery.total_s),
        warnings=tuple(_warnings(load, recommended, batch_s / interval_s)),
        extrapolated=tuple(_extrapolated(load, interval_s)),
        not_known=(*_not_given(load), *UNKNOWN),
    )


def _event_s(load: Load, units: Units) -> float:
    """Seconds of work that arrive in a second."""
    return load.events_per_second * units.batch_s_per_million_events / 1e6


def _batch_s(load: Load, units: Units, interval_s: float) -> float:
    return units.batch_s + _event_s(load, units) * interval_s


def _recommended(load: Load, units: Units) -> float | None:
    """The shortest interval that leaves the job time; a longer one only repeats more."""
    for interval_s in INTERVALS_S:
        busy = _batch_s(load, units, interval_s) / interval_s
        if busy <= BUSY_MAX and units.batch_s / interval_s <= OVERHEAD_MAX:
            return interval_s
    return None


def _changelog_bytes(load: Load, units: Units, interval_s: float) -> float:
    """Bytes of a mean batch: new ids, those of merged segments, and the windows of all groups.

    Of `BASE` segments of a level all but the newest are written again when they merge.
    """
    batches = max(load.kept_s / interval_s, 1.0)
    levels = math.floor(math.log(batches, BASE))
    times = 1 + levels * (BASE - 1) / BASE
    events = load.events_per_second * interval_s
    merchants = min(load.merchants, load.ids) if load.ids else load.merchants
    return (
        events * times * units.changelog_bytes_per_event
        + merchants * units.changelog_bytes_per_merchant
    )


def _caught_up_s(load: Load, units: Units, down_s: float) -> float | None:
    """Seconds to process what arrived in `down_s`, while more arrives."""
    work = _event_s(load, units)
    return down_s * work / (1 - work) if work < 1 else None


def _warnings(load: Load, recommended: float | None, busy: float) -> list[str]:
    found = []
    if recommended is None:
        found.append(
            "no interval leaves a machine like the measured one enough time: it needs more cores"
        )
    if busy > 1:
        found.append("batches take longer than the interval: the job falls behind")
    if load.ids > load.key_groups * IDS_PER_GROUP_MAX:
        groups = math.ceil(load.ids / IDS_PER_GROUP_MAX)
        found.append(f"a key group would have too many ids: at least {groups:,} groups are needed")
    return found


def _extrapolated(load: Load, interval_s: float) -> Iterator[str]:
    events = load.events_per_second * interval_s
    for found, most, name in (
        (load.ids, RANGE.ids, "ids in the state"),
        (load.merchants, RANGE.merchants, "merchants"),
        (events, RANGE.events_per_batch, "events in a batch"),
    ):
        if found > most:
            yield (
                f"{found:,.0f} {name} are extrapolated: measured up to {most:,}, and a machine can"
                " behave otherwise beyond"
            )
    if interval_s > RANGE.interval_s:
        yield f"an interval of {interval_s:g} s is extrapolated: measured up to {RANGE.interval_s}"


def _not_given(load: Load) -> Iterator[str]:
    """Yield what an option can say, and these options do not, or what they change unmeasured."""
    if load.detection_s is None:
        yield f"the detection: {DETECTION_S:g} s are a guess; --detection says it"
    if load.ids_open is None:
        yield "the open ids: one for each event until it is forgotten; --ids-open says how many"
    if load.key_groups != GROUPS:
        yield f"{load.key_groups:,} key groups: measured with {GROUPS}, and each costs a batch"

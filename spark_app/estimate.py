"""`holdfast job estimate`: what a rate of events costs, in interval, state, memory and recovery."""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Final

import typer

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.numbers import milliseconds
from holdfast.spark_app.exposure.settings import MILLISECOND_US, SECOND_US, Settings
from holdfast.spark_app.operator.id_segments import BASE

# The measured unit costs, and what they were measured on.
#
# `docs/spark/recovery-time.json` has the same values and the measurements behind them; a test
# compares. To measure again: docs/spark/recovery-time.md.


@dataclass(frozen=True, slots=True)
class Units:
    """Seconds and bytes. `ids` are event ids in the state, `merchants` those with a window."""

    start_s: float
    """Of a process until its first batch begins: Python, JVM, Spark session, checks, query."""
    first_batch_s: float
    """Of the first batch of a process, without ids in the state and with few events."""
    restore_s_per_million_ids: float
    """More of the first batch: files and changelogs are loaded, and the groups read."""
    replay_s_per_million_events: float
    """More of the first batch: it is cold, so an event costs more than in a later one."""
    batch_s: float
    """Of a later batch, whatever is in it. It did not grow with the ids in the state, up to 4 M."""
    batch_s_per_million_events: float
    state_bytes_per_id: float
    """In RocksDB's files, and so in a snapshot."""
    state_bytes_per_merchant: float
    changelog_bytes_per_event: float
    """An id is written once by its batch, and again when segments are merged."""
    changelog_bytes_per_merchant: float
    """In every batch: a group's open windows are written as a whole."""
    log_bytes_per_batch: float
    """Plan, commit and source log."""
    java_bytes: float
    java_bytes_per_million_ids: float
    python_bytes: float
    """Of all Python workers; two partitions."""
    python_bytes_per_million_ids: float


COMMAND: Final = "python -m tests.benchmarks.operator --only sweep,state,restore"
"""Its part f ran once more after that: `--only f --docs`."""

DATE: Final = "2026-11-25"
GROUPS: Final = 32
"""Key groups of the measured job."""

MACHINE: Final = (
    f"2 cores, 2 partitions, {GROUPS} key groups, a local file system, ids of 20 characters"
)

MEASURED: Final = Units(
    start_s=18.2,
    first_batch_s=19.8,
    restore_s_per_million_ids=0.907,
    replay_s_per_million_events=24.9,
    batch_s=1.51,
    batch_s_per_million_events=9.21,
    state_bytes_per_id=21.1,
    state_bytes_per_merchant=29.1,
    changelog_bytes_per_event=26.0,
    changelog_bytes_per_merchant=11.6,
    log_bytes_per_batch=1_870,
    java_bytes=1_000_000_000,
    java_bytes_per_million_ids=184_000_000,
    python_bytes=784_000_000,
    python_bytes_per_million_ids=39_700_000,
)


@dataclass(frozen=True, slots=True)
class Range:
    """The largest loads that were measured."""

    ids: int
    """Event ids in the state."""
    merchants: int
    events_per_batch: int
    interval_s: int


RANGE: Final = Range(ids=4_000_000, merchants=200_000, events_per_batch=480_000, interval_s=120)
"""Rounded; beyond it every figure is a straight line drawn on."""


# The arithmetic of an estimate: pure, from a load and the unit costs.
#
# recovery time = detection + restart + restore(state) + reprocess(interval x rate)

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
        not_known=(*_assumed(load), *UNKNOWN),
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
    warnings = []
    if recommended is None:
        warnings.append(
            "no interval leaves a machine like the measured one enough time: it needs more cores"
        )
    if busy > 1:
        warnings.append("batches take longer than the interval: the job falls behind")
    if load.ids > load.key_groups * IDS_PER_GROUP_MAX:
        groups = math.ceil(load.ids / IDS_PER_GROUP_MAX)
        warnings.append(
            f"a key group would have too many ids: at least {groups:,} groups are needed"
        )
    return warnings


def _extrapolated(load: Load, interval_s: float) -> Iterator[str]:
    events = load.events_per_second * interval_s
    for value, most, name in (
        (load.ids, RANGE.ids, "ids in the state"),
        (load.merchants, RANGE.merchants, "merchants"),
        (events, RANGE.events_per_batch, "events in a batch"),
    ):
        if value > most:
            yield (
                f"{value:,.0f} {name} are extrapolated: measured up to {most:,}, and a machine can"
                " behave otherwise beyond"
            )
    if interval_s > RANGE.interval_s:
        yield f"an interval of {interval_s:g} s is extrapolated: measured up to {RANGE.interval_s}"


def _assumed(load: Load) -> Iterator[str]:
    """Yield what an option can say, and these options do not, or what they change unmeasured."""
    if load.detection_s is None:
        yield f"the detection: {DETECTION_S:g} s are a guess; --detection says it"
    if load.ids_open is None:
        yield "the open ids: one for each event until it is forgotten; --ids-open says how many"
    if load.key_groups != GROUPS:
        yield f"{load.key_groups:,} key groups: measured with {GROUPS}, and each costs a batch"


def estimate_job(
    events_per_second: Annotated[float, typer.Option(help="Mean rate of events.")],
    merchants: Annotated[int, typer.Option(help="Merchants with an event in a window.")],
    ids_open: Annotated[
        int | None,
        typer.Option(
            help="Event ids in the state.", show_default="those of a window, its cutoff and delay"
        ),
    ] = None,
    interval: Annotated[
        str | None,
        typer.Option(help="The trigger interval.", show_default="the recommended one"),
    ] = None,
    key_groups: Annotated[
        int,
        typer.Option(
            min=1,
            max=4096,
            help="Number of key groups of the state.",
            show_default=f"{GROUPS}, as measured",
        ),
    ] = GROUPS,
    watermark_delay: Annotated[
        str, typer.Option(help="Delay of the watermark behind the newest event.")
    ] = "30s",
    late_cutoff: Annotated[
        str, typer.Option(help="Time after its end in which a window accepts corrections.")
    ] = "2m",
    detection: Annotated[
        str | None,
        typer.Option(help="Time until the job is started again.", show_default="a guess of 10s"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Estimate interval, state, checkpoint, memory and recovery time from measured unit costs.

    Starts nothing and reads nothing. Exit code 4 if one machine like the measured one is not
    enough.
    """
    try:
        load = Load(
            events_per_second=events_per_second,
            merchants=merchants,
            ids_open=ids_open,
            interval_s=None if interval is None else milliseconds(interval) / 1000,
            key_groups=key_groups,
            detection_s=None if detection is None else milliseconds(detection) / 1000,
            settings=Settings(
                watermark_delay_us=milliseconds(watermark_delay) * MILLISECOND_US,
                late_cutoff_us=milliseconds(late_cutoff) * MILLISECOND_US,
            ),
        )
    except ValueError as error:
        raise CommandError(
            f"{error}. Nothing was estimated.", ExitCode.USAGE, code="invalid_value"
        ) from error
    result = estimate(load)
    typer.echo(json.dumps(document(result), indent=2) if as_json else text(result))
    if result.warnings:
        raise typer.Exit(ExitCode.DEGRADED)


def document(result: Estimate) -> dict[str, Any]:
    """Return what `--json` prints; seconds and bytes."""
    return {
        **asdict(result),
        "recovery": {**asdict(result.recovery), "total_s": result.recovery.total_s},
        "measured": {"command": COMMAND, "date": DATE, "machine": MACHINE},
    }


def text(result: Estimate) -> str:
    """Return the lines that the command prints."""
    lines = [f"{name:<16}{words}" for name, words in _figures(result)]
    lines += [f"{'warning':<16}{words}" for words in (*result.warnings, *result.extrapolated)]
    lines += ["", f"Measured {DATE} on {MACHINE}. Not known:"]
    return "\n".join([*lines, *(f"- {words}" for words in result.not_known)])


def _figures(result: Estimate) -> Iterator[tuple[str, str]]:
    advised, term = result.recommended_interval_s, result.recovery
    recommended = "" if advised is None else f" (recommended: {advised:g} s)"
    yield "interval", f"{result.interval_s:g} s{recommended}"
    yield "batch", f"{result.batch_s:,.1f} s, {result.busy:.0%} of the interval"
    yield "state", f"{_size(result.state_bytes)} with {result.ids_open:,} ids"
    sizes = map(_size, (result.snapshot_bytes, result.changelog_bytes))
    yield "checkpoint", "snapshot {}, changelog {} a batch".format(*sizes)
    sizes = map(_size, (result.written_bytes_per_second, result.checkpoint_bytes))
    yield "", "{} written a second, {} kept at most".format(*sizes)
    sizes = map(_size, (result.java_bytes, result.python_bytes))
    yield "memory", "JVM {}, Python workers {}".format(*sizes)
    terms = f"detection {term.detection_s:,.0f} + restart {term.restart_s:,.0f}"
    terms += f" + restore {term.restore_s:,.1f} + reprocess {term.reprocess_s:,.1f}"
    yield "recovery time", f"{term.total_s:,.0f} s = {terms}"
    caught_up = "never" if result.caught_up_s is None else f"{result.caught_up_s:,.0f} s later"
    yield "caught up", caught_up


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} TB"

"""The sizes of the measurements."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from tests.benchmarks.operator.events import Shape

BATCHES = 10


@dataclass(frozen=True, slots=True)
class Steady:
    """A rate at which a producer writes for a while."""

    events_per_second: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Backlog:
    """An hour of event time that waits, and the traffic that goes on meanwhile.

    The clock of the events is `speed` times as fast as ours: an hour of them is 3600 / `speed`
    seconds of traffic.
    """

    events_per_second: int
    speed: int
    event_seconds: int = 3600

    @property
    def events(self) -> int:
        return self.events_per_second * self.event_seconds // self.speed


@dataclass(frozen=True, slots=True)
class Slow:
    """Rounds of a minute of event time: two partitions in time, one idle, one behind."""

    rounds: int
    events_a_round: int
    behind_s: int
    delays: tuple[int, ...]
    """Watermark delays in seconds."""
    idle_timeout_s: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """The inputs of a run of the benchmark."""

    rounds: int
    partitions: int
    events: Shape
    """What all cases read: a file, or as many records of the topic, is a batch."""
    warm: Shape
    steady: tuple[Steady, ...]
    backlog: Backlog
    slow: Slow

    @classmethod
    def full(cls) -> Self:
        """What the figures in the documents come from; half an hour."""
        return cls(
            rounds=3,
            partitions=4,
            events=Shape(BATCHES, 100_000, 50_000),
            warm=Shape(3, 20_000, 5_000, file_s=600, seed=1),
            steady=(Steady(1_000, 30), Steady(5_000, 30), Steady(20_000, 30)),
            backlog=Backlog(2_000, 10),
            slow=Slow(30, 400, behind_s=600, delays=(30, 600), idle_timeout_s=30),
        )

    @classmethod
    def quick(cls) -> Self:
        """To see that everything works; the figures mean nothing."""
        return cls(
            rounds=1,
            partitions=3,
            events=Shape(BATCHES, 2_000, 500),
            warm=Shape(1, 1_000, 200, seed=1),
            steady=(Steady(200, 4),),
            backlog=Backlog(200, 360),
            slow=Slow(30, 20, behind_s=600, delays=(30, 600), idle_timeout_s=10),
        )

    def changed(self, rounds: int | None) -> Self:
        """Other numbers from the command line."""
        return self if rounds is None else replace(self, rounds=rounds)

    def described(self) -> dict[str, Any]:
        """As the report has it."""
        return asdict(self)

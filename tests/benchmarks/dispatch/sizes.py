"""The sizes of the measurements."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Sizes:
    """The inputs of a run of the benchmark."""

    jobs: int
    subjects: int
    burst_subjects: int
    """Of the case where four entries of a subject follow one another."""
    connections: int
    rounds: int
    limit_seconds: float
    """How long one run may take before it is given up."""
    order_jobs: int
    """At the receiver that takes its time."""
    latency_ms: tuple[float, float]
    """Least and most of that receiver."""
    trickled: int
    """Jobs whose latency is measured, one by one."""
    waiting: tuple[int, ...]
    """Entries that wait at the points of the backlog."""
    claims: int
    """Claims, each with its settlement, at a point of the backlog in a round."""
    held_minutes: float
    """How long another session holds an old snapshot."""
    outage_entries: int
    outage_rate: int
    """The endpoint's, in deliveries a second."""
    memory_entries: int
    memory_seconds: float
    """How long the dispatcher's memory is watched."""
    days: int = 0
    """Days behind that have partitions, as retention leaves them."""

    @classmethod
    def full(cls) -> Self:
        """What the figures in the documents come from."""
        return cls(
            jobs=20_000,
            subjects=5_000,
            burst_subjects=1_250,
            connections=64,
            rounds=3,
            limit_seconds=180,
            order_jobs=8_000,
            latency_ms=(5, 25),
            trickled=60,
            waiting=(10_000, 100_000, 1_000_000, 5_000_000),
            claims=40,
            held_minutes=10,
            outage_entries=1_000_000,
            outage_rate=5_000,
            memory_entries=1_000_000,
            memory_seconds=60,
        )

    @classmethod
    def quick(cls) -> Self:
        """To see that everything works; the figures mean nothing."""
        return cls(
            jobs=2_000,
            subjects=500,
            burst_subjects=125,
            connections=64,
            rounds=1,
            limit_seconds=60,
            order_jobs=800,
            latency_ms=(5, 25),
            trickled=4,
            waiting=(10_000, 50_000),
            claims=4,
            held_minutes=0.1,
            outage_entries=3_000,
            outage_rate=500,
            memory_entries=20_000,
            memory_seconds=3,
        )

    def changed(
        self, jobs: int | None, rounds: int | None, minutes: float | None, days: int
    ) -> Self:
        """Other numbers from the command line; subjects stay in proportion."""
        changed = replace(self, days=days)
        if jobs is not None:
            changed = replace(
                changed,
                jobs=jobs,
                subjects=max(jobs * self.subjects // self.jobs, 1),
                burst_subjects=max(jobs * self.burst_subjects // self.jobs, 1),
            )
        if rounds is not None:
            changed = replace(changed, rounds=rounds)
        return changed if minutes is None else replace(changed, held_minutes=minutes)

    def described(self) -> dict[str, Any]:
        """As the report has it."""
        return asdict(self)

"""The sizes of the measurements."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Rate:
    """Events a second, written for a while."""

    events_per_second: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Sizes:
    """The inputs of a run of the benchmark."""

    rounds: int
    warm: int
    """Batches before the measured ones: the JVM compiles what it runs often."""
    batches: int
    """Measured batches with rows, and as many without."""
    rows: int
    """Of each batch that has any, each of another merchant."""
    warm_s: float
    """Seconds at each rate before those that count: a JVM compiles for so long."""
    rates: tuple[Rate, ...]
    merchants: int
    """Who take turns at the events, so that two of one merchant are never in one batch."""
    closings: int
    """Windows that close one after the other, each with a decision."""
    job_options: tuple[str, ...] = ()
    """Of `job run`, beside its defaults."""

    @classmethod
    def full(cls) -> Self:
        """What the figures in the documents come from; a quarter of an hour."""
        return cls(
            rounds=3,
            warm=60,
            batches=60,
            rows=200,
            warm_s=90,
            rates=(Rate(1, 60), Rate(100, 60), Rate(1_000, 60)),
            merchants=10_000,
            closings=40,
        )

    @classmethod
    def quick(cls) -> Self:
        """To see that everything works; the figures mean nothing."""
        return cls(
            rounds=1,
            warm=5,
            batches=10,
            rows=200,
            warm_s=2,
            rates=(Rate(2, 5), Rate(50, 5)),
            merchants=500,
            closings=4,
        )

    def changed(
        self, rounds: int | None, job_options: Sequence[str], rates: Sequence[int] | None
    ) -> Self:
        """Other values from the command line; `rates` are events a second."""
        kept = self.rounds if rounds is None else rounds
        seconds = self.rates[0].seconds
        wanted = self.rates if rates is None else tuple(Rate(each, seconds) for each in rates)
        return replace(self, rounds=kept, job_options=tuple(job_options), rates=wanted)

    def counted(self) -> tuple[Self, Self]:
        """Two sizes whose difference is `batches` with rows and as many without."""
        return replace(self, warm=2, batches=2), replace(self, warm=2, batches=12)

    def described(self) -> dict[str, Any]:
        """As the report has it."""
        return asdict(self)

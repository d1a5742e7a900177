"""The sizes of the measurements."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from tests.benchmarks.operator.events import Shape
from tests.benchmarks.operator.restore import Fill
from tests.benchmarks.operator.tradeoff import Pace

FILES = 10
MERCHANTS = 200_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """The inputs of a run of the benchmark."""

    rounds: int
    textbook_rounds: int
    events: Shape
    """What this operator and the built-in one read: a file is a batch."""
    warm: Shape
    textbook: Shape
    """A state per merchant is too slow for all of it: fewer events, and fewer merchants alike."""
    textbook_warm: Shape
    pace: Pace
    growth: Shape
    growth_files: tuple[int, ...]
    fill: Fill
    providers: Shape
    """A million ids are open at once: those of 1,050 s."""
    providers_warm: Shape

    @classmethod
    def full(cls) -> Self:
        """What the figures in the documents come from; about an hour."""
        return cls(
            rounds=3,
            textbook_rounds=2,
            events=Shape(FILES, 500_000, MERCHANTS),
            warm=Shape(4, 100_000, 20_000, file_s=600, seed=1),
            textbook=Shape(FILES, 40_000, 16_000),
            textbook_warm=Shape(3, 5_000, 2_000, file_s=900, seed=1),
            pace=Pace({0.5: 64, 2: 48, 10: 16, 30: 8, 60: 5, 120: 4}),
            growth=Shape(8, 500_000, MERCHANTS, file_s=100),
            growth_files=(2, 4, 8),
            fill=Fill(100_000, MERCHANTS, files=(1, 10, 40)),
            providers=Shape(FILES, 300_000, MERCHANTS // 2),
            providers_warm=Shape(3, 20_000, 5_000, file_s=600, seed=1),
        )

    @classmethod
    def quick(cls) -> Self:
        """To see that everything works; the figures mean nothing."""
        return cls(
            rounds=1,
            textbook_rounds=1,
            events=Shape(FILES, 20_000, 8_000),
            warm=Shape(2, 5_000, 2_000, file_s=900, seed=1),
            textbook=Shape(FILES, 2_000, 800),
            textbook_warm=Shape(2, 500, 200, file_s=900, seed=1),
            pace=Pace({0.5: 3, 2: 3, 10: 2}, events_per_second=400, merchants=200),
            growth=Shape(4, 20_000, 8_000, file_s=100),
            growth_files=(1, 2, 4),
            fill=Fill(2_000, 500, files=(1, 3), rounds=1),
            providers=Shape(3, 2_000, 500),
            providers_warm=Shape(1, 500, 100, seed=1),
        )

    def changed(self, events: int | None, rounds: int | None) -> Self:
        """Other numbers from the command line; merchants stay in proportion."""
        changed = self
        if events is not None:
            per_file = max(events // FILES, 100)
            shape = Shape(FILES, per_file, min(MERCHANTS, max(per_file * 2 // 5, 10)))
            changed = replace(changed, events=shape)
        return changed if rounds is None else replace(changed, rounds=rounds)

    def described(self) -> dict[str, Any]:
        """As the report has it."""
        return asdict(self)

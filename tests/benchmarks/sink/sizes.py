"""The sizes of the measurements."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Sizes:
    """The inputs of a run of the benchmark."""

    rows: int
    """In a batch."""
    subjects: int
    many_subjects: int
    rounds: int
    warm: int
    """Batches at the start of each run that are not counted."""
    counted: int
    """Batches of each run that are."""
    stored: tuple[int, ...]
    """Rows in the tables at the points of the growth."""
    large: tuple[int, ...]
    """Rows of large batches on both paths; 1,000,000 are the most on the driver path."""

    @classmethod
    def full(cls) -> Self:
        """What the figures in the documents come from."""
        return cls(
            rows=100_000,
            subjects=5_000,
            many_subjects=100_000,
            rounds=3,
            warm=8,
            counted=3,
            stored=(10_000, 100_000, 1_000_000, 10_000_000),
            large=(100_000, 300_000, 1_000_000),
        )

    @classmethod
    def quick(cls) -> Self:
        """To see that everything works; the figures mean nothing."""
        return cls(
            rows=4_000,
            subjects=200,
            many_subjects=4_000,
            rounds=1,
            warm=1,
            counted=1,
            stored=(1_000, 10_000),
            large=(15_000,),
        )

    def changed(self, rows: int | None, rounds: int | None) -> Self:
        """Other numbers from the command line; subjects stay in proportion."""
        changed = self
        if rows is not None:
            changed = replace(
                changed,
                rows=rows,
                subjects=max(rows * self.subjects // self.rows, 1),
                many_subjects=max(rows * self.many_subjects // self.rows, 1),
            )
        return changed if rounds is None else replace(changed, rounds=rounds)

    def described(self) -> dict[str, Any]:
        """As the report has it."""
        return asdict(self)

"""The order of the jobs, and the number of jobs per commit.

Pure: a shape is a list of subjects, one a job; the n-th job of a subject has sequence n.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.benchmarks.dispatch.sizes import Sizes

IN_A_ROW: Final = 4
BATCH: Final = 2_000


@dataclass(frozen=True, slots=True)
class Shape:
    """How jobs come in."""

    label: str
    subjects: Callable[[Sizes, int], list[int]]
    """The subject of each of so many jobs."""
    ours: int
    """Entries of a transaction of our sink, which writes batches and nothing else."""
    peers: int
    """Jobs of a transaction of the others."""


def _shuffled(sizes: Sizes, jobs: int) -> list[int]:
    found = [number % sizes.subjects for number in range(jobs)]
    random.Random(jobs).shuffle(found)  # noqa: S311 - an order, not a secret
    return found


def _burst(sizes: Sizes, jobs: int) -> list[int]:
    return [number // IN_A_ROW % sizes.burst_subjects for number in range(jobs)]


SHAPES: Final = {
    "shuffled": Shape("jobs of all subjects mixed", _shuffled, ours=100, peers=1),
    "burst": Shape(f"{IN_A_ROW} jobs of a subject in a row", _burst, ours=100, peers=1),
    "batch": Shape(f"mixed, {BATCH:,} in a transaction", _shuffled, ours=BATCH, peers=BATCH),
}

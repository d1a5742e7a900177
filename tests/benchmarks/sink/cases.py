"""The cases: the program, its rows, and the check of its tables."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.benchmarks.sink import by_hand, check, ours
from tests.benchmarks.sink.stopwatch import Lap


@dataclass(frozen=True, slots=True)
class Case:
    """One column of the comparison."""

    letter: str
    label: str
    run: Callable[[str, Path], list[Lap]]
    check: Callable[[str, Path], None]
    many_subjects: bool = False


def _ours(letter: str, label: str, run: Callable[[str, Path], list[Lap]]) -> Case:
    return Case(letter, label, run, check.outbox)


def _many(case: Case) -> Case:
    label = f"{case.label}, many subjects"
    return Case(case.letter, label, case.run, case.check, many_subjects=True)


def _by_hand(letter: str, label: str, run: Callable[[str, Path], list[Lap]]) -> Case:
    return Case(letter, label, run, check.by_hand)


_SINK = _ours("a", "this sink, driver path", ours.driver)
_LIBRARY = _ours("a", "its library part, no Spark", ours.library)
_STAGED = _ours("b", "this sink, staged path", ours.staged)

CASES: Final = {
    "sink": _SINK,
    "sink_many": _many(_SINK),
    "library": _LIBRARY,
    "library_many": _many(_LIBRARY),
    "staged": _STAGED,
    "staged_many": _many(_STAGED),
    "jdbc": _by_hand("c", "df.write.jdbc", by_hand.jdbc(key=True, rewrite=False)),
    "jdbc_decisions": _by_hand("c", "df.write.jdbc, same rows", by_hand.jdbc_decisions),
    "jdbc_no_key": _by_hand("c", "df.write.jdbc, no key", by_hand.jdbc(key=False, rewrite=False)),
    "jdbc_rewrite": _by_hand("c", "jdbc, rewritten", by_hand.jdbc(key=True, rewrite=True)),
    "jdbc_rewrite_no_key": _by_hand(
        "c", "jdbc, rewritten, no key", by_hand.jdbc(key=False, rewrite=True)
    ),
    "executemany": _by_hand("d", "executemany", by_hand.executemany),
    "bare_copy": _by_hand("e", "bare COPY, the limit", by_hand.bare_copy),
}

RATIOS: Final = {
    "vs_jdbc": ("sink", "jdbc"),
    "vs_jdbc_decisions": ("sink", "jdbc_decisions"),
    "vs_jdbc_no_key": ("sink", "jdbc_no_key"),
    "vs_jdbc_rewrite": ("sink", "jdbc_rewrite"),
    "vs_jdbc_rewrite_no_key": ("sink", "jdbc_rewrite_no_key"),
    "vs_executemany": ("sink", "executemany"),
    "vs_bare_copy": ("sink", "bare_copy"),
    "staged_vs_sink": ("staged", "sink"),
    "many_vs_few_subjects": ("sink_many", "sink"),
}

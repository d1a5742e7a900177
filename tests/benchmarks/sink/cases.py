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
    **{
        name: _by_hand(
            "c",
            f"jdbc, same rows, {label}",
            by_hand.jdbc_decisions(rewrite=rewrite, batch_size=size),
        )
        for name, rewrite, size, label in (
            ("jdbc_decisions", False, 1_000, "1,000 a statement"),
            ("jdbc_decisions_10k", False, 10_000, "10,000 a statement"),
            ("jdbc_decisions_rewrite", True, 1_000, "rewritten"),
            ("jdbc_decisions_rewrite_10k", True, 10_000, "rewritten, 10,000"),
        )
    },
    "jdbc_no_key": _by_hand("c", "df.write.jdbc, no key", by_hand.jdbc(key=False, rewrite=False)),
    "jdbc_rewrite": _by_hand("c", "jdbc, rewritten", by_hand.jdbc(key=True, rewrite=True)),
    "jdbc_rewrite_no_key": _by_hand(
        "c", "jdbc, rewritten, no key", by_hand.jdbc(key=False, rewrite=True)
    ),
    "executemany": _by_hand("d", "executemany", by_hand.executemany),
    "bare_copy": _by_hand("e", "bare COPY, the limit", by_hand.bare_copy),
}

SAME_ROWS: Final = tuple(name for name in CASES if name.startswith("jdbc_decisions"))
"""JDBC from the rows that the sink gets; the best of them is the bar."""

RATIOS: Final = {
    "vs_jdbc": ("sink", "jdbc"),
    "vs_jdbc_no_key": ("sink", "jdbc_no_key"),
    "vs_jdbc_rewrite": ("sink", "jdbc_rewrite"),
    "vs_jdbc_rewrite_no_key": ("sink", "jdbc_rewrite_no_key"),
    "vs_executemany": ("sink", "executemany"),
    "vs_bare_copy": ("sink", "bare_copy"),
    "staged_vs_sink": ("staged", "sink"),
    "many_vs_few_subjects": ("sink_many", "sink"),
}

"""Which columns of a list fit a terminal, and how wide each is. Pure; widths are in cells."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

BORDER = 1
PADDING = 2
TEXT_WIDTH = 24
"""A column of text wraps at its words down to this width before another column is left out."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its natural width, and the one below which a word or a key would be cut."""

    name: str
    natural: int
    least: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns that fit, with the width of each, and the names of those that do not."""

    widths: Mapping[str, int]
    left_out: Sequence[str]


def column(name: str, cells: Sequence[str]) -> Column:
    """Measure a column with its heading.

    >>> column("id", ["17", "1804"])
    Column(name='id', natural=4, least=4)
    >>> column("reason", ["the amount is no integer and no decimal"])
    Column(name='reason', natural=39, least=24)
    """
    lines = [name.replace("_", " ")] + [line for cell in cells for line in cell.splitlines()]
    natural = max(map(cell_len, lines))
    word = max((cell_len(word) for line in lines for word in line.split()), default=0)
    return Column(name, natural, max(word, min(natural, TEXT_WIDTH)))


def fit(columns: Sequence[Column], width: int, ranks: Sequence[str] = ()) -> Layout | None:
    """Choose the columns that fit `width`; None where fewer than two do.

    The columns of `ranks` are left out first, in that order, then the others from the right.

    >>> id_, why = Column("id", 4, 4), Column("why", 60, 24)
    >>> fit([id_, why], 80)
    Layout(widths={'id': 4, 'why': 60}, left_out=[])
    >>> fit([id_, why], 50)
    Layout(widths={'id': 4, 'why': 39}, left_out=[])
    >>> fit([id_, why, Column("key", 35, 35)], 60)
    Layout(widths={'id': 4, 'why': 49}, left_out=['key'])
    >>> fit([Column("key", 35, 35), Column("other", 35, 35)], 60) is None
    True
    """
    kept = list(columns)
    left_out: list[str] = []
    later = [each.name for each in columns if each.name not in ranks]
    going = [*ranks, *reversed(later)]
    while _width(kept) > width:
        if len(kept) <= min(2, len(columns)):
            return None
        name = going.pop(0)
        kept = [each for each in kept if each.name != name]
        left_out.append(name)
    spare = width - _width(kept)
    widths = {}
    for each in kept:
        extra = min(spare, each.natural - each.least)
        widths[each.name] = each.least + extra
        spare -= extra
    return Layout(widths, left_out)


def _width(columns: Sequence[Column]) -> int:
    return BORDER + sum(each.least + PADDING + BORDER for each in columns)

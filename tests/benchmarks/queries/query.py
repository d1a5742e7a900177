"""A measured request."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Query:
    """One page, one read or one list."""

    kind: str
    """`console`, `api` or `cli`."""

    shows: str
    """What it is, for the table; a filter and a page are named behind the place."""

    ask: tuple[str, ...]
    """An address, or the words of a command."""

    ends: tuple[int, ...] = (200,)
    """Statuses, or exit codes, that are right."""

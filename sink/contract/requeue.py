"""Putting a refused entry back: what the operator's command asks of whoever can write entries.

The command belongs to the dispatcher's package, which knows nothing of the sink but this contract;
the sink offers the function under the entry point group `GROUP`. So the command works without the
sink's packages, and says what is missing only when somebody wants to put a row back.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

GROUP = "holdfast.requeue"
"""The entry point group in which a `Requeue` is found."""


@dataclass(frozen=True, slots=True)
class Requeued:
    """What became of one row."""

    quarantine_id: int
    written: bool
    """An entry of it is in the outbox, from now or from an earlier try."""

    detail: str
    """One line for a person: what was written, or why nothing was."""


class Requeue(Protocol):
    """Writes refused rows again, each as a batch of its own, once however often it is asked."""

    def __call__(
        self, dsn: str, stream: str, rows: Mapping[int, str], *, suppress_repeats: bool
    ) -> Iterator[Requeued]:
        """Yield what became of each row as soon as it is known.

        `rows` are JSON texts of entries by their number in the quarantine, `stream` is the one that
        they were refused in. Raises `CommandError` when the database cannot be written to; the rows
        yielded before stand.
        """

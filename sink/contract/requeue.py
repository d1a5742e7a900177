"""Writing single entries by hand: what operators' commands ask of whoever can write entries.

`quarantine requeue` puts back what was refused, `reissue` decides anew. The commands belong to the
dispatcher's package, which knows nothing of the sink but this contract; the sink offers the
function under the entry point group `GROUP`. So the commands work without the sink's packages, and
say what is missing only when somebody wants an entry written.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Protocol

from sink.contract.exits import CommandError, ExitCode

GROUP = "holdfast.requeue"
"""The entry point group in which a `Requeue` is found."""

REQUEUED = ".requeue"
REISSUED = ".reissue"
ENDINGS = (REQUEUED, REISSUED)
"""What the names of the streams end with in which entries are written by hand."""


@dataclass(frozen=True, slots=True)
class Requeued:
    """What became of one row."""

    quarantine_id: int
    """Its number in the quarantine; of what was never there, the number that it was given."""

    written: bool
    """An entry of it is in the outbox, from now or from an earlier try."""

    detail: str
    """One line for a person: what was written, or why nothing was."""


class Requeue(Protocol):
    """Writes refused rows again, each as a batch of its own, once however often it is asked."""

    def __call__(
        self,
        dsn: str,
        stream: str,
        rows: Mapping[int, str],
        *,
        suppress_repeats: bool,
        suffix: str = REQUEUED,
    ) -> Iterator[Requeued]:
        """Yield what became of each row as soon as it is known.

        `rows` are JSON texts of entries by their number, which is their batch's in the stream
        `<stream><suffix>`; `stream` is the one that they were refused, or first written, in. Raises
        `CommandError` when the database cannot be written to; the rows yielded before stand.
        """


def writer() -> Requeue:
    """Return what writes entries; raises `CommandError` (usage) where it is not installed."""
    for point in entry_points(group=GROUP):
        try:
            found: Requeue = point.load()
        except ModuleNotFoundError as error:
            raise CommandError(
                f"writing entries needs the package {error.name}, which is not installed:"
                " pip install '/path/to/holdfast[sink]'. Nothing was changed.",
                ExitCode.USAGE,
            ) from None
        return found
    raise CommandError(
        "this installation has nothing that writes entries: install Holdfast again with"
        " pip install '/path/to/holdfast[sink]'. Nothing was changed.",
        ExitCode.USAGE,
    )

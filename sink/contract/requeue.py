"""Writing single entries by hand: the interface between operators' commands and the sink.

`quarantine requeue` writes quarantined rows again, `reissue` writes an entry under a new key. The
commands belong to the dispatcher, which knows only this contract of the sink; the sink provides the
function under the entry point group `GROUP`. So the commands work without the sink's packages, and
report what is missing only when an entry is to be written.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import entry_points
from typing import NamedTuple, Protocol

from holdfast.sink.contract.exits import CommandError, ExitCode

GROUP = "holdfast.requeue"
"""The entry point group in which a `Requeue` is found."""

REQUEUED = ".requeue"
REISSUED = ".reissue"
ENDINGS = (REQUEUED, REISSUED)
"""Name endings of the streams that hold entries written by hand."""


@dataclass(frozen=True, slots=True)
class Requeued:
    """The outcome of one row."""

    quarantine_id: int
    """Its number in the quarantine; for a reissued entry, the number given to it."""

    written: bool
    """Its entry is in the outbox, from this call or an earlier one."""

    detail: str
    """One line for a person: what was written, or why nothing was."""


class Overtakes(NamedTuple):
    """The state of a subject in which people decided to write an entry after newer ones."""

    last_sequence: int
    """The subject's last sequence; the entry is refused when another was written since."""

    occurred_at: datetime
    """The time of the subject's newest decision."""


class Requeue(Protocol):
    """Writes refused rows again, each as a batch of its own; repeated calls write nothing twice."""

    def __call__(
        self,
        dsn: str,
        stream: str,
        rows: Mapping[int, str],
        *,
        suppress_repeats: bool,
        suffix: str = REQUEUED,
        overtakes: Overtakes | None = None,
        last_sequence: int | None = None,
    ) -> Iterator[Requeued]:
        """Yield the outcome of each row as soon as it is known.

        `rows` are JSON texts of entries by their number, which is their batch's in the stream
        `<stream><suffix>`; `stream` is the one that they were refused, or first written, in. A row
        that occurred before the newest decision of its subject is written only with `overtakes`.
        `last_sequence` is that of the subject before the caller compared its decisions; a row is
        refused when another entry was written since.
        Raises `CommandError` when the database cannot be written to; the rows yielded
        before stand.
        """


def writer() -> Requeue:
    """Return the installed `Requeue`; raises `CommandError` (usage) where there is none."""
    for point in entry_points(group=GROUP):
        try:
            requeue: Requeue = point.load()
        except ModuleNotFoundError as error:
            raise CommandError(
                f"writing entries needs the package {error.name}, which is not installed:"
                " pip install '/path/to/holdfast[sink]'. Nothing was changed.",
                ExitCode.USAGE,
                code="package_missing",
            ) from None
        return requeue
    raise CommandError(
        "this installation cannot write entries: install Holdfast again with"
        " pip install '/path/to/holdfast[sink]'. Nothing was changed.",
        ExitCode.USAGE,
        code="package_missing",
    )

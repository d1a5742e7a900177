"""Writing single entries by hand: the interface between operators' commands and the sink.

`quarantine requeue` writes quarantined rows again, `reissue` writes an entry under a new key, and
`decide` writes what a person decides. The commands belong to the dispatcher, which knows only this
contract of the sink; the sink provides the function under the entry point group `GROUP`. So the
commands work without the sink's packages, and report what is missing only when an entry is to be
written.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import entry_points
from typing import Any, NamedTuple, Protocol
from uuid import UUID, uuid5

from holdfast.sink.contract.compatibility import StrEnum
from holdfast.sink.contract.exits import CommandError, ExitCode

GROUP = "holdfast.requeue"
"""The entry point group in which a `Requeue` is found."""

REQUEUED = ".requeue"
REISSUED = ".reissue"
DECIDED = ".decide"
ENDINGS = (REQUEUED, REISSUED, DECIDED)
"""Name endings of the streams that hold entries written by hand."""


STREAM_CHARACTERS_MAX = 63
"""As ck_stream_name."""

_STREAM = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}", re.ASCII)

_NAMESPACE = UUID("5e4b7f1c-9a0d-5c36-8b1e-2f7d60a3c948")


def is_stream(name: str) -> bool:
    """Return whether a stream may have this name."""
    return _STREAM.fullmatch(name) is not None


def check_stream(stream: str) -> None:
    """Raise `ValueError` for a name that no stream may have."""
    if not is_stream(stream):
        raise ValueError(
            f"{stream!r} is not a stream name: expected 1 to 63 of a-z 0-9 _ . - , the first a"
            " letter or a digit"
        )


def reserved(stream: str) -> ValueError:
    """Return the error of a job's new stream with a reserved name."""
    return ValueError(
        f"{stream!r} cannot be the name of a new stream: what ends with {' or '.join(ENDINGS)} is"
        " for entries that people write by hand. Nothing was written; give the sink another name"
        " and start again"
    )


def stream_of(stream: str, suffix: str = REQUEUED) -> str:
    """Return the name of the stream in which entries of `stream` are written by hand.

    >>> stream_of("payouts"), stream_of("payouts", ".reissue")
    ('payouts.requeue', 'payouts.reissue')
    """
    if len(stream) + len(suffix) <= STREAM_CHARACTERS_MAX:
        return stream + suffix
    short = hashlib.sha256(stream.encode()).hexdigest()[:16]
    return f"{stream[: STREAM_CHARACTERS_MAX - len(suffix) - 17]}-{short}{suffix}"


def query_id_of(stream: str, suffix: str = REQUEUED) -> UUID:
    """Return the query id of the stream in which entries of `stream` are written by hand.

    Revision 0024 recognises such streams by it, so it never changes.
    """
    return uuid5(_NAMESPACE, stream if suffix == REQUEUED else stream_of(stream, suffix))


class Outcome(StrEnum):
    """What the sink does with a row."""

    WRITTEN = "written"
    """Its entry is in the outbox, from this call or an earlier one."""

    UNFIT = "unfit"
    """It is no entry: the sink refuses it as it is."""

    FUTURE_DATED = "future_dated"
    """It is dated further beyond the database's clock than one day."""

    KEY_RECORDED = "key_recorded"
    """Its key is recorded with the same content: the decision was made before."""

    KEY_CONFLICT = "key_conflict"
    """Its key is recorded with different content."""

    REPEATED = "repeated"
    """Its subject has a newer entry in its stream, or this type already."""

    NEWER_DECISION = "newer_decision"
    """Its subject has a newer decision, which it would follow."""

    CHANGED = "changed"
    """Something of it, or of its subject, was written since it was compared."""


@dataclass(frozen=True, slots=True)
class Requeued:
    """The outcome of one row."""

    quarantine_id: int
    """Its number in the quarantine; for a reissued entry, the number given to it."""

    outcome: Outcome
    detail: str
    """One line for a person: what was written, or why nothing was."""

    @property
    def written(self) -> bool:
        """Its entry is in the outbox, from this call or an earlier one."""
        return self.outcome is Outcome.WRITTEN


class Opened:
    """Connections that stay open between calls; the writer decides what it keeps."""

    def __init__(self) -> None:
        self.kept: dict[Any, Any] = {}

    def close(self) -> None:
        """Close them."""
        while self.kept:
            self.kept.popitem()[1].close()


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
        foresee: bool = False,
        opened: Opened | None = None,
    ) -> Iterator[Requeued]:
        """Yield the outcome of each row as soon as it is known.

        `rows` are JSON texts of entries by their number, which is their batch's in the stream
        `<stream><suffix>`; `stream` is the one that they were refused, or first written, in. A row
        that occurred before the newest decision of its subject is written only with `overtakes`.
        `last_sequence` is that of the subject before the caller compared its decisions; a row is
        refused when another entry was written since.
        With `foresee` nothing is written: each row gets the outcome that it would have alone now.
        `opened` keeps the connection for further calls, and the caller closes it.
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

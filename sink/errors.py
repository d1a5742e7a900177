"""What can go wrong in the sink, named for what the caller does next.

    SinkError
      Permanent            a restart meets the same error: stop and look
        Fenced               a newer run owns the stream
        UnadoptedCheckpoint  the query id is not the one the stream has adopted
        ReplayDiverged       a batch id came back with other content
        SchemaMismatch       the DataFrame or the database is not what this code was written for
        BatchTooLarge        the batch is beyond what the driver path may hold
        NotStreaming         the sink was called outside a streaming query
      Transient            a restart may heal it: the database was not reachable or not ready
        SinkUnavailable

Each message says what happened, what was not lost, and what to do.
"""

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class KeyDifference:
    """How many keys differ in one way, and the first 20 of them in the order of their digits."""

    count: int = 0
    first: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class Divergence:
    """What a replay brought, compared with what the ledger keeps."""

    rows_then: int
    rows_now: int
    quarantined_then: int
    quarantined_now: int
    only_in_ledger: KeyDifference
    only_in_replay: KeyDifference
    changed: KeyDifference
    """Keys that are in both, with other content."""


class SinkError(Exception):
    """Base of every error that the sink raises on purpose."""


class Permanent(SinkError):
    """A restart meets the same error."""


class Transient(SinkError):
    """A restart may heal it."""


class Fenced(Permanent):
    """A newer run of the stream started; this one may not write any more."""


class UnadoptedCheckpoint(Permanent):
    """The batch comes from a query id (a checkpoint) that the stream has not adopted."""


class ReplayDiverged(Permanent):
    """A batch that is already written came back with other content."""

    def __init__(self, message: str, divergence: Divergence) -> None:
        super().__init__(message)
        self.divergence = divergence


class SchemaMismatch(Permanent):
    """The DataFrame's columns, or the database's schema, are not those of this version."""


class BatchTooLarge(Permanent):
    """The batch holds more rows or bytes than the driver path accepts."""


class NotStreaming(Permanent):
    """The sink was called outside a streaming query, where no batch has an identity."""


class SinkUnavailable(Transient):
    """The database could not be reached or did not answer within the deadline."""

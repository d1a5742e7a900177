"""A new checkpoint that continues a batch of the ledger: adopted by that batch's proof.

A checkpoint that is made from another one (a savepoint, a kept batch) has a query id of its own.
Whoever holds the state after batch N knows the query, the number and the digest of N; the ledger
has the same three. That proves the origin, so no person needs to adopt the new id.
"""

from dataclasses import dataclass
from uuid import UUID

import psycopg

from holdfast.sink.errors import UnadoptedCheckpoint
from holdfast.sink.transaction.database import execute, one_row

_UNCHANGED = "Nothing was written, and the stream keeps its checkpoint."


@dataclass(frozen=True, slots=True)
class Continuation:
    """A batch of the ledger, as proof of the state after it.

    >>> sink = OutboxSink(dsn, stream="payouts")
    >>> outcome = sink.apply(decisions, Identity(query_id, first_run, 0))
    >>> sink.continue_from(sink.proof(query_id, 0), other_query_id, 0)
    >>> sink.apply(decisions, Identity(other_query_id, second_run, 1)).counts.duplicates
    2
    """

    query_id: UUID
    batch_id: int
    digest: bytes
    """32 bytes, as the ledger has it."""

    def __post_init__(self) -> None:
        if self.batch_id < 0 or len(self.digest) != 32:
            raise ValueError("a proof has a batch id of 0 or more and a digest of 32 bytes")


@dataclass(frozen=True, slots=True)
class Repeated:
    """What a run announces whose checkpoint went back: that it repeats batches of before.

    >>> sink = OutboxSink(dsn, stream="payouts")
    >>> for batch in range(2):
    ...     outcome = sink.apply(decisions, Identity(query_id, first_run, batch))
    >>> sink.continue_from(sink.proof(query_id, 0), other_query_id, 0)
    >>> again = Repeated(until=1, source=sink.proof(query_id, 1))
    >>> sink.start(other_query_id, second_run, repeated=again)
    >>> type(sink.apply(decisions, Identity(other_query_id, second_run, 1))).__name__
    'Replayed'
    """

    until: int
    """The newest batch of the run's query that is planned again as it was; the ledger may have it
    although the checkpoint does not."""
    source: Continuation | None = None
    """The batch of another query of the stream that the run's first batch repeats: it has the same
    input and the same state before. None where it is a batch of the run's own query."""


def proof(
    connection: psycopg.Connection, stream: str, query_id: UUID, batch_id: int
) -> Continuation | None:
    """Return the proof of a batch; None where the ledger does not have it."""
    row = execute(
        connection, "batch/read_batch", stream=stream, query_id=query_id, batch_ids=[batch_id]
    ).fetchone()
    return None if row is None else Continuation(query_id, batch_id, row["digest"])


def continue_from(
    connection: psycopg.Connection,
    stream: str,
    previous: Continuation,
    query_id: UUID,
    batch_id: int,
) -> None:
    """Let the stream adopt `query_id`, whose state is that of `previous`; a repetition is a no-op.

    The ledger gets an empty batch `batch_id` of it, which can prove the next continuation. Runs of
    another query id are refused at their next batch. Call it inside a transaction. Raises
    `UnadoptedCheckpoint` where the proof fails.
    """
    if query_id == previous.query_id:
        raise ValueError("a checkpoint that continues another one needs a query id of its own")
    done = one_row(
        connection,
        "batch/continue_stream",
        stream=stream,
        proof_query=previous.query_id,
        proof_batch=previous.batch_id,
        proof_digest=previous.digest,
        query_id=query_id,
        batch_id=batch_id,
    )
    if done["outcome"] not in ("continued", "repeated"):
        raise UnadoptedCheckpoint(
            _refusal(done["outcome"], stream, previous, query_id, batch_id, done["adopted"])
        )


def _refusal(
    outcome: str,
    stream: str,
    previous: Continuation,
    query_id: UUID,
    batch_id: int,
    adopted: UUID | None,
) -> str:
    source = f"batch {previous.batch_id} of query {previous.query_id}"
    begun = f"stream {stream!r}: query {query_id} cannot continue {source}:"
    match outcome:
        case "no_stream":
            return (
                f"{begun} the ledger does not have the stream. {_UNCHANGED} Check the stream's name"
                " and that the DSN is of the database that the job wrote."
            )
        case "other_query":
            return (
                f"{begun} the stream has adopted query {adopted} since. {_UNCHANGED} Continue from"
                " a batch of that query, whose state has what the stream has published."
            )
        case "no_batch":
            return (
                f"{begun} the ledger of the stream has no such batch. {_UNCHANGED} Check the"
                " stream's name; if the database was put back to an older moment, continue from a"
                f" batch that it has: `holdfast batch list {stream} --query-id"
                f" {previous.query_id}`."
            )
        case "other_content":
            return (
                f"{begun} in the ledger that batch has other content (its digest is not"
                f" {previous.digest.hex()}). {_UNCHANGED} What holds this state was made from"
                " another stream or another database, or was changed since."
            )
    return (
        f"{begun} the ledger has batch {batch_id} of query {query_id} already, and it does not"
        f" continue that batch. {_UNCHANGED} Repeat the command so that the checkpoint gets another"
        " query id."
    )

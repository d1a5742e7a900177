"""`also`: the caller's own statements in the transaction of a batch, and a check of it afterwards.

The server reports which transaction is open and the outcome of another one. psycopg alone could not
distinguish the sink's transaction from a new one after a COMMIT or ROLLBACK of `also`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any
from uuid import UUID

import psycopg

from holdfast.sink.errors import CompanionFailed, SinkError
from holdfast.sink.rows.outcome import Counts
from holdfast.sink.transaction.database import error_text, one_row
from holdfast.sink.transaction.retry import RaisedByAlso, is_of_session


@dataclass(frozen=True, slots=True)
class BatchContext:
    """The batch that `also` writes with, as the ledger records it when the transaction commits.

    >>> def also(connection, table, batch):
    ...     print(batch.stream, batch.batch_id, batch.counts.entries)
    >>> sink = OutboxSink(dsn, stream="payouts", also=also)
    >>> written = sink.apply(decisions, Identity(query_id, first_run, 0))
    payouts 0 2
    """

    stream: str
    query_id: UUID
    run_id: UUID
    epoch: int
    batch_id: int
    """Spark's number of the batch, from 0 in each query: the same in every replay."""

    batch_no: int
    """The number of the batch among those of all streams; another one if the transaction is tried
    again."""

    counts: Counts


Also = Callable[[psycopg.Connection, BatchContext], None]


def takes_batch(also: Callable[..., None]) -> bool:
    """Return whether a user's `also` takes the batch beside connection and table.

    It does with a third parameter that has no default, or is named `batch`. `*args` alone are not
    enough: such a function got two arguments before there was a third one. Raises `ValueError` for
    one that cannot be called with two or three.
    """
    try:
        parameters = signature(also)
    except ValueError:
        return False  # Of some functions written in C nothing is known.
    except TypeError:
        raise ValueError(f"also is {also!r}: expected a function") from None
    positional = [
        each
        for each in parameters.parameters.values()
        if each.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    ]
    third = positional[2:3]
    takes = any(each.default is Parameter.empty or each.name == "batch" for each in third)
    values: list[Any] = [None] * (3 if takes else 2)
    try:
        parameters.bind(*values)
    except TypeError as error:
        raise ValueError(
            "also cannot be called with connection and table, nor with the batch as a third one:"
            f" {error}"
        ) from None
    return takes


_STATUS = psycopg.pq.TransactionStatus

_ENDS_IT = re.compile(
    r"forbidden within a Transaction context|connection\.transaction\(\) context in progress"
)

_ROLLED_BACK = (
    "`also` hid an error of the database, or ended the transaction of batch {batch_id} itself."
    " Nothing of the batch was written; it is in the checkpoint and is replayed. Let `also` raise"
    " its errors (or use connection.transaction() around what may fail), and leave COMMIT and"
    " ROLLBACK to the sink, then restart."
)
_COMMITTED = (
    "`also` committed the transaction of batch {batch_id} itself: the batch is written, with what"
    " `also` wrote before its COMMIT. The ledger knows it, so the next run treats the batch as a"
    " replay: nothing is written twice, and `also` is not called for it, so add by hand what it"
    " had not written yet. Leave COMMIT and ROLLBACK to the sink, then restart."
)
_UNKNOWN = (
    "`also` closed the sink's connection, left it in the middle of a statement, or gave its"
    " transaction away: batch {batch_id} is written as a whole or not at all. The ledger knows"
    " which, and the batch is replayed: what is written is not written twice (and `also` is not"
    " called for it). Leave the connection, COMMIT and ROLLBACK to the sink, then restart."
)
_ELSEWHERE = (
    "`also` failed on another connection, while the sink's own is open ({cause}). Nothing of batch"
    " {batch_id} was written; it is in the checkpoint and is replayed. Let `also` use only the"
    " connection that it is given, or repair the other one, then restart."
)


def accompany(
    connection: psycopg.Connection, batch: BatchContext, transaction_id: str, also: Also
) -> None:
    """Call `also` in the open transaction, whose id on the server is `transaction_id`.

    Raises `CompanionFailed` where `also` ended that transaction, hid an error or failed on a
    connection of its own, `RaisedByAlso` for a `SinkError`, and otherwise whatever it raises.
    """
    try:
        also(connection, batch)
    except Exception as error:
        fault = _fault(connection, transaction_id, error)
        if fault is not None:
            raise _failed(batch, fault, error) from error
        if isinstance(error, SinkError):
            raise RaisedByAlso(error) from error
        raise
    fault = _fault(connection, transaction_id, None)
    if fault is not None:
        raise _failed(batch, fault, None)


def _failed(batch: BatchContext, fault: str, error: Exception | None) -> CompanionFailed:
    words = fault.format(batch_id=batch.batch_id, cause="" if error is None else error_text(error))
    return CompanionFailed(f"stream {batch.stream!r}: {words}")


def _fault(
    connection: psycopg.Connection, transaction_id: str, error: Exception | None
) -> str | None:
    """Return the fault of `also`, which raised `error`; None where there is no other fault."""
    if connection.broken:
        if error is None:
            raise psycopg.OperationalError("the connection was lost while `also` ran")
        return None
    if connection.info.transaction_status in (_STATUS.ACTIVE, _STATUS.UNKNOWN):
        connection.close()
        return _UNKNOWN
    try:
        fate = _fate(connection, transaction_id)
    except psycopg.Error:
        if error is None:
            raise
        return None
    match fate:
        case "open" if error is not None and is_of_session(error):
            return _ELSEWHERE
        case "open" | "aborted" if error is not None:
            return _ROLLED_BACK if _is_refusal(error) else None
        case "open":
            return None
        case "aborted":
            return _ROLLED_BACK
        case "committed":
            return _COMMITTED
        case _:
            return _UNKNOWN


def _fate(connection: psycopg.Connection, transaction_id: str) -> object:
    if connection.info.transaction_status is _STATUS.INERROR:
        # A failed transaction accepts nothing but a rollback.
        connection.execute("ROLLBACK")
    return one_row(connection, "connection/transaction_fate", transaction_id=transaction_id)["fate"]


def _is_refusal(error: Exception) -> bool:
    """Return whether psycopg itself refused to end the transaction."""
    # It gives no SQLSTATE then: the text is all there is.
    return (
        isinstance(error, psycopg.ProgrammingError)
        and error.sqlstate is None
        and _ENDS_IT.search(str(error)) is not None
    )

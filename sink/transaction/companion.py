"""`also`: the caller's own statements in the transaction of a batch, and a check of it afterwards.

The server reports which transaction is open and the outcome of another one. psycopg alone could not
distinguish the sink's transaction from a new one after a COMMIT or ROLLBACK of `also`.
"""

import re
from collections.abc import Callable

import psycopg

from holdfast.sink.errors import CompanionFailed
from holdfast.sink.transaction.database import error_text, one_row
from holdfast.sink.transaction.ledger import Run
from holdfast.sink.transaction.retry import is_of_session

Also = Callable[[psycopg.Connection], None]

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
    connection: psycopg.Connection, run: Run, batch_id: int, transaction_id: str, also: Also
) -> None:
    """Call `also` in the open transaction, whose id on the server is `transaction_id`.

    Raises `CompanionFailed` where `also` ended that transaction, hid an error or failed on a
    connection of its own, and otherwise whatever it raises.
    """
    try:
        also(connection)
    except Exception as error:
        fault = _fault(connection, transaction_id, error)
        if fault is None:
            raise
        raise _failed(run, batch_id, fault, error) from error
    fault = _fault(connection, transaction_id, None)
    if fault is not None:
        raise _failed(run, batch_id, fault, None)


def _failed(run: Run, batch_id: int, fault: str, error: Exception | None) -> CompanionFailed:
    words = fault.format(batch_id=batch_id, cause="" if error is None else error_text(error))
    return CompanionFailed(f"stream {run.stream!r}: {words}")


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

"""When the sink retries: only after a transient database error, and only until a deadline.

A retry repeats the whole transaction, which first reads the ledger under the stream's lock. So even
a COMMIT whose answer was lost is never applied twice.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import psycopg
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_delay,
    wait_exponential,
    wait_random,
)

from holdfast.sink.errors import (
    AccessDenied,
    NotPrimary,
    SchemaMismatch,
    SinkError,
    SinkUnavailable,
    Transient,
)
from holdfast.sink.transaction.database import error_text

_log = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_CONNECTION = "08"
"""The class connection_exception."""

_RESOURCES = "53"
"""The class insufficient_resources: connections, memory, disk."""

_OF_SESSION = frozenset(
    {
        "25P03",  # idle_in_transaction_session_timeout: this process was paused
        "25P04",  # transaction_timeout, which an administrator may have set
        "53300",  # too_many_connections
        "57P01",  # admin_shutdown
        "57P02",  # crash_shutdown
        "57P03",  # cannot_connect_now
        "57P05",  # idle_session_timeout
    }
)
"""These end the session."""

_TRANSIENT = _OF_SESSION | {
    "40001",  # serialization_failure
    "40P01",  # deadlock_detected
    "55P03",  # lock_not_available
    "57014",  # query_canceled: statement_timeout, or an operator
}


_NO_IDS = ("GetNewTransactionId", "GetNewMultiXactId")
"""Functions of the server. It refuses new transaction IDs near the wraparound, until a VACUUM, with
the sqlstate of what is too large for ever; its text is translated."""


class RaisedByAlso(Exception):
    """Carries a `SinkError` that `also` raised out of the retries, unchanged.

    A `Transient` is tried again until the deadline. The sink's own errors are not judged by their
    class: what it raises itself is final.
    """

    def __init__(self, error: SinkError) -> None:
        super().__init__(str(error))
        self.error = error


def is_transient(error: BaseException) -> bool:
    """Return whether the same work may succeed later without intervention."""
    if isinstance(error, RaisedByAlso):
        return isinstance(error.error, Transient)
    if isinstance(error, NotPrimary):
        # In a failover the address may name a standby that is not promoted yet.
        return True
    if not isinstance(error, psycopg.Error):
        return False
    if error.sqlstate is None:
        # libpq lost the connection or got none, for an unknown reason.
        return isinstance(error, psycopg.OperationalError)
    if isinstance(error, psycopg.errors.UniqueViolation):
        # Another process wrote the batch in spite of the lock; the next attempt reads it.
        return error.diag.constraint_name == "pk_batch"
    if error.diag.source_function in _NO_IDS:
        return True
    return error.sqlstate in _TRANSIENT or error.sqlstate[:2] in (_CONNECTION, _RESOURCES)


def is_of_session(error: BaseException) -> bool:
    """Return whether an error ends its session; if ours still works, another session failed."""
    if not isinstance(error, psycopg.Error) or error.sqlstate is None:
        return is_transient(error)
    return error.sqlstate in _OF_SESSION or error.sqlstate[:2] == _CONNECTION


def persist(
    work: Callable[[], _Result], stream: str, deadline_seconds: float, fate: Callable[[], str]
) -> _Result:
    """As `until_done`; raises `SinkUnavailable` after the last transient error.

    `fate` completes the message, also of what the server refused: the outcome of the work, in
    sentences.
    """
    try:
        with completed(fate):
            return until_done(work, deadline_seconds)
    except psycopg.Error as error:
        if not is_transient(error):
            raise
        raise SinkUnavailable(
            f"stream {stream!r}: the database was not available for {deadline_seconds:g} s"
            f" ({error_text(error)}). {fate()}"
        ) from error


@contextmanager
def completed(fate: Callable[[], str]) -> Iterator[None]:
    """Add the outcome of the work to the message of a server that refuses it."""
    try:
        yield
    except (AccessDenied, SchemaMismatch) as error:
        what, *advice = error.args
        error.args = (f"{what} {fate()}", *advice)
        raise


def until_done(work: Callable[[], _Result], deadline_seconds: float) -> _Result:
    """Call `work` until it does not fail with a transient error.

    No attempt starts after `deadline_seconds`; the last error is then raised unchanged.
    """
    return Retrying(
        retry=retry_if_exception(is_transient),
        wait=wait_exponential(multiplier=0.05, max=5) + wait_random(0, 0.1),
        stop=stop_after_delay(deadline_seconds),
        before_sleep=_report,
        reraise=True,
    )(work)


def _report(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    if error is not None:
        _log.warning("attempt %d failed, trying again: %s", state.attempt_number, error_text(error))

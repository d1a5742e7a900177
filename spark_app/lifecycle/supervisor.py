"""Restarts a query after a failure that is not permanent, with growing pauses and a limit.

Each restart is a run of its own: it takes a new epoch and replays from the checkpoint, and the
ledger knows what was written. Nothing that a replay recomputes depends on these pauses.
"""

import sys
from collections.abc import Callable
from threading import Event

from tenacity import RetryCallState, Retrying, sleep_using_event, wait_exponential_jitter
from tenacity.wait import wait_base

from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.lifecycle.failure import Cause, Failure, QueryFailed

MAX_RESTARTS = 8
"""Default; with the pauses, it covers an outage of about three minutes."""

FILE_RESTARTS = 3
"""For a file that cannot be read: enough for a short outage of the file system, and a corrupt file
is reported soon."""

PAUSES = wait_exponential_jitter(initial=1, max=60, jitter=1)
"""About 1, 2, 4 ... 60 s; the jitter keeps jobs that failed together from restarting together."""


def supervise(
    attempt: Callable[[], None],
    *,
    stop: Event,
    max_restarts: int = MAX_RESTARTS,
    pause: wait_base = PAUSES,
    on_restart: Callable[[Failure], None] = lambda _: None,
) -> None:
    """Call `attempt` until it returns, or `stop` is set during a pause.

    It is called again where it raises a `QueryFailed` that is not permanent. Raises CommandError
    for one that is, and after `max_restarts` consecutive restarts without a written batch. Any
    other error of `attempt` is raised unchanged.
    """

    def unless_stopped() -> None:
        if not stop.is_set():
            attempt()

    of_files = 0

    def give_up(state: RetryCallState) -> bool:
        nonlocal of_files
        failed = _failed(state)
        # Consecutive failures of files count against their own, lower limit.
        if failed.failure.cause is not Cause.FILE:
            of_files = 0
        else:
            of_files = 1 if failed.wrote else of_files + 1
        return (
            stop.is_set()
            or state.attempt_number > max_restarts
            or of_files > min(max_restarts, FILE_RESTARTS)
        )

    def announce(state: RetryCallState) -> None:
        failure = _failed(state).failure
        _report_restart(state.attempt_number, state.upcoming_sleep, failure)
        on_restart(failure)

    try:
        Retrying(
            retry=_may_succeed,
            wait=pause,
            stop=give_up,
            sleep=sleep_using_event(stop),
            before_sleep=announce,
            reraise=True,
        )(unless_stopped)
    except QueryFailed as failed:
        restarts = _restarts(failed, max_restarts)
        gave_up = restarts > 0 and not failed.failure.permanent and not stop.is_set()
        tried = f" Gave up after {restarts} restarts without a batch." if gave_up else ""
        raise CommandError(f"{failed}{tried}", code="job_failed") from failed


def _may_succeed(state: RetryCallState) -> bool:
    error = state.outcome.exception() if state.outcome else None
    if not isinstance(error, QueryFailed):
        return False
    if error.wrote:
        # It made progress: the count of consecutive failures restarts.
        state.attempt_number = 1
    return not error.failure.permanent


def _failed(state: RetryCallState) -> QueryFailed:
    error = state.outcome.exception() if state.outcome else None
    if not isinstance(error, QueryFailed):
        raise TypeError("the attempt did not fail")
    return error


def _restarts(failed: QueryFailed, most: int) -> int:
    return min(most, FILE_RESTARTS) if failed.failure.cause is Cause.FILE else most


def _report_restart(number: int, seconds: float, failure: Failure) -> None:
    print(  # noqa: T201 - the command's own report
        f"restart={number} in={seconds:.1f}s reason={failure.said}", file=sys.stderr, flush=True
    )

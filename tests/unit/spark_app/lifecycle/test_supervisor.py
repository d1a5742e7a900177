from collections.abc import Callable
from threading import Event, Thread

import pytest
from tenacity import wait_fixed, wait_none

from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.lifecycle.failure import Cause, Failure, QueryFailed
from holdfast.spark_app.lifecycle.supervisor import FILE_RESTARTS, MAX_RESTARTS, supervise

GONE = Failure(Cause.JAVA, "Java is gone")
BROKEN = Failure(Cause.FILE, "a file is broken")
DIVERGED = Failure(Cause.DATABASE, "ReplayDiverged: other rows", permanent=True, guided=True)


class _Query:
    """Fails as the list says, then ends well."""

    def __init__(self, *failures: Failure, wrote: Callable[[int], bool] = lambda _: False) -> None:
        self.failures = list(failures)
        self.wrote = wrote
        self.starts = 0

    def __call__(self) -> None:
        self.starts += 1
        if self.failures:
            raise QueryFailed(self.failures.pop(0), wrote=self.wrote(self.starts))


def _supervise(query: Callable[[], None], stop: Event | None = None, **settings: int) -> None:
    supervise(query, stop=stop or Event(), pause=wait_none(), **settings)


def test_a_query_that_failed_is_started_until_it_ends_well(
    capsys: pytest.CaptureFixture[str],
) -> None:
    query = _Query(GONE, GONE)
    _supervise(query)
    assert query.starts == 3
    assert capsys.readouterr().err.splitlines() == [
        "restart=1 in=0.0s reason=Java is gone",
        "restart=2 in=0.0s reason=Java is gone",
    ]


def test_what_a_restart_cannot_heal_ends_the_job_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    query = _Query(DIVERGED)
    with pytest.raises(CommandError, match=r"^ReplayDiverged: other rows$"):
        _supervise(query)
    assert query.starts == 1
    assert capsys.readouterr().err == ""


def test_it_gives_up_after_so_many_failures_in_a_row() -> None:
    query = _Query(*[GONE] * 100)
    with pytest.raises(CommandError, match=r"Java is gone.* Gave up after 8 restarts"):
        _supervise(query)
    assert query.starts == MAX_RESTARTS + 1


def test_a_broken_file_is_reported_sooner() -> None:
    query = _Query(*[BROKEN] * 100)
    with pytest.raises(CommandError, match=r"a file is broken"):
        _supervise(query)
    assert query.starts == FILE_RESTARTS + 1


def test_a_file_that_cannot_be_read_once_after_other_failures_is_tried_again() -> None:
    query = _Query(*[GONE] * FILE_RESTARTS, BROKEN)
    _supervise(query)
    assert query.starts == FILE_RESTARTS + 2


def test_without_restarts_the_first_failure_ends_the_job_in_its_own_words() -> None:
    query = _Query(GONE)
    with pytest.raises(CommandError) as raised:
        _supervise(query, max_restarts=0)
    assert query.starts == 1
    assert str(raised.value) == GONE.message


def test_a_batch_that_was_written_begins_the_count_anew() -> None:
    query = _Query(*[GONE] * 10, wrote=lambda start: start % 3 == 0)
    _supervise(query, max_restarts=3)
    assert query.starts == 11
    stuck = _Query(*[GONE] * 10, wrote=lambda start: start == 1)
    with pytest.raises(CommandError):
        _supervise(stuck, max_restarts=3)
    assert stuck.starts == 4


def test_other_errors_come_out_as_they_are() -> None:
    def refused() -> None:
        raise CommandError("begun with other settings")

    with pytest.raises(CommandError, match=r"^begun with other settings$"):
        _supervise(refused)


def test_a_stop_during_the_pause_ends_well_without_another_start() -> None:
    query, stop, paused = _Query(GONE), Event(), Event()
    running = Thread(
        target=supervise,
        args=(query,),
        kwargs={"stop": stop, "pause": wait_fixed(600), "on_restart": lambda _: paused.set()},
    )
    running.start()
    assert paused.wait(30)
    stop.set()
    running.join(30)
    assert not running.is_alive()
    assert query.starts == 1


def test_a_failure_after_the_stop_is_told_and_not_healed() -> None:
    stop = Event()

    def query() -> None:
        stop.set()
        raise QueryFailed(GONE, wrote=False)

    with pytest.raises(CommandError) as raised:
        _supervise(query, stop)
    assert str(raised.value) == GONE.message

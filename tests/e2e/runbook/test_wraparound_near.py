"""Transaction IDs run out: the page, followed on a server that refuses to give out another one."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.sink import SinkUnavailable, Written
from tests.support.dispatch.dispatching import Process
from tests.support.documents.runbook import Reader, decided, refused_as, rows, running_site
from tests.support.job.driver import PATIENT, Driver
from tests.support.servers.databases import server_directory
from tests.support.servers.embedded import OldIds

pytestmark = pytest.mark.rest

PAGE = "wraparound-near"


@pytest.fixture
def server() -> Iterator[OldIds]:
    with server_directory() as directory:
        yield OldIds(directory)


def refused(dispatcher: Process) -> list[str]:
    """What the dispatcher logged of the refusal."""
    errors = [line["error"] for line in dispatcher.lines("store.away")]
    return [error for error in errors if "not accepting commands" in error]


def test_work_held_during_database_refusals_is_delivered_once(
    server: OldIds, make_database: Callable[[str | None], str], tmp_path: Path
) -> None:
    with running_site(server.dsn, make_database(None), tmp_path) as site:
        site.serve()
        site.endpoint()
        dispatcher = site.dispatch()
        job = Driver(server.dsn, timeouts=replace(PATIENT, deadline_seconds=1))
        job.tables(0, rows(decided("m_482", 1, "block"), decided("m_7", 1, "block")))
        site.delivered()
        site.stop_serving()
        job.tables(1, rows(decided("m_482", 2, "release")))
        site.db.close()
        server.run_out()
        site.serve()

        third = rows(decided("m_7", 3, "release"), decided("m_8", 3, "block"))
        with refused_as(PAGE, SinkUnavailable):
            job.tables(2, third)
        dispatcher.until(lambda: refused(dispatcher))
        before = site.applied()

        def ended() -> None:
            assert site.applied() == before
            server.drop_slot()

        def started() -> None:
            assert isinstance(job.tables(2, third), Written)

        reader = Reader(server.dsn, {"PAYOUTS_DSN": site.payouts_dsn}, {"SUBJECT": "m_482"})
        reader.follow(
            PAGE,
            {
                "what holds the old rows back is ended": ended,
                "the job is started, if it has ended": started,
            },
        )
        job.sink.close()
        assert len(refused(dispatcher)) == 1
        assert site.applied() == [
            ("m_482", "block", "applied"),
            ("m_482", "release", "applied"),
            ("m_7", "block", "applied"),
            ("m_7", "release", "applied"),
            ("m_8", "block", "applied"),
        ]

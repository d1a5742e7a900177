"""The database's disk is full: the page, followed on a volume that really is.

Once the server keeps answering, and once it ends because its log cannot grow.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.sink import SinkUnavailable, Written
from tests.support.dispatch.delivery import OLD, age
from tests.support.documents.runbook import Reader, decided, refused_as, rows, running_site
from tests.support.job.driver import PATIENT, Driver
from tests.support.servers.embedded import CannotMountError, FullDisk, volume

pytestmark = pytest.mark.rest

PAGE = "disk-full"

MANY = 300
"""Merchants of a batch that finds no room in the pages that are there."""


@pytest.fixture
def server() -> Iterator[FullDisk]:
    try:
        with volume() as folder:
            yield FullDisk(folder)
    except CannotMountError as error:
        pytest.skip(f"no file system can be mounted here: {error}")


@pytest.mark.parametrize("ends", [False, True], ids=["answers", "ended"])
def test_work_refused_by_a_full_disk_is_done_once(
    server: FullDisk, make_database: Callable[[str | None], str], tmp_path: Path, ends: bool
) -> None:
    with running_site(server.dsn, make_database(None), tmp_path) as site:
        site.serve()
        site.endpoint()
        dispatcher = site.dispatch()
        job = Driver(server.dsn, timeouts=replace(PATIENT, deadline_seconds=1))
        job.tables(0, rows(decided("m_7", 1, "block")))
        site.delivered()
        age(site.db, OLD)
        job.tables(1, rows(decided("m_482", 2, "block")))
        site.delivered()
        site.stop_serving()
        job.tables(2, rows(decided("m_482", 3, "release")))
        server.fill()
        third = rows(*(decided(f"n_{n}", 4, "block") for n in range(MANY)))
        with refused_as(PAGE, SinkUnavailable):
            job.tables(3, third)
        if ends:
            server.end_log(site.db)
            dispatcher.until(lambda: dispatcher.lines("store.away"))
        site.db.close()
        site.serve()

        def started() -> None:
            assert isinstance(job.tables(3, third), Written)

        reader = Reader(server.dsn, {"PAYOUTS_DSN": site.payouts_dsn}, {"SUBJECT": "m_482"})
        reader.follow(
            PAGE,
            {
                "there is space again, and the server answers": server.make_larger,
                "the job is started, if it has ended": started,
            },
        )
        job.sink.close()
        assert dispatcher.process.poll() is None
        assert dispatcher.lines("loop.crashed") == []
        done = site.applied()
        assert [each for each in done if not each[0].startswith("n_")] == [
            ("m_482", "block", "applied"),
            ("m_482", "release", "applied"),
            ("m_7", "block", "applied"),
        ]
        assert len(done) == MANY + 3

"""The database does not answer: the page, followed while nobody can connect to it.

Real: the server behind a proxy that refuses, dispatcher, payouts service, the sink's library.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.documents.runbook import Reader, decided, rows, running_site
from tests.support.job.driver import Driver
from tests.support.servers.fault_proxy import FaultProxy

pytestmark = pytest.mark.rest


def test_database_outage_loses_and_repeats_nothing(
    dsn: str, make_database: Callable[[str | None], str], tmp_path: Path
) -> None:
    with (
        FaultProxy.before_postgres(dsn) as proxy,
        running_site(proxy.dsn_of(dsn), make_database(None), tmp_path) as site,
    ):
        site.serve()
        site.endpoint()
        dispatcher = site.dispatch()
        job = Driver(site.dsn)
        job.tables(0, rows(decided("m_7", 1, "block")))
        site.delivered()
        site.stop_serving()
        job.tables(1, rows(decided("m_482", 1, "block")))
        job.sink.close()
        proxy.refuse()
        dispatcher.until(lambda: dispatcher.lines("store.away"))
        site.serve()
        reader = Reader(site.dsn, {"PAYOUTS_DSN": site.payouts_dsn}, {"SUBJECT": "m_482"})
        started = Driver(site.dsn, query_id=job.query_id)
        reader.follow(
            "database-away",
            {
                "the server answers again": proxy.heal,
                "the job is started, if it has ended": lambda: started.tables(
                    2, rows(decided("m_482", 2, "release"))
                ),
            },
        )
        started.sink.close()
        assert site.applied() == [
            ("m_482", "block", "applied"),
            ("m_482", "release", "applied"),
            ("m_7", "block", "applied"),
        ]

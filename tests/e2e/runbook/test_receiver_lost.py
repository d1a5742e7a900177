"""The receiver lost its tables: the page, followed with an empty payouts database."""

import psycopg
import pytest

from tests.support.documents.runbook import Reader, Site, decided, rows
from tests.support.job.driver import Driver

pytestmark = pytest.mark.rest

PAGE = "receiver-lost"


def test_holds_stand_again_as_they_stood(site: Site, reader: Reader) -> None:
    site.serve()
    site.endpoint()
    site.dispatch()
    job = Driver(site.dsn)
    job.tables(0, rows(decided("m_482", 1, "block"), decided("m_7", 1, "block")))
    job.tables(1, rows(decided("m_482", 2, "release"), decided("m_8", 2, "block")))
    site.delivered()
    stood = site.applied()
    with psycopg.connect(site.payouts_dsn, autocommit=True) as payouts:
        payouts.execute("DROP SCHEMA payouts CASCADE")

    def back() -> None:
        site.stop_serving()
        site.serve()

    back()
    reader.finds = {"REPLAY": r"replay ([0-9a-f]{8}): planned"}
    reader.follow(PAGE, {"the receiver has its tables and answers": back})
    job.sink.close()
    assert site.applied() == stood

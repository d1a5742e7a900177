"""The receiver lost its tables: the page, followed with an empty payouts database."""

import psycopg
import pytest

from tests.support.job.driver import Driver
from tests.support.runbook import Reader, World, decided, rows

pytestmark = pytest.mark.rest

PAGE = "receiver-lost"


def test_holds_stand_again_as_they_stood(here: World, reader: Reader) -> None:
    here.serve()
    here.endpoint()
    here.dispatch()
    job = Driver(here.dsn)
    job.tables(0, rows(decided("m_482", 1, "block"), decided("m_7", 1, "block")))
    job.tables(1, rows(decided("m_482", 2, "release"), decided("m_8", 2, "block")))
    here.delivered()
    stood = here.applied()
    with psycopg.connect(here.payouts_dsn, autocommit=True) as payouts:
        payouts.execute("DROP SCHEMA payouts CASCADE")

    def back() -> None:
        here.stop_serving()
        here.serve()

    back()
    reader.finds = {"REPLAY": r"replay ([0-9a-f]{8}): planned"}
    reader.follow(PAGE, {"the receiver has its tables and answers": back})
    job.sink.close()
    assert here.applied() == stood

"""The database is lost and the checkpoint is whole: the page, followed on a new, empty database.

The sink's library stands in for the job, with the comparison that the job makes at its start.
"""

from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.sink import LedgerBehind, Written
from holdfast.sink.transaction.lineage import require_recorded
from holdfast.spark_app.checkpoint.initial import newest_batch
from tests.support.documents.runbook import Reader, Site, Step, decided, refused_as, rows
from tests.support.job.driver import Driver

pytestmark = pytest.mark.rest

PAGE = "database-lost"
DELIVERED = (
    (decided("m_482", 1, "block"), decided("m_7", 1, "block")),
    (decided("m_482", 2, "release"),),
)
WAITS = (decided("m_7", 3, "release"), decided("m_8", 3, "block"))
"""Written, and not delivered when the database goes."""

NEW = (decided("m_482", 4, "block"),)


def lose(dsn: str) -> None:
    """Drop a database whoever uses it, and make an empty one of its name."""
    name = sql.Identifier(str(conninfo_to_dict(dsn)["dbname"]))
    with psycopg.connect(make_conninfo(dsn, dbname="postgres"), autocommit=True) as server:
        server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
        server.execute(sql.SQL("CREATE DATABASE {}").format(name))


def start_on(dsn: str, checkpoint: Path, query_id: UUID, committed: int) -> None:
    """Compare a whole checkpoint with the ledger, as a start of the job does."""
    again = Driver(dsn, query_id=query_id)
    try:
        recorded = newest_batch(again.sink, "payouts", query_id)
        require_recorded("payouts", str(checkpoint), committed, recorded)
    finally:
        again.sink.close()


def test_lost_decisions_are_decided_again_without_repeats(site: Site, reader: Reader) -> None:
    site.serve()
    site.endpoint()
    dispatcher = site.dispatch()
    job = Driver(site.dsn)
    for batch_id, decisions in enumerate(DELIVERED):
        job.tables(batch_id, rows(*decisions))
    site.delivered()
    site.stop_serving()
    job.tables(2, rows(*WAITS))
    start_on(site.dsn, site.folder, job.query_id, 2)
    done = site.applied()
    site.db.close()
    lose(site.dsn)
    restarted = Driver(site.dsn)

    def stopped() -> None:
        dispatcher.terminate()
        dispatcher.ends()
        job.sink.close()
        site.serve()

    def started() -> None:
        with refused_as(PAGE, LedgerBehind):
            start_on(site.dsn, site.folder, job.query_id, 2)
        # Other batches than before, as of a job that reads everything at once.
        everything = [each for batch in DELIVERED for each in batch]
        assert isinstance(restarted.tables(0, rows(*everything, *WAITS)), Written)
        assert isinstance(restarted.tables(1, rows(*NEW)), Written)
        site.dispatch()
        assert site.applied() == done

    reader.known |= {"URL": site.url, "CIDR": "127.0.0.0/8", "SECRET_FILE": str(site.secret_file)}
    reader.follow(
        PAGE,
        {
            "job and dispatchers are stopped": stopped,
            "the job is started on a new checkpoint, and has read everything again": started,
        },
    )
    restarted.sink.close()
    assert site.applied() == [
        ("m_482", "block", "applied"),
        ("m_482", "release", "applied"),
        ("m_482", "block", "applied"),
        ("m_7", "block", "applied"),
        ("m_7", "release", "applied"),
        ("m_8", "block", "applied"),
    ]


def test_missing_events_show_before_sending_and_repeat_nothing(site: Site, reader: Reader) -> None:
    site.serve()
    site.endpoint()
    dispatcher = site.dispatch()
    job = Driver(site.dsn)
    job.tables(0, rows(*DELIVERED[0]))
    site.delivered()
    dispatcher.terminate()
    dispatcher.ends()
    job.sink.close()
    done = site.applied()
    site.db.close()
    lose(site.dsn)
    reader.give(PAGE, Step(0, "holdfast db upgrade", 0))
    site.endpoint()
    restarted = Driver(site.dsn)
    restarted.tables(0, rows(*WAITS))
    restarted.sink.close()
    compare = "holdfast receipts --endpoint payouts --since 3650d --receiver env:PAYOUTS_DSN"
    reader.give(PAGE, Step(0, compare, 0, ("only_there 2",)))
    site.dispatch()
    reader.give(PAGE, Step(0, compare, 4, ("only_there 2", "stale_there 1"), again=True))
    assert site.applied() == [*done, ("m_8", "block", "applied")]

"""A batch diverged: the page, followed after a source's file was edited under a running job."""

import pytest

from holdfast.sink import ReplayDiverged, Replayed
from tests.support.documents.runbook import Reader, Site, decided, refused_as, rows
from tests.support.job.driver import Driver

pytestmark = pytest.mark.rest

FIRST = (decided("m_482", 1, "block"), decided("m_7", 1, "block"))
SECOND = (decided("m_482", 2, "release"), decided("m_8", 2, "block"))
EDITED = (decided("m_482", 2, "release", exposure_minor=4_999_999), decided("m_8", 2, "block"))
PAGE = "batch-diverged"


def test_first_written_decision_stands_and_the_job_continues(site: Site, reader: Reader) -> None:
    site.serve()
    site.endpoint()
    site.dispatch()
    spark = Driver(site.dsn)
    spark.tables(0, rows(*FIRST))
    spark.tables(1, rows(*SECOND))
    spark.sink.close()
    again = Driver(site.dsn, query_id=spark.query_id)
    with refused_as(PAGE, ReplayDiverged):
        again.tables(1, rows(*EDITED))
    again.sink.close()
    site.delivered()

    reader.finds = {
        "BATCH": r"holdfast batch diff payouts (\d+)",
        "KEY": r"changed: (hf_[0-9a-f]{32})",
    }

    def put_back() -> None:
        third = Driver(site.dsn, query_id=spark.query_id)
        assert isinstance(third.tables(1, rows(*SECOND)), Replayed)
        third.tables(2, rows(decided("m_7", 3, "release")))
        third.sink.close()

    reader.follow(PAGE, {"what made the batch is put back, and the job is started": put_back})
    site.delivered()
    assert site.applied() == [
        ("m_482", "block", "applied"),
        ("m_482", "release", "applied"),
        ("m_7", "block", "applied"),
        ("m_7", "release", "applied"),
        ("m_8", "block", "applied"),
    ]

"""The job stands still: the page, followed after a job was killed between two batches."""

from datetime import timedelta

import pytest

from tests.support.documents.runbook import Reader, Site, decided, rows
from tests.support.job.driver import Driver

pytestmark = pytest.mark.rest


def test_job_that_is_started_again_decides_what_waited(site: Site, reader: Reader) -> None:
    site.serve()
    site.endpoint()
    site.dispatch()
    spark = Driver(site.dsn)
    spark.tables(0, rows(decided("m_482", 1, "block")))
    spark.sink.close()
    site.delivered()
    site.age(timedelta(hours=1))

    def start() -> None:
        again = Driver(site.dsn, query_id=spark.query_id)
        again.tables(1, rows(decided("m_482", 2, "release")))
        again.sink.close()

    reader.follow("job-stopped", {"the job is started again": start})
    site.delivered()
    assert site.applied() == [("m_482", "block", "applied"), ("m_482", "release", "applied")]

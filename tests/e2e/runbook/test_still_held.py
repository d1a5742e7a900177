"""A merchant is still held: the page, followed after an operator paused the endpoint."""

from datetime import timedelta

import pytest

from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.documents.runbook import Reader, Site, decided, rows
from tests.support.job.driver import Driver

pytestmark = pytest.mark.rest


def test_release_behind_a_pause_arrives_after_it(site: Site, reader: Reader) -> None:
    site.serve()
    site.endpoint()
    site.dispatch()
    spark = Driver(site.dsn)
    spark.tables(0, rows(decided("m_482", 1, "block")))
    site.delivered()
    paused = holdfast("endpoint", "pause", "payouts", "--reason", "work", dsn=site.dsn)
    assert paused.returncode == ExitCode.OK
    spark.tables(1, rows(decided("m_482", 2, "release")))
    spark.sink.close()
    site.until(lambda: site.value("SELECT count(*) = count(routed_at) FROM holdfast.batch"))
    assert site.applied() == [("m_482", "block", "applied")]
    site.age(timedelta(hours=1))

    agreed = "whoever paused the endpoint agrees to resume it"
    reader.follow("still-held", {agreed: lambda: None})
    assert site.applied() == [("m_482", "block", "applied"), ("m_482", "release", "applied")]

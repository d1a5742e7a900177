"""A merchant says "we were blocked twice": the page, followed where both are true.

One block arrived twice, because the service was killed before it answered; and there was a second
block, of another window.
"""

from tests.support.documents.runbook import Reader, Site, decided, rows
from tests.support.job.driver import Driver


def test_block_arrives_twice_and_is_applied_once(site: Site, reader: Reader) -> None:
    dying = site.serve(failpoints="R4=kill@1")
    site.endpoint("--total-timeout", "20")
    site.dispatch()
    spark = Driver(site.dsn)
    spark.tables(0, rows(decided("m_482", 1, "block")))
    dying.wait(60)
    site.serve()
    site.delivered()
    spark.tables(1, rows(decided("m_482", 2, "release")))
    spark.tables(2, rows(decided("m_482", 3, "block")))
    spark.sink.close()
    site.delivered()
    # The oldest, which is the last of the list.
    reader.finds = {"KEY": r"(?s).*(hf_[0-9a-f]{32})"}
    reader.follow("blocked-twice", {})
    assert [action for _, action, effect in site.applied() if effect == "applied"] == [
        *("block", "release", "block")
    ]
    assert site.value("SELECT count(*) FROM holdfast.attempt WHERE outcome = 'unknown'") == 1

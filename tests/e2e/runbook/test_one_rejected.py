"""One decision was rejected: the page, followed after a receiver did not know a merchant."""

import pytest

from tests.support.dispatch.dispatching import drain
from tests.support.dispatch.webhooks import Behaviour, Seen, WebhookReceiver, answer
from tests.support.documents.runbook import Reader, Site, decided, rows
from tests.support.job.driver import Driver

pytestmark = pytest.mark.rest


def stranger(seen: Seen) -> Behaviour:
    """Refuse m_482 for good, and ask for everything else again."""
    return answer(422 if seen.subject == "m_482" else 503, b"unknown merchant")


def test_rejected_decision_is_sent_again_and_the_rest_follows(site: Site, reader: Reader) -> None:
    site.endpoint()
    before = WebhookReceiver()
    before.port, before.script = site.port, stranger
    spark = Driver(site.dsn)
    before.start()
    try:
        spark.tables(0, rows(decided("m_482", 1, "block")))
        drain(site.dsn)
        spark.tables(1, rows(decided("m_482", 2, "release")))
        drain(site.dsn)
    finally:
        before.close()
    spark.sink.close()
    site.dispatch()
    reader.finds = {"LETTER": r"│ (\d+) +│ payouts", "KEY": r"redeliver (hf_[0-9a-f]{32})"}

    reader.follow("one-rejected", {"the receiver accepts this merchant": site.serve})
    site.delivered()
    assert site.applied() == [("m_482", "block", "applied"), ("m_482", "release", "applied")]

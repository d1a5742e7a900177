"""The receiver was down for six hours: the page, followed in a world in which it was."""

from datetime import timedelta

import pytest

from tests.support.dispatch.dispatching import drain
from tests.support.dispatch.webhooks import Behaviour, Seen, WebhookReceiver, answer
from tests.support.documents.runbook import Reader, Site, decided, rows
from tests.support.job.driver import Driver

pytestmark = pytest.mark.rest

OTHERS = tuple(f"m_{number}" for number in range(1, 6))
GIVEN_UP = "m_13"

OPEN = """
    UPDATE holdfast.endpoint_pace
    SET breaker_until = clock_timestamp() + %s::integer * interval '1 minute'
"""


def gateway(seen: Seen) -> Behaviour:
    """Say that nobody is behind it: mostly as a proxy should, once with a 404."""
    return answer(404 if seen.subject == GIVEN_UP else 503, b"no upstream")


def outage(site: Site) -> None:
    """Six hours in which nothing was applied, one decision was rejected, and more were made."""
    site.endpoint("--breaker-threshold", "3", "--slow-start", "2s")
    before = WebhookReceiver()
    before.port, before.script = site.port, gateway
    spark = Driver(site.dsn)
    before.start()
    try:
        spark.tables(0, rows(decided(GIVEN_UP, 1, "block")))
        drain(site.dsn)
        spark.tables(1, rows(*(decided(each, 1, "block") for each in ("m_482", *OTHERS))))
        drain(site.dsn)
    finally:
        before.close()
    spark.tables(2, rows(decided("m_482", 2, "release"), decided(GIVEN_UP, 2, "release")))
    spark.sink.close()
    site.age(timedelta(hours=6))
    site.db.execute(OPEN, [4])


def test_backlog_is_sent_in_order_then_the_rejected_entries(site: Site, reader: Reader) -> None:
    outage(site)
    site.dispatch()
    reader.finds = {"REPLAY": r"holdfast replay apply ([0-9a-f]{8})"}

    def up() -> None:
        site.serve()
        site.db.execute(OPEN, [0])

    reader.follow("receiver-down", {"the receiver is up again": up})
    applied = site.applied()
    for each in (GIVEN_UP, "m_482"):
        mine = [(action, effect) for merchant, action, effect in applied if merchant == each]
        assert mine == [("block", "applied"), ("release", "applied")]
    assert len(applied) == 4 + len(OTHERS)

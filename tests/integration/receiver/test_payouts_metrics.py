"""The payouts service's /metrics: what it did, judged beside its own tables."""

import httpx
import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.sink.contract.wire import ReceiptOutcome
from tests.support.dispatch.payouts import Payouts
from tests.support.dispatch.sender import OTHER_KEY_BYTES, Sent, body, headers

Samples = dict[tuple[str, ...], float]


def scraped(service: Payouts) -> Samples:
    """Every sample by its name and the values of its labels."""
    answer = httpx.get(f"{service.url}/metrics", timeout=30)
    assert answer.status_code == httpx.codes.OK
    return {
        (sample.name.removeprefix("holdfast_payouts_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_counters_and_the_hold_gauge_match_the_table(
    service: Payouts,
) -> None:
    before = scraped(service)
    assert before["held",] == 0
    service.send(Sent.of("m_482", "block", 1))
    service.send(Sent.of("m_482", "block", 1))
    service.send(Sent.of("m_483", "block", 1))
    service.send(Sent.of("m_483", "release", 2))
    service.send(Sent.of("m_482", "block", 2))
    forged = body("m_482", "release", 3)
    service.send(Sent(forged, headers(forged, key=OTHER_KEY_BYTES)))
    after = scraped(service)
    grown = {name: value - before[name] for name, value in after.items() if value != before[name]}
    assert grown == {
        ("held",): 1,
        ("actions_total", "block", "applied"): 2,
        ("actions_total", "release", "applied"): 1,
        ("actions_total", "block", "refused_transition"): 1,
        ("deliveries_total", "applied"): 4,
        ("deliveries_total", "duplicate"): 1,
        ("answers_total", "200"): 5,
        ("answers_total", "401"): 1,
    }
    assert service.rows("SELECT merchant_id FROM payouts.hold WHERE held") == [("m_482",)]


def test_signed_delivery_that_is_no_hold_is_counted_as_refused(service: Payouts) -> None:
    before = scraped(service)
    service.send(Sent.of("m_482", "block", 1, data={"merchant_id": "m_482"}))
    after = scraped(service)
    assert after["deliveries_total", "refused"] - before["deliveries_total", "refused"] == 1
    assert after["answers_total", "422"] - before.get(("answers_total", "422"), 0) == 1


@pytest.mark.parametrize("outcome", [*ReceiptOutcome, "refused"])
def test_every_outcome_is_shown_before_the_first_one(service: Payouts, outcome: str) -> None:
    assert ("deliveries_total", outcome) in scraped(service)


def test_missing_table_costs_the_gauge_only(service: Payouts) -> None:
    with psycopg.connect(service.dsn, autocommit=True) as db:
        db.execute("ALTER TABLE payouts.hold RENAME TO moved")
        try:
            contents = scraped(service)
        finally:
            db.execute("ALTER TABLE payouts.moved RENAME TO hold")
    assert ("held",) not in contents
    assert ("answers_total", "200") in contents

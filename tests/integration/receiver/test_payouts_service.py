"""The payouts service over HTTP, judged by its answers and by its own tables."""

import asyncio
import hashlib
import json
from collections import Counter
from pathlib import Path

import httpx
import psycopg
import pytest
from psycopg import sql

from tests.support.dispatch.payouts import Payouts
from tests.support.dispatch.sender import (
    OTHER_KEY_BYTES,
    Sent,
    body,
    headers,
    hold,
    key_of,
    receipt,
)

pytestmark = pytest.mark.rest

DUPLICATES = 50


def test_hold_is_applied_shown_and_released(service: Payouts) -> None:
    blocked = service.send(Sent.of("m_482", "block", 1))
    assert blocked.status_code == 200
    assert blocked.json()["outcome"] == "applied"
    assert blocked.json()["receipt"] == receipt(blocked.json())

    (shown,) = httpx.get(f"{service.url}/holds.json").json()["held"]
    assert (shown["merchant_id"], shown["exposure_minor"]) == ("m_482", 8_500_000)
    assert (shown["window_end"], shown["key"]) == ("2026-11-02T12:15:00Z", key_of("m_482", 1))
    page = httpx.get(service.url).text
    assert "Exposure 85,000.00 USD is above the limit of 50,000.00 USD" in page

    again = service.send(Sent.of("m_482", "block", 1))
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json()["outcome"] == "duplicate"
    assert again.json()["applied_at"] == blocked.json()["applied_at"]
    assert again.json()["receipt"] == receipt(again.json())

    assert service.send(Sent.of("m_482", "release", 2)).json()["outcome"] == "applied"
    assert httpx.get(f"{service.url}/holds.json").json() == {"held": [], "next": None}
    log = service.rows("SELECT sequence, outcome FROM payouts.delivery_log ORDER BY arrival")
    assert log == [(1, "applied"), (1, "duplicate"), (2, "applied")]


def test_fifty_concurrent_duplicates_hold_once(service: Payouts) -> None:
    sent = Sent.of("m_482", "block", 1)

    async def flood() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=DUPLICATES)
        async with httpx.AsyncClient(base_url=service.url, limits=limits, timeout=30) as client:
            requests = [
                client.post("/webhooks", content=sent.content, headers=sent.headers)
                for _ in range(DUPLICATES)
            ]
            return await asyncio.gather(*requests)

    answers = asyncio.run(flood())
    outcomes = Counter((answer.status_code, answer.json()["outcome"]) for answer in answers)
    assert outcomes[200, "applied"] == 1
    assert outcomes[200, "duplicate"] + outcomes[409, "in_progress"] == DUPLICATES - 1
    waiting = [answer for answer in answers if answer.status_code == 409]
    assert all(answer.headers["retry-after"] == "1" for answer in waiting)
    assert service.rows("SELECT sequence, effect FROM payouts.hold_history") == [(1, "applied")]
    assert service.rows("SELECT count(*) FROM payouts.delivery_log") == [(DUPLICATES,)]


def test_refusals_are_answered_by_name_and_apply_nothing(service: Payouts) -> None:
    service.send(Sent.of("m_482", "block", 1))
    content = body("m_482", "block", 2)
    refused = [
        (Sent.of("m_482", "block", 1, data=hold("m_482", "block", revision=2)), 422, "conflict"),
        (Sent(content, headers(content, key=OTHER_KEY_BYTES)), 401, "no_match"),
        (Sent(content, headers(content, timestamp=1)), 401, "too_old"),
        (Sent(content), 400, "missing_header"),
        (Sent(bytes(256 * 1024 + 1)), 413, "body_too_large"),
        (Sent.of("m_482", "block", 2, type="refund.block"), 400, "unknown_type"),
        (Sent.of("m_482", "block", 2, data={}), 422, "bad_data"),
    ]
    for sent, status, word in refused:
        answer = service.send(sent)
        assert (answer.status_code, word in answer.text) == (status, True), answer.text
    assert service.rows("SELECT count(*) FROM payouts.hold_history") == [(1,)]
    log = service.rows("SELECT outcome FROM payouts.delivery_log ORDER BY arrival")
    assert [outcome for (outcome,) in log] == ["applied", "conflict", "refused", "refused"]


def test_late_release_does_not_undo_a_newer_block(service: Payouts) -> None:
    assert service.send(Sent.of("m_482", "block", 3)).json()["outcome"] == "applied"
    late = service.send(Sent.of("m_482", "release", 2))
    assert (late.status_code, late.json()["outcome"]) == (200, "stale")
    assert service.rows("SELECT held, sequence FROM payouts.hold") == [(True, 3)]


def test_impossible_transition_is_recorded_and_changes_nothing(service: Payouts) -> None:
    service.send(Sent.of("m_482", "release", 1))
    service.send(Sent.of("m_482", "block", 2))
    again = service.send(Sent.of("m_482", "block", 3))
    assert (again.status_code, again.json()["outcome"]) == (200, "applied")
    history = service.rows("SELECT sequence, effect FROM payouts.hold_history ORDER BY sequence")
    assert history == [(1, "refused_transition"), (2, "applied"), (3, "refused_transition")]
    assert service.rows("SELECT held, sequence FROM payouts.hold") == [(True, 2)]
    assert "Check: Refused transitions." in httpx.get(service.url).text


def test_page_runs_no_script_of_a_merchants_name(service: Payouts) -> None:
    merchant = "<script>alert(1)</script>"
    assert service.send(Sent.of(merchant, "block", 1)).status_code == 200
    page = httpx.get(service.url)
    assert "&lt;script&gt;alert(1)" in page.text
    assert "<script" not in page.text
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'self'")
    assert page.headers["x-content-type-options"] == "nosniff"
    assert httpx.get(f"{service.url}/style.css").headers["content-type"].startswith("text/css")
    assert httpx.get(f"{service.url}/holds.json").json()["held"][0]["merchant_id"] == merchant


def test_holds_are_listed_page_by_page(service: Payouts) -> None:
    service.rows(
        "INSERT INTO payouts.hold SELECT 'm_' || to_char(n, 'FM0000'), true, now(), 1, 1, 0, 'USD',"
        " now(), now() + interval '1 s', 'hf' FROM generate_series(1, 1001) n RETURNING sequence"
    )
    first = httpx.get(f"{service.url}/holds.json").json()
    assert (len(first["held"]), first["next"]) == (1000, "m_1000")
    rest = httpx.get(f"{service.url}/holds.json", params={"after": first["next"]}).json()
    assert [row["merchant_id"] for row in rest["held"]] == ["m_1001"]
    assert rest["next"] is None
    assert 'href="/?after=m_0100"' in httpx.get(service.url).text
    assert httpx.get(f"{service.url}/?after=%00%ff%27").status_code == 200


def test_inquiry_tells_what_the_first_delivery_was_answered(service: Payouts) -> None:
    sent, late = Sent.of("m_482", "block", 3), Sent.of("m_482", "release", 2)
    assert service.ask(key_of("m_482", 3)).status_code == 404
    first = service.send(sent)
    service.send(sent)
    service.send(late)
    known = service.ask(key_of("m_482", 3))
    assert known.status_code == 200
    assert known.json() == {
        **first.json(),
        "body_sha256": hashlib.sha256(sent.content).hexdigest(),
    }
    assert known.headers["holdfast-key-window"] == first.headers["holdfast-key-window"] == "3888000"
    stale = service.ask(key_of("m_482", 2))
    assert stale.json()["outcome"] == "stale"
    assert stale.json()["receipt"] == receipt(stale.json())


def test_inquiry_is_answered_to_nobody_who_cannot_sign(service: Payouts) -> None:
    sent = Sent.of("m_482", "block", 1)
    service.send(sent)
    key = key_of("m_482", 1)
    path = f"{service.url}/holdfast/keys/{key}"
    asked = [
        (service.ask(key, OTHER_KEY_BYTES), 401, "no_match"),
        (httpx.get(path), 400, "missing_header"),
        (httpx.get(path, headers=sent.headers), 401, "no_match"),
        (httpx.post(path, content=sent.content, headers=sent.headers), 405, "method_not_allowed"),
        (service.ask(f"{key}/x"), 400, "bad_id"),
    ]
    for answer, status, reason in asked:
        assert (answer.status_code, answer.json()["reason"]) == (status, reason)
        assert "applied" not in answer.text
    assert asked[3][0].headers["allow"] == "GET"


def test_published_story_is_what_the_service_answers(service: Payouts) -> None:
    path = Path(__file__).parents[3] / "dispatcher" / "receiver" / "vectors.json"
    for step in json.loads(path.read_text(encoding="utf-8"))["story"]:
        content = step["body"].encode()
        answer = service.send(Sent(content, headers(content)))
        data = answer.status_code, answer.json().get("outcome")
        assert data == (step["status"], step["outcome"]), step["does"]
        assert ("idempotency-replayed" in answer.headers) is step["replayed"], step["does"]


def test_lost_database_is_answered_503_and_found_again(service: Payouts, server_dsn: str) -> None:
    assert httpx.get(f"{service.url}/healthz").json() == {"status": "ok"}
    with psycopg.connect(service.dsn) as connection:
        database = connection.info.dbname
    name = sql.Identifier(database)
    with psycopg.connect(server_dsn, autocommit=True) as server:
        server.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(name))
        server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'holdfast-payouts' AND datname = %s",
            [database],
        )
        assert service.ask(key_of("m_482", 1)).status_code == 503
        lost = service.send(Sent.of("m_482", "block", 1))
        assert (lost.status_code, lost.headers["retry-after"]) == (503, "1")
        server.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(name))
    while (answer := service.send(Sent.of("m_482", "block", 1))).status_code == 503:
        pass
    assert answer.json()["outcome"] == "applied"


def test_history_and_log_cannot_be_rewritten(service: Payouts) -> None:
    service.send(Sent.of("m_482", "block", 1))
    for statement in (
        "UPDATE payouts.hold_history SET sequence = 9",
        "DELETE FROM payouts.delivery_log",
        "TRUNCATE payouts.delivery_log",
    ):
        with (
            psycopg.connect(service.dsn) as connection,
            pytest.raises(psycopg.errors.RestrictViolation, match="append-only"),
        ):
            connection.execute(statement)

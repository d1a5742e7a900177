"""/metrics and /healthz of the API: without a token, and without a word too much."""

import re

import httpx

from tests.support.console.admin_api import Api, key_text


def _value(text: str, line: str) -> float:
    match = re.search(rf"^{re.escape(line)} (\S+)$", text, re.MULTILINE)
    return float(match[1]) if match else 0.0


def test_requests_are_counted_by_route_not_by_parameters(reading: Api) -> None:
    key = key_text("m_1")
    counted = (
        'holdfast_api_requests_total{method="GET",route="/api/v1/entries/{key}",status="200"}',
        'holdfast_api_requests_total{method="GET",route="/api/v1/entries/{key}",status="401"}',
        'holdfast_api_requests_total{method="other",route="other",status="404"}',
        'holdfast_api_auth_failures_total{missing="token"}',
        'holdfast_api_auth_failures_total{missing="role"}',
        'holdfast_api_request_seconds_count{method="GET",route="/api/v1/entries/{key}"}',
    )
    before = httpx.get(f"{reading.url}/metrics").text
    reading.ask("GET", f"/entries/{key}", "viewer")
    reading.ask("GET", f"/entries/{key}", None)
    reading.ask("GET", f"/entries/{key}?body=true", "viewer")
    httpx.request("BREW", f"{reading.url}/no-such-page-m_482")
    after = httpx.get(f"{reading.url}/metrics").text
    grown = [_value(after, line) - _value(before, line) for line in counted]
    assert grown == [1, 1, 1, 1, 1, 3]
    assert _value(after, "holdfast_api_requests_in_flight") == 1
    assert _value(after, "holdfast_api_db_connections") >= 1
    assert _value(after, "holdfast_api_db_waiting") == 0
    for word in (key, "hft_", "m_482", "viewer", "/no-such-page"):
        assert word not in after


def test_whoever_runs_it_can_ask_whether_it_lives_and_is_ready(reading: Api) -> None:
    for path in ("live", "ready"):
        answer = httpx.get(f"{reading.url}/healthz/{path}")
        assert (answer.status_code, answer.json()) == (200, {"ok": True, "faults": []})

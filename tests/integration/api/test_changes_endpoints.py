"""Endpoints and streams changed by the API: each change with its audit row."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from holdfast.sink.contract.states import AccessRole
from tests.support.console.admin_api import Api, serving
from tests.support.job.decisions import Decisions
from tests.support.servers.databases import copy_of

URL = "https://payouts.example/webhooks"
NEW = {"url": URL, "secret_refs": ["env:HOLDFAST_SECRET_PAYOUTS"], "reason": "a new receiver"}
WHY = {"reason": "a test"}
NEXT = "env:HOLDFAST_SECRET_NEXT"


@pytest.fixture(scope="module")
def api(server_dsn: str, template_database: str) -> Iterator[Api]:
    with copy_of(server_dsn, template_database) as dsn, serving(dsn) as api:
        with Decisions(dsn) as decisions:
            decisions.write("m_1")
        yield api


def _added(api: Api, name: str, **more: Any) -> None:
    answer = api.ask("POST", "/endpoints", json={**NEW, "name": name, **more})
    assert answer.status_code == 201, answer.text


def _state(api: Api, name: str) -> str:
    [row] = api.rows("SELECT state::text FROM holdfast.endpoint WHERE name = %s", name)
    return str(row["state"])


def test_endpoint_is_added_with_every_setting_or_its_default(api: Api) -> None:
    before = len(api.audited())
    _added(
        api, "full", types=["b.x", "a.x"], headers={"X-Token": NEXT}, rate_per_second=0,
        headers_literal={"X-Tenant": "eu"},
        order_policy="skip", envelope="cloudevents", inquiry_path="default", concurrency=3,
        schedule_seconds=[1, 2], total_timeout_ms=1000, from_beginning=True,
    )  # fmt: skip
    [row] = api.rows("SELECT * FROM holdfast.endpoint WHERE name = 'full'")
    assert (row["types"], row["headers"]) == (["a.x", "b.x"], {"x-tenant": "eu", "x-token": NEXT})
    assert (row["connect_timeout_ms"], row["total_timeout_ms"]) == (1000, 1000)
    assert (row["rate_per_second"], row["budget_seconds"]) == (None, 432_000)
    assert api.audited()[before:] == [("endpoint.add", "full", "token admin", "a new receiver")]
    again = api.ask("POST", "/endpoints", json={**NEW, "name": "full"})
    assert (again.status_code, "already" in again.json()["detail"]) == (409, True)
    assert len(api.audited()) == before + 1


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"url": "ftp://payouts.example"}, "url must be"),
        ({"url": "https://user:secret-canary@payouts.example"}, "url must be"),
        ({"url": "http://payouts.example"}, "url is plain http://, which needs allow_cidrs"),
        ({"url": "https://127.0.0.1/"}, "would be refused"),
        ({"url": "https://169.254.169.254/latest"}, "would be refused"),
        ({"secret_refs": ["whsec_secret-canary"]}, "faults"),
        ({"secret_refs": []}, "faults"),
        ({"headers": {"webhook-id": NEXT}}, "webhook-id"),
        ({"headers": {"x-jwt": "secret-canary"}}, "faults"),
        ({"headers": {"x": "env:HOLDFAST_DSN"}}, "HOLDFAST_SECRET_"),
        ({"headers": {"x": "file:/proc/self/environ"}}, "/run/secrets/holdfast"),
        ({"headers": {"x": NEXT}, "headers_literal": {"x": "1"}}, "twice"),
        ({"headers_literal": {"x": "a\r\nb: c"}}, "faults"),
        ({"headers_literal": {"x": "***"}}, "masks"),
        ({"secret_refs": ["env:PGPASSWORD"]}, "HOLDFAST_SECRET_"),
        ({"ca_ref": "file:/etc/passwd"}, "/run/secrets/holdfast"),
        ({"client_cert_ref": NEXT}, "client_cert_ref and client_key_ref go together"),
        ({"url": None}, "url cannot be null"),
        ({"concurrency": 0}, "faults"),
        ({"concurrency": True}, "faults"),
        ({"concurrency": "3"}, "faults"),
        ({"concurrency": 10**400}, "faults"),
        ({"order_policy": "perhaps"}, "faults"),
        ({"allow_cidrs": ["10.0.0.1/8"]}, "networks"),
        ({"allow_cidrs": ["fe80::1%eth0/128"]}, "zone"),
        ({"secret_refs": [NEXT, NEXT]}, "two different"),
        ({"types": ["a.b", "a.b"]}, "twice"),
        ({"state": "active"}, "faults"),
        ({"reason": " \n "}, "faults"),
        ({"reason": "nul \x00"}, "faults"),
        ({"reason": "x" * 2001}, "faults"),
        ({}, "nothing to set"),
    ],
    ids=str,
)
def test_nonsense_setting_changes_nothing(api: Api, change: dict[str, Any], complaint: str) -> None:
    if not api.rows("SELECT FROM holdfast.endpoint WHERE name = 'kept'"):
        _added(api, "kept")
    before = api.rows("SELECT * FROM holdfast.endpoint WHERE name = 'kept'")
    audited = api.audited()
    answer = api.ask("PATCH", "/endpoints/kept", json={"reason": "a test", **change})
    assert answer.status_code == 422, answer.text
    assert complaint in answer.text
    assert "canary" not in answer.text
    assert api.rows("SELECT * FROM holdfast.endpoint WHERE name = 'kept'") == before
    assert api.audited() == audited


def test_change_reports_differences_and_a_repeat_changes_nothing(api: Api) -> None:
    _added(api, "changed", rate_per_second=5)
    before = len(api.audited())
    change = {"rate_per_second": 0, "concurrency": 9, "reason": "faster"}
    first = api.ask("PATCH", "/endpoints/changed", json=change)
    assert first.json() == {
        "name": "changed",
        "before": {"concurrency": 64, "rate_per_second": 5},
        "after": {"concurrency": 9, "rate_per_second": None},
    }
    again = api.ask("PATCH", "/endpoints/changed", json=change)
    assert again.json() == {"name": "changed", "before": {}, "after": {}}
    assert api.audited()[before:] == [("endpoint.set", "changed", "token admin", "faster")]
    types = api.ask("PATCH", "/endpoints/changed", json={"types": ["a"], "reason": "r"})
    assert (types.status_code, "pause" in types.json()["detail"]) == (409, True)


def test_secret_is_rotated_in_two_steps(api: Api) -> None:
    _added(api, "rotated")
    before = len(api.audited())
    path = "/endpoints/rotated/rotate-secret"
    for body, status, refs in (
        ({"to": NEXT}, 200, ["env:HOLDFAST_SECRET_PAYOUTS", NEXT]),
        ({"to": f"{NEXT}_2"}, 409, None),
        ({}, 422, None),
        ({"to": "env:HOLDFAST_DSN"}, 422, None),
        ({"finish": True}, 200, [NEXT]),
        ({"finish": True}, 404, None),
    ):
        answer = api.ask("POST", path, json={"reason": "leaked", **body})
        assert (answer.status_code, answer.json().get("secret_refs")) == (status, refs)
    assert [row[:1] for row in api.audited()[before:]] == [("endpoint.rotate_secret",)] * 2


def test_operator_pauses_and_resumes_only_enabled_endpoints(api: Api) -> None:
    _added(api, "held")
    before, who = len(api.audited()), AccessRole.OPERATOR.value
    for action, asker, status, state in (
        ("pause", who, 200, "paused"),
        ("resume", who, 200, "active"),
        ("disable", who, 403, "active"),
        ("disable", "admin", 200, "disabled"),
        ("resume", who, 409, "disabled"),
        ("pause", who, 409, "disabled"),
        ("resume", "admin", 200, "active"),
    ):
        answer = api.ask("POST", f"/endpoints/held/{action}", asker, json=WHY)
        assert answer.status_code == status, answer.text
        assert _state(api, "held") == state
    assert [(row[0], row[2]) for row in api.audited()[before:]] == [
        ("endpoint.paused", f"token {who}"),
        ("endpoint.active", f"token {who}"),
        ("endpoint.disabled", "token admin"),
        ("endpoint.active", "token admin"),
    ]
    assert api.ask("POST", "/endpoints/nobody/pause", who, json=WHY).status_code == 404


def test_stream_adopts_known_queries_or_forced_ones(api: Api) -> None:
    before, query_id = len(api.audited()), str(uuid4())
    path, asked = "/streams/test/adopt", {"query_id": query_id, "reason": "a new checkpoint"}
    refused = api.ask("POST", path, json=asked)
    assert (refused.status_code, "cannot be read" in refused.json()["detail"]) == (409, True)
    forced = api.ask("POST", path, json={**asked, "force": True})
    assert (forced.status_code, forced.json()["changed"]) == (200, True), forced.text
    again = api.ask("POST", path, json=asked)
    assert (again.status_code, again.json()["changed"]) == (200, False)
    old = api.ask(
        "POST", path, json={"query_id": forced.json()["previous_query_id"], "reason": "back"}
    )
    assert (old.status_code, old.json()["changed"]) == (200, True), "it has batches of that one"
    assert [row[:3] for row in api.audited()[before:]] == [
        ("stream.adopt", "test", "token admin")
    ] * 2
    assert api.ask("POST", "/streams/no%2Fsuch/adopt", json=asked).status_code == 404
    assert api.ask("POST", path, json={**asked, "query_id": "x"}).status_code == 422


def test_header_kinds_are_replaced_separately_and_literals_masked(api: Api) -> None:
    _added(api, "headed", headers={"authorization": NEXT}, headers_literal={"x-tenant": "eu"})
    more = {"headers_literal": {"x-tenant": "us", "x-region": "1"}, **WHY}
    changed = api.ask("PATCH", "/endpoints/headed", json=more)
    assert changed.json()["after"] == {"headers_literal": {"x-tenant": "***", "x-region": "***"}}
    [row] = api.rows("SELECT headers FROM holdfast.endpoint WHERE name = 'headed'")
    assert row["headers"] == {"authorization": NEXT, "x-tenant": "us", "x-region": "1"}
    shown = api.ask("GET", "/endpoints/headed", "viewer").json()
    assert shown["headers"] == {"authorization": NEXT}
    assert shown["headers_literal"] == {"x-tenant": "***", "x-region": "***"}
    api.ask("PATCH", "/endpoints/headed", json={"headers": {}, **WHY})
    [row] = api.rows("SELECT headers FROM holdfast.endpoint WHERE name = 'headed'")
    assert row["headers"] == {"x-tenant": "us", "x-region": "1"}


def test_forbidden_old_reference_is_shown_and_blocks_no_change(api: Api) -> None:
    _added(api, "old")
    api.rows(
        "UPDATE holdfast.endpoint SET secret_refs = '{env:PAYOUTS_SECRET}' WHERE name = 'old'"
        " RETURNING id"
    )
    fault = api.ask("GET", "/endpoints/old", "viewer").json()["fault"]
    assert "env:PAYOUTS_SECRET is not allowed" in fault
    changed = api.ask("PATCH", "/endpoints/old", json={"concurrency": 3, **WHY})
    assert changed.status_code == 200, changed.text
    moved = api.ask("POST", "/endpoints/old/rotate-secret", json={"to": NEXT, **WHY})
    assert moved.json()["secret_refs"] == ["env:PAYOUTS_SECRET", NEXT]
    api.ask("POST", "/endpoints/old/rotate-secret", json={"finish": True, **WHY})
    assert api.ask("GET", "/endpoints/old", "viewer").json()["fault"] is None

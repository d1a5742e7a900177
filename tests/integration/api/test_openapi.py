"""The API as a service: its schema, answers that follow it, metrics, and long reads."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from holdfast.dispatcher.api import long_reads
from holdfast.dispatcher.api.app import application
from holdfast.dispatcher.api.health import KEPT_SECONDS, Readiness
from holdfast.dispatcher.api.problems import KINDS
from holdfast.dispatcher.api.settings import ApiSettings
from holdfast.dispatcher.operators.common.pool import OperatorPool
from tests.support.command import holdfast
from tests.support.console.admin_api import DEAD, Api, key_text, serving, world
from tests.support.waiting import eventually
from tests.support.world import World

REVIEWED = Path(__file__).parents[2] / "contract" / "vectors" / "openapi.json"
PROBLEM = {"schema": {"$ref": "#/components/schemas/Problem"}}


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    """What the command prints; it needs no database."""
    return holdfast("api", "openapi", code=0).json


def _operations(described: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, item in described["paths"].items()
        for method, operation in item.items()
    }


def test_description_is_the_reviewed_one(described: dict[str, Any]) -> None:
    """After a change that is meant: holdfast api openapi > tests/contract/vectors/openapi.json."""
    reviewed = json.loads(REVIEWED.read_text())
    assert _operations(described).keys() == _operations(reviewed).keys()
    versions = {each["info"].pop("version") for each in (reviewed, dict(described))}
    assert described == reviewed, versions


def test_page_of_the_api_has_every_type_of_problem() -> None:
    page = (Path(__file__).parents[3] / "docs" / "operators" / "api.md").read_text()
    table = re.findall(r"^\| (\d{3}) \| `([a-z-]+)` \| (.*) \|$", page, re.MULTILINE)
    assert {int(status): (name, means) for status, name, means in table} == KINDS


def test_operation_says_what_it_does_who_may_and_how_it_fails(described: dict[str, Any]) -> None:
    problems = described["components"]["responses"]
    for name, operation in _operations(described).items():
        assert operation["summary"].endswith("."), name
        assert operation["description"], name
        assert operation["tags"], name
        assert operation["security"] == [{"HTTPBearer": []}], name
        for status in ("401", "403", "404", "409", "422", "429", "503"):
            reference = {"$ref": f"#/components/responses/Problem{status}"}
            assert operation["responses"][status] == reference, name
            assert problems[f"Problem{status}"]["content"] == {"application/problem+json": PROBLEM}


def test_every_model_has_a_description_and_a_unique_name(described: dict[str, Any]) -> None:
    for name, schema in described["components"]["schemas"].items():
        assert "__" not in name
        assert "description" in schema or "enum" in schema, name


def test_every_read_is_a_get_that_takes_nothing_but_an_address(described: dict[str, Any]) -> None:
    reads = {k: v for k, v in _operations(described).items() if k.startswith("GET ")}
    assert len(reads) >= 28
    for name, operation in reads.items():
        assert "requestBody" not in operation, name
        assert operation["responses"].keys() & {"200", "201"} == {"200"}, name


EXAMPLES = 6
"""Requests for each operation: such that fit its description, and such that do not."""

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]

NAMES = {"endpoints": "payouts", "streams": "test", "tokens": "viewer"}
THERE: dict[str, Any] = {"key": key_text("m_1"), "stream": "test", "batch_id": 1, "number": 1}
WANTED = {"stream": "test", "endpoint": "payouts", "name": DEAD, "subject": DEAD}
"""What the world has, by the names of the parameters of paths and queries."""

OF_THE_SERVER = {"connection", "content-length", "expect", "host", "transfer-encoding", "upgrade"}
"""Headers that the HTTP server judges, before a request is one of the API."""

schema = schemathesis.openapi.from_dict(application(ApiSettings("")).openapi())
OPERATIONS = {each.ok().label: each.ok() for each in schema.get_all_operations()}
Operation = type(next(iter(OPERATIONS.values())))

SEEN: Counter[int] = Counter()
"""How many answers had which status."""


@pytest.fixture(scope="module")
def api(server_dsn: str, template_database: str) -> Iterator[Api]:
    with world(server_dsn, template_database) as api:
        yield api


def _name_what_is_there(case: schemathesis.Case, api: Api) -> None:
    """Let a request that fits its description ask for what the world has."""
    if case.meta is None or case.meta.generation.mode is not GenerationMode.POSITIVE:
        return
    results = {**THERE, "name": NAMES.get(case.path.split("/")[3], "")}
    [row] = api.rows("SELECT id::text FROM holdfast.replay ORDER BY id LIMIT 1")
    results |= {"id": row["id"], "replay_id": row["id"]}
    for name in case.path_parameters.keys() & results.keys():
        if case.method != "PUT":
            case.path_parameters[name] = results[name]
    for name in (case.query or {}).keys() & WANTED.keys():
        case.query[name] = WANTED[name]


def _requests(operation: Operation) -> SearchStrategy[schemathesis.Case]:
    """Requests that fit the description, and such that do not, where there can be any."""
    fits = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
    if not (operation.path_parameters or operation.query or operation.body):
        return fits
    return fits | operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)


@pytest.mark.rest
@pytest.mark.filterwarnings(
    "ignore:Do not use the .random. module:hypothesis.errors.HypothesisDeprecationWarning"
)
@pytest.mark.parametrize("name", OPERATIONS)
def test_answer_is_as_the_description_says(name: str, api: Api) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=_requests(OPERATIONS[name]))
    def holds(case: schemathesis.Case) -> None:
        _name_what_is_there(case, api)
        for header in [each for each in case.headers or () if each.lower() in OF_THE_SERVER]:
            del case.headers[header]
        headers = {"Authorization": f"Bearer {api.secrets['admin']}"}
        answer = case.call(base_url=api.url, headers=headers, session=None)
        case.validate_response(answer, checks=CHECKS, headers=headers)
        assert answer.status_code != 503
        SEEN[answer.status_code] += 1

    holds()


@pytest.mark.rest
@pytest.mark.filterwarnings(
    "ignore:Do not use the .random. module:hypothesis.errors.HypothesisDeprecationWarning"
)
def test_world_was_met(api: Api) -> None:
    assert api.ask("GET", "/status").status_code == 200
    assert SEEN[200] > len(OPERATIONS)
    assert SEEN[422] > len(OPERATIONS)


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


LOOK = "/check?endpoint=payouts"


def test_one_check_runs_at_a_time(reading: Api) -> None:
    with ThreadPoolExecutor(1) as worker, psycopg.connect(reading.dsn) as holder:
        holder.execute("LOCK TABLE holdfast.lane IN ACCESS EXCLUSIVE MODE")
        first = worker.submit(reading.ask, "GET", LOOK, "viewer")
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        eventually(lambda: reading.rows(waiting)[0]["count"])
        for path in (LOOK, "/receipts?endpoint=payouts"):
            refused = reading.ask("GET", path, "viewer")
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "30")
            assert refused.headers["ratelimit"] == '"long-reads";r=0;t=30'
        holder.rollback()
        assert first.result().status_code == 200
    assert reading.ask("GET", LOOK, "viewer").status_code == 200


def test_look_that_takes_too_long_is_ended(reading: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_reads, "SECONDS_MAX", -1.0)
    for path in ("/check", "/receipts?endpoint=payouts"):
        ended = reading.ask("GET", path, "viewer")
        assert (ended.status_code, "retry-after" in ended.headers) == (503, True)
    monkeypatch.undo()
    assert reading.ask("GET", LOOK, "viewer").status_code == 200


def test_settings_of_a_check_do_not_leak_to_other_requests(reading: Api) -> None:
    assert reading.ask("GET", "/check", "viewer").status_code == 200
    for _ in range(3):
        answer = reading.ask("GET", "/quarantine/1?body=true", "operator")
        assert answer.status_code == 200, "the audit row must be written"


def test_wrong_schema_makes_it_unready_and_is_checked_each_second(world: World) -> None:
    now = [0.0]
    pool = OperatorPool(world.dsn, 1)
    pool.open()
    try:
        readiness = Readiness(pool, lambda: now[0])
        assert readiness.faults() == []
        world.db.execute("UPDATE holdfast.alembic_version SET version_num = '0001'")
        assert readiness.faults() == []
        now[0] += KEPT_SECONDS
        assert "revision 0001" in readiness.faults()[0]
    finally:
        pool.close()


def test_changed_table_is_read_again_at_once(dsn: str, db: psycopg.Connection) -> None:
    """A statement that a connection had prepared would be refused as long as that lives."""
    with serving(dsn, connections=1) as api:
        for _ in range(10):
            assert api.ask("GET", "/endpoints", "viewer").status_code == 200
        db.execute("ALTER TABLE holdfast.endpoint ALTER url TYPE varchar(4000)")
        for _ in range(2):
            assert api.ask("GET", "/endpoints", "viewer").status_code == 200

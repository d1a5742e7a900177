"""Requests made of the API's own description: no answer is outside of it, and none is a 500."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

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

from holdfast.dispatcher.api.app import application
from holdfast.dispatcher.api.settings import ApiSettings
from tests.support.console.admin_api import DEAD, Api, key_text, world

# The server is a thread of this process: when its pool opens a connection while a request is made
# up, Hypothesis takes the pool's draw from `random` for the strategy's.
pytestmark = [
    pytest.mark.rest,
    pytest.mark.filterwarnings(
        "ignore:Do not use the .random. module:hypothesis.errors.HypothesisDeprecationWarning"
    ),
]

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


def test_world_was_met(api: Api) -> None:
    assert api.ask("GET", "/status").status_code == 200
    assert SEEN[200] > len(OPERATIONS)
    assert SEEN[422] > len(OPERATIONS)

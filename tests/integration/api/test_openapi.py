"""The description of the API: it is as it was reviewed, and says what everything means."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.dispatcher.api.problems import KINDS
from tests.support.command import holdfast

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

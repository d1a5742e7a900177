"""A pin that OSV knows a vulnerability of is named; a service that does not answer is no pass."""

import json
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

import pytest

from holdfast.deploy.release import vulnerabilities

PINS = {("planted", "1.5"), ("other", "2.0")}


def _record(**more: object) -> dict[str, object]:
    affected = {"package": {"ecosystem": "PyPI", "name": "Planted"}, **more}
    return {"id": "GHSA-planted", "affected": [affected]}


def _events(*events: Mapping[str, str]) -> dict[str, object]:
    return _record(ranges=[{"type": "ECOSYSTEM", "events": list(events)}])


def _found(folder: Path, record: Mapping[str, object]) -> list[str]:
    (folder / "GHSA-planted.json").write_text(json.dumps(record))
    return vulnerabilities.look_up(folder, PINS).faults


@pytest.mark.parametrize(
    "record",
    [
        _record(versions=["1.5"]),
        _events({"introduced": "0"}),
        _events({"introduced": "1.5"}, {"fixed": "1.6"}),
        _events({"introduced": "0"}, {"fixed": "1.0"}, {"introduced": "1.2"}),
        _events({"introduced": "0"}, {"last_affected": "1.5"}),
    ],
)
def test_version_that_is_affected_is_named(record: dict[str, object], tmp_path: Path) -> None:
    assert _found(tmp_path, record) == ["planted 1.5: GHSA-planted"]


@pytest.mark.parametrize(
    "record",
    [
        _record(versions=["1.4"]),
        _events({"introduced": "0"}, {"fixed": "1.5"}),
        _events({"introduced": "1.10"}),
        _events({"introduced": "0"}, {"last_affected": "1.4"}),
        {**_record(versions=["1.5"]), "withdrawn": "2026-01-01T00:00:00Z"},
        {"id": "x", "affected": [{"package": {"ecosystem": "npm", "name": "planted"}}]},
    ],
)
def test_version_that_is_not_affected_passes(record: dict[str, object], tmp_path: Path) -> None:
    assert _found(tmp_path, record) == []


def test_database_may_be_a_zip(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("GHSA-planted.json", json.dumps(_record(versions=["1.5"])))
    assert len(vulnerabilities.look_up(tmp_path / "all.zip", PINS).faults) == 1


def test_database_without_a_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no record"):
        vulnerabilities.look_up(tmp_path, PINS)


def _pip_audit(folder: Path, answer: str, code: int) -> Path:
    """A program that answers as pip-audit does."""
    (folder / "answer.json").write_text(answer)
    program = folder / "pip-audit"
    program.write_text(f'#!/bin/sh\ncat "{folder}/answer.json"\nexit {code}\n')
    program.chmod(0o755)
    return program


def test_service_that_answers_for_no_package_is_no_pass(tmp_path: Path) -> None:
    skipped = [{"name": name, "skip_reason": "not found"} for name, _ in PINS]
    program = _pip_audit(tmp_path, json.dumps({"dependencies": skipped}), 0)
    report = vulnerabilities.ask(program, PINS)
    assert report.result == "degraded"
    assert "2 of 2 packages" in report.left_out[0]


def test_service_that_is_not_reached_is_no_pass(tmp_path: Path) -> None:
    report = vulnerabilities.ask(_pip_audit(tmp_path, "", 1), PINS)
    assert report.result == "degraded"
    assert "not reached" in report.left_out[0]


def test_vulnerability_of_the_service_is_named(tmp_path: Path) -> None:
    results = {"name": "planted", "version": "1.5", "vulns": [{"id": "PYSEC-1"}]}
    program = _pip_audit(tmp_path, json.dumps({"dependencies": [results]}), 1)
    assert vulnerabilities.ask(program, PINS).faults == ["planted 1.5: PYSEC-1"]

"""The registry of settings, what a check makes of it, and the watch of the schema."""

import re
from pathlib import Path
from threading import Event, Timer
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.dispatcher.api import serving
from holdfast.dispatcher.operators.config import settings as config
from holdfast.dispatcher.operators.config.rules import Database, References, judge
from holdfast.sink.contract.checks import Check, Level, exit_code
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.roles import ALL, JANITOR, OPERATOR
from holdfast.sink.contract.schema import SCHEMA_REVISION

ROOT = Path(__file__).parents[4]
PACKAGES = ("sink", "dispatcher", "migrations", "spark_app", "deploy")
REGISTRY = ROOT / "dispatcher/operators/config/settings.py"

SOUND = Database(
    "dbname=x",
    server="Postgres 18",
    user="app",
    revision=SCHEMA_REVISION,
    roles=dict.fromkeys(ALL, True),
)


def test_registry_has_exactly_the_variables_that_the_packages_name() -> None:
    sources = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    named = {
        name
        for path in sources
        if path != REGISTRY
        for name in re.findall(r"\bHOLDFAST_[A-Z0-9_]*[A-Z0-9]\b", path.read_text())
    }
    of_compose = {"HOLDFAST_VERSION"}  # no process reads it: it is in the names of the images
    assert named - of_compose == {setting.name for setting in config.SETTINGS}


def test_every_value_names_its_source_and_hides_secrets() -> None:
    inputs = {
        "HOLDFAST_DSN": "postgresql://u:hunter2@h/d",
        "HOLDFAST_SPARK_JAVA_OPTIONS": "-Dpassword=hunter2",
        "HOLDFAST_SPARK_LOG": "",
    }
    values = {each.setting.name: (each.shown, each.source) for each in config.values(inputs)}
    assert values == {
        "HOLDFAST_DSN": ("***", "environment"),
        "HOLDFAST_REISSUE_LIMIT": ("10", "default"),
        "HOLDFAST_UNDELIVERED_MINUTES": ("15", "default"),
        "HOLDFAST_ALLOW_SECRET_ENV_PREFIX": ("HOLDFAST_SECRET_", "default"),
        "HOLDFAST_ALLOW_SECRET_DIR": ("/run/secrets/holdfast", "default"),
        "HOLDFAST_SPARK_LOG": (None, "default"),
        "HOLDFAST_SPARK_JAVA_OPTIONS": ("***", "environment"),
        "HOLDFAST_KAFKA_JARS": (None, "default"),
        "HOLDFAST_DOCS_URL": (None, "default"),
        "HOLDFAST_FAILPOINTS": (None, "default"),
    }


def test_unread_variable_is_reported_with_the_nearest_name() -> None:
    ours = ["HOLDFAST_DSN", "HOLDFAST_SECRET_NEXT", "HOLDFAST_TOKEN", "PATH"]
    environment = ["HOLDFAST_DNS", "HOLDFAST_QQ", *ours]
    assert config.unknown(environment, {"HOLDFAST_TOKEN"}) == {
        "HOLDFAST_DNS": "HOLDFAST_DSN",
        "HOLDFAST_QQ": None,
    }


def test_a_value_that_a_command_would_refuse_is_named() -> None:
    assert config.unfit({"HOLDFAST_REISSUE_LIMIT": "1000", "HOLDFAST_DSN": "x"}) == []
    rules = ("HOLDFAST_ALLOW_SECRET_ENV_PREFIX", "HOLDFAST_ALLOW_SECRET_DIR")
    assert config.unfit(dict.fromkeys(rules, "HOLDFAST_")) == [*rules]
    assert config.unfit(dict(zip(rules, ("ABC_:DEF_", "/a:/b"), strict=True))) == []
    assert config.unfit({"HOLDFAST_REISSUE_LIMIT": "1001"}) == ["HOLDFAST_REISSUE_LIMIT"]
    assert config.unfit({"HOLDFAST_FAILPOINTS": "S8=kill"}) == ["HOLDFAST_FAILPOINTS"]


def checks(
    database: Database = SOUND, *references: References, engine: str | None = "httpx 1"
) -> list[Check]:
    return judge({}, [], (engine, None if engine else "no package"), database, references)


def test_a_sound_configuration_ends_with_0() -> None:
    result = checks(SOUND, References("payouts", None, ()))
    assert {check.level for check in result} == {Level.OK}
    assert [check.advice for check in result if check.advice] == []
    assert exit_code(result) is ExitCode.OK


def changed(**facts: object) -> Database:
    return Database(**{name: getattr(SOUND, name) for name in SOUND.__slots__} | facts)


@pytest.mark.parametrize(
    ("value", "name", "level"),
    [
        (judge({"HOLDFAST_X": None}, [], ("x", None), SOUND, []), "variables", Level.WARN),
        (judge({}, ["HOLDFAST_X"], ("x", None), SOUND, []), "values", Level.WARN),
        (checks(engine=None), "engine", Level.WARN),
        (checks(Database(None, "no database is named")), "database", Level.FAIL),
        (checks(changed(revision="0001")), "schema", Level.FAIL),
        (checks(changed(revision=None)), "schema", Level.FAIL),
        (checks(changed(revision="9999")), "schema", Level.FAIL),
        (checks(changed(roles={})), "roles", Level.FAIL),
        (checks(changed(roles={**dict.fromkeys(ALL, True), JANITOR: False})), "roles", Level.WARN),
        (checks(changed(roles={**dict.fromkeys(ALL, True), OPERATOR: False})), "roles", Level.FAIL),
        (checks(changed(clock_difference_seconds=-6)), "clock", Level.WARN),
        (checks(changed(clock_difference_seconds=61)), "clock", Level.FAIL),
        (checks(SOUND, References("a", "env:S is empty", ())), "secrets of a", Level.WARN),
        (checks(SOUND, References("a", None, ("file:/s",))), "secrets of a", Level.WARN),
    ],
)
def test_fault_is_a_named_check_with_advice(value: list[Check], name: str, level: Level) -> None:
    [fault] = [check for check in value if check.level is not Level.OK]
    assert (fault.name, fault.level) == (name, level)
    assert fault.advice
    code = ExitCode.FAILED if level is Level.FAIL else ExitCode.DEGRADED
    assert exit_code(value) is code


class Silent:
    """A pool whose database answers when it is told to."""

    def __init__(self) -> None:
        self.asked, self.answers = Event(), Event()

    def misfit(self) -> None:
        self.asked.set()
        self.answers.wait()


def test_server_ends_while_its_watch_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "WATCH_SECONDS", 0.01)
    pool = Silent()
    app = SimpleNamespace(state=SimpleNamespace(pool=pool))
    running: Any = SimpleNamespace(config=SimpleNamespace(app=app), should_exit=False)
    answering = Timer(30, pool.answers.set)
    answering.start()
    try:
        with serving._watched(running) as found:
            assert pool.asked.wait(60)
        assert not pool.answers.is_set()
        assert found == []
    finally:
        answering.cancel()
        pool.answers.set()

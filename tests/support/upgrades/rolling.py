"""An upgrade without a stop, step by step: expand, roll, the way back, roll again, contract."""

import re

from tests.support.upgrades.builds import Build
from tests.support.upgrades.revisions import Pair
from tests.support.upgrades.stage import Stage

JOBS = ("sink a", "sink b")
DISPATCHERS = ("dispatcher 1", "dispatcher 2")
API, OTHER_API = "api 1", "api 2"
"""One replaces the other."""


def steps(text: str) -> list[str]:
    """Return the lines of a transcript that say what was done, without numbers of revisions."""
    texts = [line for line in text.splitlines() if line and not line.startswith("  ")]
    return [re.sub(r"\b00\d\d\b", "N", line) for line in texts]


def roll(stage: Stage, old: Build, new: Build, pair: Pair) -> None:
    """Upgrade what `old` runs to `new`, go back, upgrade again, and contract."""
    _begin(stage, old)
    before = stage.revision()
    _expand(stage, new, pair)
    _dispatchers(stage, new)
    stage.title("Roll the API server: start the other one beside it, then end it")
    stage.start(OTHER_API, new)
    stage.goes_on()
    stage.stop(API)
    stage.replay(old, "m_a_0")
    stage.replay(new, "m_b_0")
    _jobs(stage, new)
    _back(stage, old, new, before)
    _again(stage, new, pair)
    _contract(stage, old, new, pair)


def _begin(stage: Stage, old: Build) -> None:
    stage.title("The previous version runs")
    stage.begin(old)
    for place in (*JOBS, *DISPATCHERS, API):
        stage.start(place, old)
    stage.goes_on()


def _expand(stage: Stage, new: Build, pair: Pair) -> None:
    stage.title("Expand the database; everything that runs goes on")
    refused = stage.command(new, "status", code=1)
    assert "holdfast db upgrade" in refused
    stage.command(new, "db", "upgrade", "--plan", "--expand")
    refused = stage.command(new, "db", "upgrade", code=1)
    for kind in ("sink a", "sink b", "dispatcher", "api"):
        assert kind in refused
    stage.command(new, "db", "upgrade", "--expand")
    assert stage.revision() == pair.expand
    stage.goes_on()


def _dispatchers(stage: Stage, build: Build) -> None:
    stage.title("Roll the dispatchers, one after the other")
    for place in DISPATCHERS:
        stage.replace(place, build)
        stage.goes_on()


def _jobs(stage: Stage, build: Build) -> None:
    stage.title("Roll the jobs, one after the other")
    for place in JOBS:
        stage.replace(place, build)
        stage.goes_on()


BACK = ("--reason", "back to the version before", "--yes")


def _back(stage: Stage, old: Build, new: Build, before: str) -> None:
    stage.title("The way back, until the contract: first the processes, then the database")
    refused = stage.command(new, "db", "downgrade", before, *BACK, code=1)
    for kind in ("sink a", "sink b", "dispatcher", "api"):
        assert kind in refused
    for place in (*JOBS, OTHER_API, *DISPATCHERS):
        stage.replace(place, old)
    stage.goes_on()
    stage.command(new, "db", "downgrade", before, *BACK)
    assert stage.revision() == before
    stage.goes_on()


def _again(stage: Stage, new: Build, pair: Pair) -> None:
    stage.title("Forward again: expand, dispatchers, API server")
    stage.command(new, "db", "upgrade", "--expand")
    for place in (*DISPATCHERS, OTHER_API):
        stage.replace(place, new)
    stage.goes_on()
    refused = stage.command(new, "db", "upgrade", code=1)
    assert "sink b" in refused
    assert "dispatcher" not in refused
    assert stage.revision() == pair.expand
    _jobs(stage, new)


def _contract(stage: Stage, old: Build, new: Build, pair: Pair) -> None:
    stage.title("Contract the database")
    stage.command(new, "db", "upgrade")
    assert stage.revision() == pair.contract
    stage.goes_on()
    refused = stage.command(old, "status", code=1)
    assert "upgrade this process" in refused

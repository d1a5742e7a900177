"""Two versions of Holdfast at once on one database, under load: forward, back, forward, contract.

Real: the code of an older commit and of this tree (or of a next release of it, with an expand and a
contract revision of its own), sinks, dispatchers, API servers, replays by the commands of both, the
payouts service and the database. Asserted, from the service's tables: nothing is lost, repeated,
altered or out of order. Nobody is refused who is served, and whoever is not served says so.

HOLDFAST_TEST_UPGRADE_BATCHES batches are written by every sink in every stage.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast.sink.contract.schema import SCHEMA_REVISION
from tests.support.dispatch.dispatching import SECRET
from tests.support.dispatch.payouts import payouts
from tests.support.dispatch.sender import secret_text
from tests.support.documents.pages import blocks_of
from tests.support.upgrades import builds
from tests.support.upgrades.builds import Build, Load, NotHere
from tests.support.upgrades.stage import Stage, roll, steps

pytestmark = [pytest.mark.rest, pytest.mark.faults, pytest.mark.timeout(1800)]

LOAD = Load(int(os.environ.get("HOLDFAST_TEST_UPGRADE_BATCHES", "5")))

EXACT = "61b94d3"
"""The last version that demands exactly its own revision, 0031."""

PREVIOUS = os.environ.get("HOLDFAST_TEST_PREVIOUS", builds.PREVIOUS)


@pytest.fixture
def stage(
    make_database: Callable[[str | None], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stage]:
    monkeypatch.setenv(SECRET, secret_text())
    dsn = make_database(None)
    with psycopg.connect(dsn, autocommit=True) as db, payouts(make_database(None)) as service:
        stage = Stage(dsn, db, tmp_path, service, LOAD)
        try:
            yield stage
        finally:
            stage.close()


def _older(commit: str, folder: Path) -> Build:
    try:
        return builds.build_of(commit, folder)
    except NotHere as why:
        pytest.skip(str(why))


OLD_PLACES = ("sink a", "dispatcher 1", "api 1")
NEW_PLACES = ("sink b", "dispatcher 2", "api 2")


@pytest.mark.long
def test_strict_older_version_and_this_one_share_its_database(stage: Stage, tmp_path: Path) -> None:
    old, this = _older(EXACT, tmp_path / "exact"), builds.this_build()
    stage.begin(old)
    for old_place in OLD_PLACES:
        stage.start(old_place, old)
    for old_place in NEW_PLACES:
        stage.start(old_place, this)
    stage.goes_on()
    stage.replay(old, "m_b_1")
    stage.replay(this, "m_a_1")
    for old_place in NEW_PLACES:
        stage.replace(old_place, old)
    stage.goes_on()
    for old_place in NEW_PLACES:
        stage.stop(old_place)
    for old_place in OLD_PLACES:
        stage.replace(old_place, this)
    stage.goes_on()
    assert stage.revision() == "0031"

    upgraded = this.json(stage.dsn, "db", "upgrade")
    assert upgraded == {"before": "0031", "after": SCHEMA_REVISION, "changed": True}
    stage.goes_on()
    assert "0031" in stage.command(old, "status", code=1)
    _prove(stage)


def test_versions_share_an_expanded_database_until_contracted(stage: Stage, tmp_path: Path) -> None:
    old = _older(PREVIOUS, tmp_path / "previous")
    new, pair = builds.next_build(tmp_path / "next")
    lines: list[str] = []
    stage.say = lines.append
    roll(stage, old, new, pair)
    _prove(stage)
    (transcript,) = blocks_of("docs/operators/upgrading.md", "")
    done, shown = steps("\n".join(lines)), steps(transcript)
    assert shown[shown.index(done[0]) :][: len(done)] == done, "run make upgrade-transcript again"


@pytest.mark.long
def test_forced_contract_ends_unsupported_processes_without_loss(
    stage: Stage, tmp_path: Path
) -> None:
    this = builds.this_build()
    new, pair = builds.next_build(tmp_path / "next")
    stage.begin(this)
    for place in OLD_PLACES:
        stage.start(place, this)
    stage.goes_on()
    assert new.json(stage.dsn, "db", "upgrade", "--force")["after"] == pair.contract
    assert "writer" in stage.fails("sink a")
    for place in ("dispatcher 1", "api 1"):
        assert "upgrade this process" in stage.fails(place)
    for place in OLD_PLACES:
        stage.start(place, new)
    stage.goes_on()
    _prove(stage)


def _prove(stage: Stage) -> None:
    proof = stage.end()
    assert proof.holds, proof

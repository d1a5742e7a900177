"""Checkpoints and savepoints that released versions made are continued by this one."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.migrations.upgrade import downgrade, upgrade
from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.exposure.policy import Policy
from tests.support.golden.folders import expected, load, unpack
from tests.support.golden.savepoint import unpack_savepoint, write_manifest
from tests.support.golden.version import THEN
from tests.support.job.job_stream import SETTINGS, Rows, outcome, published
from tests.support.job.jobs import Play

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.rest

FOLDER = Path(__file__).with_name("golden")
CHECKPOINTS = sorted(FOLDER.glob("checkpoint-*.tar.xz"))
SAVEPOINTS = sorted(FOLDER.glob("savepoint-*.tar.xz"))

Restore = Callable[[str], str]


@dataclass(frozen=True)
class Golden:
    """What another version left, in a folder and a database that has been upgraded since."""

    play: Play
    folder: Path

    def everything(self) -> tuple[dict[str, bytes], dict[str, Rows]]:
        """Every file, and every row of the stream."""
        files = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path): path.read_bytes() for path in files}, outcome(self.play.dsn)

    def refuses(self, pattern: str, **changed: Any) -> None:
        """Check that a start says so in one sentence, and changes nothing."""
        before = self.everything()
        with pytest.raises(CommandError, match=pattern) as raised:
            self.play.command(**changed)
        assert "\n" not in str(raised.value)
        assert "Nothing was" in str(raised.value)
        assert self.everything() == before


@pytest.fixture
def restore(
    make_database: Callable[[str | None], str], template_database: str, tmp_path: Path
) -> Restore:
    """Load rows into a database of their version, and upgrade it; returns its DSN."""

    def restored(name: str) -> str:
        dumped = json.loads((tmp_path / name).read_text())
        dsn = make_database(template_database)
        downgrade(dsn, dumped["revision"])
        load(dsn, dumped)
        upgrade(dsn)
        return dsn

    return restored


def _play(spark: "SparkSession", dsn: str, folder: Path) -> Play:
    options = {"settings": SETTINGS, "key_groups": 8, "policy": Policy.parse(THEN)}
    return Play(spark, dsn, folder, options)


@pytest.fixture(params=CHECKPOINTS, ids=lambda archive: archive.name)
def checkpoint(
    request: pytest.FixtureRequest, spark: "SparkSession", restore: Restore, tmp_path: Path
) -> Golden:
    unpack(request.param, tmp_path)
    return Golden(_play(spark, restore("killed.json"), tmp_path), tmp_path / "checkpoint")


@pytest.fixture(params=SAVEPOINTS, ids=lambda archive: archive.name)
def savepoint(
    request: pytest.FixtureRequest, spark: "SparkSession", restore: Restore, tmp_path: Path
) -> Golden:
    unpack_savepoint(request.param, tmp_path)
    for path in sorted((tmp_path / "later").iterdir()):
        path.rename(tmp_path / "events" / path.name)
    play = _play(spark, restore("saved.json"), tmp_path)
    play.options = {**play.options, "savepoint": str(tmp_path / "savepoint"), "key_groups": 5}
    return Golden(play, tmp_path)


def test_checkpoint_continues_without_lost_or_repeated_decisions(
    checkpoint: Golden, restore: Restore
) -> None:
    from holdfast.spark_app.checkpoint import shape

    play = checkpoint.play
    before, peace = outcome(play.dsn), outcome(restore("peace.json"))
    assert 0 < len(before["entry"]) < len(peace["entry"])
    play.command()
    assert outcome(play.dsn) == peace
    assert published(play.dsn) == expected(play.folder / "policy.toml")
    kept = json.loads((checkpoint.folder / shape.FILE).read_text())
    assert kept["version"] == shape.WITHOUT_TOPICS


@pytest.mark.parametrize(
    ("name", "field", "message"),
    [
        ("holdfast.json", "version", "written by a newer Holdfast"),
        ("holdfast-policy.json", "version", "written by a newer Holdfast"),
        ("holdfast.json", "layout", "layout of the state was 99, is"),
    ],
)
def test_checkpoint_of_a_newer_version_is_refused_unchanged(
    checkpoint: Golden, name: str, field: str, message: str
) -> None:
    path = checkpoint.folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: 99}))
    path.with_name(f".{name}.crc").unlink(missing_ok=True)
    checkpoint.refuses(message)


def test_savepoint_continues_without_lost_or_repeated_decisions(savepoint: Golden) -> None:
    play = savepoint.play
    play.command()
    assert published(play.dsn) == expected(play.folder / "policy.toml")


@pytest.mark.parametrize(
    ("field", "message"),
    [("version", "has version 99, and this Holdfast reads up to"), ("codec", "has version 99")],
)
def test_savepoint_of_a_newer_version_is_refused_unchanged(
    savepoint: Golden, field: str, message: str
) -> None:
    folder = savepoint.folder / "savepoint"
    manifest = json.loads((folder / "manifest.json").read_text())
    write_manifest(folder, manifest | {field: 99})
    savepoint.refuses(message)

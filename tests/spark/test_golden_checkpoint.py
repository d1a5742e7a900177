"""A checkpoint that a released version made goes on under this one."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from migrations.upgrade import downgrade, upgrade
from sink.contract.exits import CommandError
from spark_app.exposure.policy import Policy
from tests.support.golden.folders import unpack
from tests.support.golden.rows import load
from tests.support.golden.version import FILES, FIRST_FILES, SEED, THEN
from tests.support.job.job_outcome import Rows, outcome, published, required
from tests.support.job.job_stream import SETTINGS, stream
from tests.support.job.jobs import Play

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ARCHIVES = sorted(Path(__file__).with_name("golden").glob("checkpoint-*.tar.xz"))


@dataclass(frozen=True)
class Golden:
    """A checkpoint of another version with its database, and the database after a run in peace."""

    play: Play
    peace: str

    @property
    def checkpoint(self) -> Path:
        return self.play.folder / "checkpoint"

    def everything(self) -> tuple[dict[str, bytes], dict[str, Rows]]:
        """Every file of the checkpoint, and every row of its stream."""
        files = (path for path in self.checkpoint.rglob("*") if path.is_file())
        found = {str(path.relative_to(self.checkpoint)): path.read_bytes() for path in files}
        return found, outcome(self.play.dsn)

    def required(self) -> tuple[Rows, Rows, Counter[tuple[object, ...]]]:
        """What the rules ask for, to be compared with `published`."""
        made = stream(SEED, FILES)
        batches = made.expected(self.play.folder / "policy.toml", THEN, FIRST_FILES)
        changed_at = [*made.watermarks()][FIRST_FILES]
        assert changed_at
        for batch in batches:
            for rows in (batch.windows, batch.decisions):
                for place, row in enumerate(rows):
                    if row.window_end <= changed_at:
                        rows[place] = row._replace(policy_version="2026-11-01")
        return required(batches)


@pytest.fixture(params=ARCHIVES, ids=lambda archive: archive.name)
def golden(
    request: pytest.FixtureRequest,
    spark: "SparkSession",
    make_database: Callable[[str | None], str],
    template_database: str,
    tmp_path: Path,
) -> Golden:
    """Upgrade the databases, as a new version's installation begins."""
    unpack(request.param, tmp_path)
    databases = {}
    for name in ("killed", "peace"):
        dsn = databases[name] = make_database(template_database)
        dumped = json.loads((tmp_path / f"{name}.json").read_text())
        downgrade(dsn, dumped["revision"])
        load(dsn, dumped)
        upgrade(dsn)
    options = {"settings": SETTINGS, "key_groups": 8, "policy": Policy.parse(THEN)}
    return Golden(Play(spark, databases["killed"], tmp_path, options), databases["peace"])


def test_it_goes_on_without_a_lost_or_repeated_decision(golden: Golden) -> None:
    from spark_app.checkpoint import shape

    before, expected = outcome(golden.play.dsn), outcome(golden.peace)
    assert 0 < len(before["entry"]) < len(expected["entry"])
    golden.play.command()
    assert outcome(golden.play.dsn) == expected
    decisions, windows, late = published(golden.play.dsn)
    assert (decisions, windows, late) == golden.required()
    kept = json.loads((golden.checkpoint / shape.FILE).read_text())
    assert kept["version"] == shape.VERSION


@pytest.mark.parametrize("name", ["holdfast.json", "holdfast-policy.json", "layout"])
def test_one_of_a_newer_version_is_refused_and_stays_as_it_was(golden: Golden, name: str) -> None:
    path = golden.checkpoint / (name if name.endswith(".json") else "holdfast.json")
    field = "version" if name.endswith(".json") else "layout"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: 99}))
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    before = golden.everything()
    with pytest.raises(
        CommandError, match=r"newer Holdfast|layout of the state was 99, is"
    ) as raised:
        golden.play.command()
    assert "Nothing was read or written" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert golden.everything() == before

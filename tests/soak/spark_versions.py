"""A job moves between versions of Spark, by its savepoint and in place.

Real: the commands, Spark of each version with its JVM, Postgres. One version reads the first files
of a stream and the other the rest. Compared: every decision, window and late event with the rules
as a naive reference reads them. `make test-spark-versions` installs the versions and runs it; not
part of `make test`, because it takes long.
"""

import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.support.golden.folders import expected
from tests.support.golden.version import FILES, FIRST, FIRST_FILES, THEN, Version
from tests.support.job.job_stream import published

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

CODE = Path(__file__).parents[2]
OURS = version("pyspark")
OTHERS = os.environ.get("HOLDFAST_TEST_SPARK_VERSIONS", "").split()
REST = range(FIRST_FILES, FILES)


def _of(spark: str, folder: Path, dsn: str) -> Version:
    installed = None if spark == OURS else CODE / ".holdfast" / f"spark-{spark}"
    return Version(CODE, folder, dsn, installed)


def _saved(spark: str, folder: Path, dsn: str) -> None:
    first = _of(spark, folder, dsn)
    first.begin()
    assert first.read(FIRST, range(FIRST_FILES)) == 0
    assert first.save() == 0


@pytest.mark.parametrize("spark", OTHERS)
def test_a_job_moves_to_this_version(
    spark: str, make_database: Callable[[str | None], str], tmp_path: Path
) -> None:
    dsn = make_database(None)
    _saved(spark, tmp_path, dsn)
    copy = make_database(str(conninfo_to_dict(dsn)["dbname"]))

    assert _of(OURS, tmp_path, dsn).read(THEN, REST) == 0
    assert published(dsn) == expected(tmp_path / "policy.toml")

    savepoint = ("--from-savepoint", str(tmp_path / "savepoint"), "--key-groups", "5")
    ours = _of(OURS, tmp_path, copy)
    assert ours.read(THEN, range(0), *savepoint, checkpoint="rescaled") == 0
    assert published(copy) == expected(tmp_path / "policy.toml")


@pytest.mark.parametrize("spark", OTHERS)
def test_a_job_moves_to_another_version(
    spark: str, make_database: Callable[[str | None], str], tmp_path: Path
) -> None:
    dsn = make_database(None)
    _saved(OURS, tmp_path, dsn)
    savepoint = ("--from-savepoint", str(tmp_path / "savepoint"), "--key-groups", "5")
    assert _of(spark, tmp_path, dsn).read(THEN, REST, *savepoint, checkpoint="rescaled") == 0
    assert published(dsn) == expected(tmp_path / "policy.toml")

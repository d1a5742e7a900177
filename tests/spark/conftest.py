"""One Spark session for all tests of this folder: starting a JVM is what costs."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.deploy.local.java import spark_environment
from holdfast.sink.contract.checkpoint import manager_jar
from tests.support.job.jobs import Play
from tests.support.kafka.fixtures import JARS
from tests.support.servers.databases import copy_of
from tests.support.servers.gcs import FOLDER as GCS_JARS
from tests.support.servers.s3 import FOLDER as S3_JARS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def bare_machine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Mapping[str, str]]:
    """An empty cache folder, and the environment for Spark where nobody installed a Java."""
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("JAVA_HOME", raising=False)
        environment.setenv("PATH", str(cache))
        environment.setenv("XDG_CACHE_HOME", str(cache))
        return cache, spark_environment()


def _jars() -> str:
    """Of Kafka, of object stores, and the job's own: Spark reads jars only when its JVM starts."""
    jars = [*sorted((JARS / "connector").glob("*.jar")), manager_jar()]
    jars += sorted([*S3_JARS.absolute().glob("*.jar"), *GCS_JARS.absolute().glob("*.jar")])
    return ",".join(str(jar) for jar in jars if jar.exists())


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory, bare_machine: tuple[Path, Mapping[str, str]]
) -> "Iterator[SparkSession]":
    """A classic local session on two cores, in UTC, whose streams notice new data at once.

    On the Java of the wheel; jobs in processes of their own take the one of the machine.
    """
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as environment:
        for name, value in bare_machine[1].items():
            environment.setenv(name, value)
        folder = tmp_path_factory.mktemp("spark")
        builder = SparkSession.builder.master("local[2]").appName("holdfast tests")
        session = builder.config(
            map={
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                # As the job's own JVM: short queries gain nothing from the second compiler.
                "spark.driver.extraJavaOptions": os.environ["HOLDFAST_SPARK_JAVA_OPTIONS"],
                "spark.log.level": "OFF",
                "spark.sql.session.timeZone": "UTC",
                "spark.sql.shuffle.partitions": 2,
                "spark.sql.streaming.pollingDelay": "5ms",
                "spark.sql.warehouse.dir": str(folder / "warehouse"),
                "spark.jars": _jars(),
                "spark.ui.enabled": False,
                "spark.ui.showConsoleProgress": False,
            }
        ).getOrCreate()
        yield session
        session.stop()


@pytest.fixture
def play(spark: "SparkSession", dsn: str, tmp_path: Path) -> Play:
    """A new stream on the test's database."""
    return Play(spark, dsn, tmp_path)


@pytest.fixture(scope="module")
def shared_play(
    spark: "SparkSession",
    server_dsn: str,
    template_database: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Play]:
    """A new stream on a database of its own, for the tests of one module."""
    with copy_of(server_dsn, template_database) as dsn:
        yield Play(spark, dsn, tmp_path_factory.mktemp("shared"))

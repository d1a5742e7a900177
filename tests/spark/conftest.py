"""One Spark session for all tests of this folder: starting a JVM is what costs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from deploy.local.java import spark_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """A classic local session on two cores, in UTC, whose streams notice new data at once."""
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as environment:
        for name, value in spark_environment().items():
            environment.setenv(name, value)
        folder = tmp_path_factory.mktemp("spark")
        builder = SparkSession.builder.master("local[2]").appName("holdfast tests")
        session = builder.config(
            map={
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                # As the job's own JVM: short queries gain nothing from the second compiler.
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
                "spark.log.level": "OFF",
                "spark.sql.session.timeZone": "UTC",
                "spark.sql.shuffle.partitions": 2,
                "spark.sql.streaming.pollingDelay": "5ms",
                "spark.sql.warehouse.dir": str(folder / "warehouse"),
                "spark.ui.enabled": False,
                "spark.ui.showConsoleProgress": False,
            }
        ).getOrCreate()
        yield session
        session.stop()

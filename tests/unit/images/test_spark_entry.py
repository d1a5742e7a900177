"""The entry point of the image `job`; tests/spark/job/test_job_image.py starts the real Spark."""

import os
import subprocess
import sys

import pytest

from holdfast.deploy.images.spark import BACKEND, command

EXECUTOR = {
    "JAVA_HOME": "/opt/java/home",
    "SPARK_HOME": "/opt/spark-home",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "2g",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.1",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "payouts-exec-1",
}


def test_other_words_are_a_command_of_holdfast() -> None:
    assert command(["job", "run", "--stream", "payouts"], {})[:3] == ["holdfast", "job", "run"]
    assert command([], {}) == ["holdfast"]


def test_driver_is_a_submission_in_client_mode() -> None:
    variables = {"SPARK_HOME": "/opt/spark-home", "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.1"}
    words = command(["driver", "--properties-file", "p", "local:///app.py", "run"], variables)
    assert words[0] == "/opt/spark-home/bin/spark-submit"
    assert "spark.driver.bindAddress=10.0.0.1" in words
    assert words[-4:] == ["--properties-file", "p", "local:///app.py", "run"]
    assert words[words.index("--deploy-mode") + 1] == "client"


def test_options_of_java_keep_their_order_and_memory_is_both_limits() -> None:
    options = {f"SPARK_JAVA_OPT_{number}": f"-Doption={number}" for number in (10, 9, 0)}
    words = command(["executor"], EXECUTOR | options)
    assert words[1:6] == ["-Doption=0", "-Doption=9", "-Doption=10", "-Xms2g", "-Xmx2g"]
    assert words[words.index(BACKEND) + 1 :][:2] == ["--driver-url", EXECUTOR["SPARK_DRIVER_URL"]]


def test_configuration_of_spark_comes_before_its_jars() -> None:
    environment = EXECUTOR | {
        "SPARK_CONF_DIR": "/opt/spark/conf",
        "SPARK_EXTRA_CLASSPATH": "/extra/*",
    }
    words = command(["executor"], environment)
    path = words[words.index("-cp") + 1]
    assert path == "/opt/spark/conf:/extra/*:/opt/spark-home/jars/*"


@pytest.mark.parametrize("missing", ["SPARK_DRIVER_URL", "SPARK_EXECUTOR_POD_NAME"])
def test_missing_variable_is_named(missing: str) -> None:
    variables = {name: value for name, value in EXECUTOR.items() if name != missing}
    done = subprocess.run(
        (sys.executable, "-m", "holdfast.deploy.images.spark", "executor"),
        env={"PATH": os.environ["PATH"]} | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert missing in done.stderr

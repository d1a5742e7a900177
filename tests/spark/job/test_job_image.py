"""The entry point of the image `job` starts what Spark's own image starts, with the real Spark."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from holdfast.deploy.local.java import spark_environment
from tests.unit.images.test_images import EXECUTOR

pytestmark = pytest.mark.rest

ROOT = Path(__file__).parents[3]


def _started(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.submodule_search_locations
    home = spec.submodule_search_locations[0]
    return subprocess.run(
        (sys.executable, "-m", "holdfast.deploy.images.spark", *words),
        cwd=ROOT,
        env=dict(os.environ) | variables | spark_environment() | {"SPARK_HOME": home},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_driver_runs_the_job_by_spark_submit() -> None:
    program = f"local://{ROOT}/spark_app/__main__.py"
    message = ("--master", "local[1]", "--class", "org.apache.spark.deploy.PythonRunner", program)
    done = _started("driver", *message, "run", "--help", SPARK_DRIVER_BIND_ADDRESS="127.0.0.1")
    assert done.returncode == 0, done.stderr
    assert "--checkpoint" in done.stdout


def test_executor_takes_the_options_and_asks_for_its_driver() -> None:
    """Nobody listens there, and that is what it says; an unknown option would be a usage text."""
    nobody = {
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@127.0.0.1:9",
        "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
        "SPARK_EXECUTOR_MEMORY": "256m",
    }
    done = _started("executor", **(EXECUTOR | nobody))
    assert done.returncode != 0
    assert "127.0.0.1:9" in done.stderr
    assert "Unrecognized options" not in done.stdout + done.stderr

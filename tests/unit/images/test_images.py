"""What images contain: their health check, pinned requirements and Spark's entry point."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from holdfast.deploy.images.health import fault
from holdfast.deploy.images.spark import BACKEND, command
from tests.support.servers.threads import in_threads


@contextmanager
def _answering(status: int, body: bytes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    with in_threads(server):
        yield f"http://127.0.0.1:{server.server_port}/healthz"


def _asked(url: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "holdfast.deploy.images.health", url)
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_health_check_passes_if_the_answer_is_200() -> None:
    with _answering(200, b"{}") as url:
        assert _asked(url).returncode == 0


def test_health_check_fails_with_the_reason_of_the_answer() -> None:
    with _answering(503, b'{"faults": ["the database has not answered yet"]}') as url:
        done = _asked(url)
    assert done.returncode == 1
    assert "503" in done.stderr
    assert "the database has not answered yet" in done.stderr


def test_health_check_fails_without_listener_or_with_bad_address() -> None:
    assert "refused" in str(fault("http://127.0.0.1:9/healthz"))
    assert fault("no address") is not None


def test_health_check_goes_through_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with _answering(200, b"{}") as url:
        assert fault(url) is None


REQUIREMENTS = Path(__file__).parents[3] / "requirements"

DOCKERFILE = REQUIREMENTS.parent / "deploy" / "images" / "Dockerfile"

_PIN = re.compile(r"^([\w.-]+==\S+(?: ;[^\\\n]*)?)", re.MULTILINE)


def _pins(name: str) -> set[str]:
    # A marker may be weaker where fewer packages ask for one: names and versions are compared.
    text = (REQUIREMENTS / name).read_text()
    return {pin.partition(" ;")[0].strip() for pin in _PIN.findall(text)}


@pytest.mark.parametrize("name", ["build", "migrate", "dispatcher", "api", "job", "cluster"])
def test_versions_of_an_image_are_those_of_the_tests(name: str) -> None:
    pins = _pins(f"{name}.txt")
    assert pins
    assert pins <= _pins("dev.txt")


def test_every_install_of_the_dockerfile_has_hashes_or_is_the_wheel() -> None:
    installs = re.findall(r"pip .*?install (.*)", DOCKERFILE.read_text())
    assert len(installs) == 9
    wheel = re.compile(r"--no-deps /build/wheels/holdfast-\*\.whl")
    assert [
        each
        for each in installs
        if not each.startswith("--require-hashes") and wheel.match(each) is None
    ] == []


def test_builder_sees_only_the_packages() -> None:
    lines = (DOCKERFILE.parents[2] / ".dockerignore").read_text().splitlines()
    assert lines[1] == "*"
    assert {line[1:] for line in lines if line.startswith("!")} == {
        *("LICENSE", "README.md", "pyproject.toml", "requirements", "setup.py"),
        *("deploy", "dispatcher", "docs/examples", "migrations", "sink", "spark_app"),
    }


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

"""The images run as deployments run them: `make test-images`, with podman or docker.

No file can be written but on mounted folders, the user is the image's, every capability is dropped,
and the shell is covered by an empty file. Real: the images, Postgres, a receiver, Spark.

`CONTAINERS` is the program, `RUN` has further options of its `run`, separated by blanks.
"""

import json
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.deploy.check.project import Project
from holdfast.deploy.local.ports import free_port
from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.dispatch.dispatching import SECRET
from tests.support.dispatch.sender import secret_text
from tests.support.dispatch.webhooks import Gate, WebhookReceiver, answer
from tests.support.job.decisions import Decisions
from tests.support.job.jobs import POLICY, event, put
from tests.support.servers.fault_proxy import FaultProxy
from tests.support.waiting import eventually

PROGRAM = os.environ.get("CONTAINERS") or "docker"
OPTIONS = shlex.split(os.environ.get("RUN") or "")

USER = 10001

SHELLS = ("/usr/bin/dash", "/usr/bin/bash")
"""In Debian `/bin/sh` leads to the first."""

READS_A_TOPIC = """\
from pyspark.sql import SparkSession

stream = SparkSession.builder.getOrCreate().readStream.format("kafka")
given = {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "payments"}
print(stream.options(**given).load().schema.names)
"""
"""Spark looks for the source; it asks the broker only when the query starts."""

IMAGES = ("migrate", "dispatcher", "api", "job")


def _run(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        (PROGRAM, *words), capture_output=True, text=True, check=False, timeout=300
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def _options(*, with_shell: bool = False, **variables: str) -> list[str]:
    named = [word for item in variables.items() for word in ("--env", "=".join(item))]
    covered = [] if with_shell else [w for p in SHELLS for w in ("--volume", f"/dev/null:{p}:ro")]
    strict = ("--read-only", "--cap-drop", "all", "--network", "host")
    return [*strict, *OPTIONS, *covered, *named]


@contextmanager
def _container(image: str, *words: str, **variables: str) -> Iterator[str]:
    """Yield the name of a container that runs meanwhile; its log is shown by a failing test."""
    name = f"holdfast-test-{image}-{os.getpid()}"
    options = _options(**variables)
    _run("run", "--detach", "--name", name, *options, f"holdfast-{image}", *words)
    try:
        yield name
    finally:
        print(_run("logs", name, check=False))
        _run("rm", "--force", name, check=False)


def _healthy(name: str, url: str) -> Callable[[], bool]:
    words = ("exec", name, "python", "-m", "holdfast.deploy.images.health", url)
    return lambda: _run(*words, check=False).returncode == 0


def _ended(name: str) -> int | None:
    [state] = json.loads(_run("inspect", "--type", "container", name).stdout)
    return None if state["State"]["Running"] else int(state["State"]["ExitCode"])


@pytest.fixture
def by_tcp(dsn: str) -> Iterator[str]:
    """The database by an address that another user reaches, too."""
    with FaultProxy.before_postgres(dsn) as proxy:
        yield proxy.dsn_of(dsn)


@pytest.mark.parametrize("image", IMAGES)
def test_image_has_a_numeric_user_and_a_health_check(image: str) -> None:
    [shown] = json.loads(_run("image", "inspect", f"holdfast-{image}").stdout)
    config: dict[str, Any] = shown["Config"]
    assert config["User"] == f"{USER}:{USER}"
    assert config["Entrypoint"][0] in {"holdfast", "python"}
    check = (config.get("Healthcheck") or shown.get("Healthcheck") or {}).get("Test", ["NONE"])
    assert check[0] == ("NONE" if image == "migrate" else "CMD")


def test_migrate_upgrades_an_empty_database_and_does_nothing_again(
    make_database: Callable[[str | None], str],
) -> None:
    dsn = make_database(None)
    with FaultProxy.before_postgres(dsn) as proxy:
        options = _options(HOLDFAST_DSN=proxy.dsn_of(dsn))
        for _ in range(2):
            _run("run", "--rm", *options, "holdfast-migrate")
    assert holdfast("status", dsn=dsn).returncode in {ExitCode.OK, ExitCode.DEGRADED}


def test_dispatcher_ends_on_sigterm_after_the_request_in_flight(
    dsn: str, db: psycopg.Connection, by_tcp: str
) -> None:
    gate = Gate(answer(200))
    receiver, port = WebhookReceiver(), free_port()
    receiver.script = lambda _: gate
    receiver.start()
    try:
        words = ("--url", receiver.url, "--allow-cidr", "127.0.0.1/32")
        added = holdfast(
            *("endpoint", "add", "payouts", *words, "--secret-ref", f"env:{SECRET}"), dsn=dsn
        )
        assert added.returncode == ExitCode.OK, added.stderr
        listen = ("dispatch", "--listen", f"127.0.0.1:{port}")
        variables = {"HOLDFAST_DSN": by_tcp, SECRET: secret_text()}
        with _container("dispatcher", *listen, **variables) as name, Decisions(dsn) as decisions:
            eventually(_healthy(name, f"http://127.0.0.1:{port}/healthz"))
            decisions.write("m_1")
            eventually(lambda: receiver.seen)
            _run("kill", "--signal", "TERM", name)
            unready = _healthy(name, f"http://127.0.0.1:{port}/healthz/ready")
            eventually(lambda: not unready())
            assert _ended(name) is None
            gate.open()
            eventually(lambda: _ended(name) is not None)
            assert _ended(name) == 0
    finally:
        receiver.close()
    assert db.execute("SELECT status FROM holdfast.attempt").fetchall() == [(200,)]


def test_api_is_ready_by_the_name_that_it_is_given(by_tcp: str) -> None:
    port = free_port()
    words = ("api", "serve", "--host", "0.0.0.0", "--behind-proxy", "--port", str(port))  # noqa: S104
    with _container("api", *words, HOLDFAST_DSN=by_tcp) as name:
        eventually(_healthy(name, f"http://127.0.0.1:{port}/healthz/ready"))
        _run("kill", "--signal", "TERM", name)
        eventually(lambda: _ended(name) is not None)
        assert _ended(name) == 0


def test_driver_in_the_image_knows_topics_by_the_settings_of_the_manifest(tmp_path: Path) -> None:
    [manifest] = [
        each for each in Project().overlay("production") if each.kind == "SparkApplication"
    ]
    name = "spark.driver.extraClassPath"
    tmp_path.chmod(0o755)
    (tmp_path / "conf").write_text(
        f"spark.master local[1]\n{name} {manifest.spec['sparkConf'][name]}\n"
    )
    (tmp_path / "read.py").write_text(READS_A_TOPIC)
    address = {"SPARK_DRIVER_BIND_ADDRESS": "127.0.0.1", "SPARK_LOCAL_IP": "127.0.0.1"}
    options = _options(with_shell=True, **address)
    volumes = ("--volume", f"{tmp_path}:/given:ro", "--tmpfs", "/tmp:rw,mode=1777")  # noqa: S108 - in the container
    program = ("--class", "org.apache.spark.deploy.PythonRunner", "local:///given/read.py")
    words = ("driver", "--properties-file", "/given/conf", *program)
    done = _run("run", "--rm", *volumes, *options, "holdfast-job", *words)
    assert "['key', 'value', 'topic', 'partition', 'offset'" in done.stdout


@pytest.mark.timeout(600)
def test_job_writes_its_decisions_with_a_root_that_is_read_only(
    db: psycopg.Connection, by_tcp: str, tmp_path: Path
) -> None:
    for folder in ("events", "state"):
        (tmp_path / folder).mkdir()
        os.chown(tmp_path / folder, USER, USER)
    tmp_path.chmod(0o755)
    (tmp_path / "policy.toml").write_text(POLICY)
    put(tmp_path / "events", 0, [event("e1", "12:01", 5_900_000), event("e2", "12:31", 1)])
    volumes = (
        *("--volume", f"{tmp_path}:/given:ro"),
        *("--volume", f"{tmp_path}/state:/state"),
        *("--tmpfs", "/tmp:rw,mode=1777"),  # noqa: S108 - in the container
    )
    options = _options(with_shell=True, HOLDFAST_DSN=by_tcp)
    _run(
        *("run", "--rm", *volumes, *options, "holdfast-job", "job", "run", "--available-now"),
        *("--path", "/given/events", "--checkpoint", "/state/checkpoint", "--stream", "payouts"),
        *("--policy", "/given/policy.toml"),
    )
    assert db.execute("SELECT count(*) > 0 FROM holdfast.entry").fetchone() == (True,)

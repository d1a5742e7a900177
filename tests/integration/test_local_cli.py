"""`holdfast local` as a person uses it: processes, exit codes, both streams."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from holdfast.sink.contract.schema import SCHEMA_REVISION
from tests.support.command import holdfast
from tests.support.servers.databases import processes_on, server_directory

pytestmark = pytest.mark.rest


@pytest.fixture
def directory() -> Iterator[Path]:
    with server_directory() as made:
        yield made


def local(
    command: str, directory: Path, *options: str, dsn: str | None = None
) -> subprocess.CompletedProcess[str]:
    return holdfast("local", command, "--directory", str(directory), *options, dsn=dsn)


def test_up_twice_gives_one_database_and_down_leaves_no_process(directory: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        ups = list(pool.map(lambda _: local("up", directory, "--json"), range(2)))
    assert [up.returncode for up in ups] == [0, 0]
    answers = [json.loads(up.stdout) for up in ups]
    assert sorted(answer["started"] for answer in answers) == [False, True]
    (dsn,) = {answer["dsn"] for answer in answers}
    with psycopg.connect(dsn) as connection:
        revision = connection.execute("SELECT version_num FROM holdfast.alembic_version")
        assert revision.fetchone() == (SCHEMA_REVISION,)

    # Standard output is the DSN and nothing else; the shell's own DSN of this server is no other.
    again = local("up", directory, dsn=dsn)
    assert (again.returncode, again.stdout) == (0, f"{dsn}\n")
    assert "running already" in again.stderr

    facts = json.loads(local("status", directory, "--json").stdout)
    assert facts["running"] is True
    assert facts["dsn"] == dsn
    assert facts["version"].startswith("18.")
    assert Path(facts["socket_folder"]).is_dir()
    data = Path(facts["data_directory"])
    assert facts["pid"] in processes_on(data)

    assert local("down", directory).returncode == 0
    assert processes_on(data) == []
    assert not Path(facts["socket_folder"]).exists()


def test_nothing_that_runs_is_exit_code_3(directory: Path) -> None:
    down = local("down", directory)
    assert down.returncode == 3
    assert "no embedded Postgres" in down.stderr
    status = local("status", directory, "--json")
    assert status.returncode == 3
    assert json.loads(status.stdout)["running"] is False
    env = local("env", directory, "--json")
    assert env.returncode == 1
    assert f"holdfast local up --directory {directory}" in env.stderr
    assert "PYSPARK_PYTHON" in json.loads(env.stdout)
    assert not directory.exists()


def test_env_makes_a_shell_ready(directory: Path) -> None:
    dsn = local("up", directory).stdout.strip()
    line = shlex.join(
        [
            sys.executable,
            "-m",
            "holdfast.dispatcher.cli.main",
            "local",
            "env",
            "--directory",
            str(directory),
        ]
    )
    shell = subprocess.run(
        ["/bin/sh", "-c", f'eval "$({line})" && printf "%s\\n" "$JAVA_HOME" "$HOLDFAST_DSN"'],
        capture_output=True,
        text=True,
        check=True,
        env={name: value for name, value in os.environ.items() if name != "HOLDFAST_DSN"},
    )
    java_home, given = shell.stdout.splitlines()
    assert given == dsn
    assert (Path(java_home) / "bin" / "java").exists()


def test_holdfast_dsn_replaces_the_embedded_server(directory: Path) -> None:
    other = "postgresql://me:secret@db.example/holdfast"
    up = local("up", directory, dsn=other)
    assert up.returncode == 0
    assert "nothing was started" in up.stderr
    assert "secret" not in up.stdout + up.stderr
    settings = json.loads(local("env", directory, "--json", dsn=other).stdout)
    assert settings["PYSPARK_PYTHON"] == sys.executable
    assert "HOLDFAST_DSN" not in settings
    assert not directory.exists()


def test_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    up = local("up", tmp_path / "file" / "local")
    assert up.returncode == 1
    assert "another --directory" in up.stderr
    assert len(up.stderr.splitlines()) == 1

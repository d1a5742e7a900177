"""The embedded server and `holdfast local`."""

import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.deploy.local import binaries
from holdfast.deploy.local.account import account_for
from holdfast.deploy.local.locks import acquire
from holdfast.deploy.local.postgres import EmbeddedPostgres, resolve_server
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.schema import SCHEMA_REVISION
from tests.support.command import holdfast
from tests.support.servers.databases import prepared_directory, processes_on, server_directory

pytestmark = pytest.mark.rest


@pytest.fixture(scope="module")
def prepared() -> Iterator[Path]:
    with prepared_directory() as made:
        yield made


@pytest.fixture
def directory(prepared: Path) -> Iterator[Path]:
    with server_directory(copy_of=prepared) as made:
        yield made


@pytest.fixture
def empty() -> Iterator[Path]:
    with server_directory() as made:
        yield made


@pytest.fixture(scope="module")
def server(prepared: Path) -> Iterator[EmbeddedPostgres]:
    with server_directory(copy_of=prepared) as made, EmbeddedPostgres(made) as started:
        yield started


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_its_owner_reaches_socket_data_and_password(server: EmbeddedPostgres) -> None:
    assert server.cluster
    assert server.running
    assert server.running.socket_folder
    assert mode(server.running.socket_folder) == 0o700
    assert mode(server.cluster.data) == 0o700
    assert mode(server.directory / "credentials.json") == 0o600
    assert list(server.cluster.data.parent.glob("data.*")) == []


def test_nobody_logs_in_without_the_password(server: EmbeddedPostgres) -> None:
    parts = conninfo_to_dict(server.dsn)
    for wrong in ("", "postgres"):
        with pytest.raises(psycopg.OperationalError, match=r"password"):
            psycopg.connect(make_conninfo(**{**parts, "password": wrong}))
    with psycopg.connect(server.dsn) as connection:
        methods = connection.execute("SELECT DISTINCT auth_method FROM pg_hba_file_rules")
        assert methods.fetchall() == [("scram-sha-256",)]


def test_nothing_listens_on_the_network(server: EmbeddedPostgres) -> None:
    assert server.running
    assert server.running.process.net_connections(kind="inet") == []


def test_server_keeps_what_it_acknowledged(server: EmbeddedPostgres) -> None:
    names = ("data_checksums", "fsync", "full_page_writes", "synchronous_commit")
    with psycopg.connect(server.dsn) as connection:
        for name in names:
            assert connection.execute(f"SHOW {name}").fetchone() == ("on",)
        assert connection.execute("SHOW server_encoding").fetchone() == ("UTF8",)
        row = connection.execute("SELECT datcollate FROM pg_database").fetchone()
        assert row == ("C",)
        assert connection.info.server_version // 10000 == binaries.MAJOR


def test_life_lock_is_held_while_the_server_runs(server: EmbeddedPostgres) -> None:
    """Its children inherit the lock, too: one that outlives it keeps the next server waiting."""
    with pytest.raises(CommandError, match="it is held"):
        acquire(server.directory / "life.lock", 0, "it is held")


def test_server_never_runs_as_root(server: EmbeddedPostgres) -> None:
    assert server.running
    uid = server.running.process.uids().effective
    assert uid != 0
    assert uid == os.geteuid() or os.geteuid() == 0


def test_server_leaves_the_terminal_of_its_starter(server: EmbeddedPostgres) -> None:
    assert server.running
    assert os.getsid(server.running.process.pid) != os.getsid(0)


def test_data_survive_a_restart_and_the_password_stays(directory: Path) -> None:
    with EmbeddedPostgres(directory) as first:
        dsn = first.make_database("holdfast")
        assert first.make_database("holdfast") == dsn
        with psycopg.connect(dsn) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS n")
    with pytest.raises(CommandError, match="holdfast local up"):
        _ = first.dsn
    with EmbeddedPostgres(directory) as second:
        assert second.dsn_of("holdfast") == dsn
        with psycopg.connect(dsn) as connection:
            assert connection.execute("SELECT n FROM kept").fetchone() == (1,)


def test_directory_of_postgres_16_is_opened_by_postgres_16(empty: Path) -> None:
    for major in (16, binaries.MAJOR):
        with (
            EmbeddedPostgres(empty, major=major) as server,
            psycopg.connect(server.dsn) as connection,
        ):
            assert connection.info.server_version // 10000 == 16
            assert connection.execute("SHOW data_checksums").fetchone() == ("on",)


def test_long_paths_leave_the_socket_short(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("t" * 120)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with EmbeddedPostgres(empty / ("d" * 120), keep=False) as server:
        assert server.running
        assert not str(server.running.socket_folder).startswith(str(long))
        with psycopg.connect(server.dsn) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)


def test_closed_parent_stays_closed(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with EmbeddedPostgres(closed / "local", keep=False) as server:
        assert server.cluster
        data = server.cluster.data
        # Root's server runs as somebody else, whom the folder keeps out: its data go elsewhere.
        assert data.is_relative_to(closed) == (os.geteuid() != 0)
        assert mode(closed) == 0o700
        assert mode(server.directory / "credentials.json") == 0o600
        assert psutil.Process(server.running.process.pid).cwd() == str(data)  # type: ignore[union-attr] # it runs
    assert not data.exists()
    assert not (closed / "local" / "credentials.json").exists()


def test_unreachable_server_programs_are_copied_once(tmp_path: Path) -> None:
    account = account_for(None)
    shipped = binaries.shipped(binaries.MAJOR)
    closed = tmp_path / "closed"
    package = closed / binaries.PACKAGE
    package.mkdir(parents=True)
    closed.chmod(0o700)
    shutil.copytree(shipped.home, package / shipped.home.name)
    libraries = shipped.home.parent.with_name(f"{binaries.PACKAGE}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, closed / libraries.name)
    hidden = binaries.Binaries(shipped.major, package / shipped.home.name)
    usable = binaries.reachable(hidden, account)
    try:
        assert usable == binaries.reachable(hidden, account)
        assert account.succeeds([usable.initdb, "--version"])
        assert (usable == hidden) == (os.geteuid() != 0)
    finally:
        if usable != hidden:
            shutil.rmtree(usable.home.parents[1])


def test_dsn_replaces_the_embedded_server(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DSN", "postgresql://from-environment")
    with resolve_server(None, empty) as dsn:
        assert dsn == "postgresql://from-environment"
    with resolve_server("postgresql://from-option", empty) as dsn:
        assert dsn == "postgresql://from-option"
    assert not empty.exists()


def test_server_that_ran_before_stays(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_DSN", raising=False)
    server = EmbeddedPostgres(directory)
    with resolve_server(None, directory) as dsn:
        assert server.dsn == dsn
    assert server.running is None
    server.start()
    with resolve_server(None, directory):
        pass
    assert server.running is not None


def local(
    command: str, empty: Path, *options: str, dsn: str | None = None
) -> subprocess.CompletedProcess[str]:
    return holdfast("local", command, "--directory", str(empty), *options, dsn=dsn)


def test_up_twice_gives_one_database_and_down_leaves_no_process(empty: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        ups = list(pool.map(lambda _: local("up", empty, "--json"), range(2)))
    assert [up.returncode for up in ups] == [0, 0]
    answers = [json.loads(up.stdout) for up in ups]
    assert sorted(answer["started"] for answer in answers) == [False, True]
    (dsn,) = {answer["dsn"] for answer in answers}
    with psycopg.connect(dsn) as connection:
        revision = connection.execute("SELECT version_num FROM holdfast.alembic_version")
        assert revision.fetchone() == (SCHEMA_REVISION,)

    # Standard output is the DSN and nothing else; the shell's own DSN of this server is no other.
    again = local("up", empty, dsn=dsn)
    assert (again.returncode, again.stdout) == (0, f"{dsn}\n")
    assert "running already" in again.stderr

    facts = json.loads(local("status", empty, "--json").stdout)
    assert facts["running"] is True
    assert facts["dsn"] == dsn
    assert facts["version"].startswith("18.")
    assert Path(facts["socket_folder"]).is_dir()
    data = Path(facts["data_directory"])
    assert facts["pid"] in processes_on(data)

    assert local("down", empty).returncode == 0
    assert processes_on(data) == []
    assert not Path(facts["socket_folder"]).exists()


def test_nothing_that_runs_is_exit_code_3(empty: Path) -> None:
    down = local("down", empty)
    assert down.returncode == 3
    assert "no embedded Postgres" in down.stderr
    status = local("status", empty, "--json")
    assert status.returncode == 3
    assert json.loads(status.stdout)["running"] is False
    env = local("env", empty, "--json")
    assert env.returncode == 1
    assert f"holdfast local up --directory {empty}" in env.stderr
    assert json.loads(env.stdout)["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert not empty.exists()


def test_env_makes_a_shell_ready(empty: Path) -> None:
    dsn = local("up", empty).stdout.strip()
    line = shlex.join(
        [
            sys.executable,
            "-m",
            "holdfast.dispatcher.cli.main",
            "local",
            "env",
            "--directory",
            str(empty),
        ]
    )
    shell = subprocess.run(
        ["/bin/sh", "-c", f'eval "$({line})" && printf "%s\\n" "$JAVA_HOME" "$HOLDFAST_DSN"'],
        capture_output=True,
        text=True,
        check=True,
        env={
            name: value
            for name, value in os.environ.items()
            if name not in {"HOLDFAST_DSN", "JAVA_HOME"}
        },
    )
    java_home, given = shell.stdout.splitlines()
    assert given == dsn
    assert (Path(java_home) / "bin" / "java").exists()


def test_holdfast_dsn_replaces_the_embedded_server(empty: Path) -> None:
    other = "postgresql://me:secret@db.example/holdfast"
    up = local("up", empty, dsn=other)
    assert up.returncode == 0
    assert "nothing was started" in up.stderr
    assert "secret" not in up.stdout + up.stderr
    settings = json.loads(local("env", empty, "--json", dsn=other).stdout)
    assert settings["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert "HOLDFAST_DSN" not in settings
    assert not empty.exists()


def test_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    up = local("up", tmp_path / "file" / "local")
    assert up.returncode == 1
    assert "another --directory" in up.stderr
    assert len(up.stderr.splitlines()) == 1

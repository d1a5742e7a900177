"""The embedded server in peace: who may log in, where its files are, which Postgres opens them."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.deploy.local import binaries
from holdfast.deploy.local.account import account_for
from holdfast.deploy.local.postgres import EmbeddedPostgres, resolve_server
from holdfast.sink.contract.exits import CommandError
from tests.support.servers.databases import prepared_directory, server_directory

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

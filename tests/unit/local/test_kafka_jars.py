"""Which Kafka jars are staged: as pinned, or none, and never a half."""

import hashlib
import sys
from pathlib import Path

import pytest

from holdfast.deploy.local.kafka import jars
from holdfast.sink.contract.exits import CommandError


@pytest.mark.parametrize("kind", jars.KINDS)
def test_every_jar_is_pinned_by_coordinates_and_checksum(kind: str) -> None:
    pinned = jars.pins(kind)
    assert len({pin.name for pin in pinned}) == len(pinned) == {"connector": 5, "broker": 45}[kind]
    assert all(len(bytes.fromhex(pin.sha256)) == 32 for pin in pinned)
    assert all(pin.group and pin.version[0].isdigit() for pin in pinned)


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch) -> jars.Pin:
    pin = jars.Pin("org.example", "example", "1.0", hashlib.sha256(b"right").hexdigest())
    monkeypatch.setattr(jars, "pins", lambda _: [pin])
    return pin


def _fetching(content: bytes | None) -> jars._Fetch:
    def fetch(wanted: list[jars.Pin], folder: Path) -> str | None:
        if content is None:
            return "it is away"
        (folder / wanted[0].name).write_bytes(content)
        return None

    return fetch


@pytest.mark.parametrize("wrong", [None, b"wrong"])
def test_what_maven_cannot_get_or_gets_wrong_comes_by_ivy(
    pinned: jars.Pin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrong: bytes | None
) -> None:
    monkeypatch.setattr(jars, "_by_maven", _fetching(wrong))
    monkeypatch.setattr(jars, "_by_ivy", _fetching(b"right"))
    assert jars.stage("connector", tmp_path) is True
    assert [file.name for file in tmp_path.rglob("*")] == ["connector", pinned.name]
    monkeypatch.setattr(jars, "_by_ivy", _fetching(None))
    assert jars.stage("connector", tmp_path) is False
    assert jars.staged("connector", tmp_path) == tmp_path / "connector"


@pytest.mark.usefixtures("pinned")
def test_without_a_way_nothing_changes_and_one_line_names_the_coordinates(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "connector").mkdir()
    (tmp_path / "connector" / "example-1.0.jar").write_bytes(b"changed")
    monkeypatch.setattr(jars, "_by_maven", _fetching(None))
    monkeypatch.setattr(jars, "_by_ivy", _fetching(b"also wrong"))
    with pytest.raises(CommandError) as caught:
        jars.stage("connector", tmp_path)
    told = str(caught.value)
    assert "\n" not in told
    for part in (
        "org.example:example:1.0",
        "Maven: it is away",
        "another SHA-256",
        "connector.txt",
    ):
        assert part in told
    assert [file.read_bytes() for file in tmp_path.rglob("*.jar")] == [b"changed"]
    with pytest.raises(CommandError, match="make kafka-jars"):
        jars.staged("connector", tmp_path)


def test_a_download_is_a_list_of_exact_jars_without_what_they_ask_for() -> None:
    (first, *_) = jars.pins("connector")
    pom = jars._filled(jars._POM, jars._POM_DEPENDENCY, [first])
    assert "<version>4.2.0</version>" in pom
    assert pom.count("<artifactId>*</artifactId>") == 1
    ivy = jars._filled(jars._IVY, jars._IVY_DEPENDENCY, [first])
    assert 'rev="4.2.0" transitive="false"' in ivy


def test_certificate_that_java_does_not_trust_is_called_so() -> None:
    said = "module not found: x#y;1\n\tServer access error (PKIX path building failed: ...)"
    told = jars._failure([sys.executable, "-c", f"print({said!r}); raise SystemExit(1)"])
    assert told
    assert "trustStore" in told
    assert "not found" not in told

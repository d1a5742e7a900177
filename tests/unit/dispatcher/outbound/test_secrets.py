"""Which references may be resolved, and that what they name is read all or nothing, never shown."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.dispatcher.outbound.endpoint import Endpoint, EndpointRow
from holdfast.dispatcher.outbound.reference_rule import (
    ALLOW_DIR,
    ALLOW_PREFIX,
    ReferenceRule,
    references_of,
    rule_of,
)
from holdfast.dispatcher.outbound.secrets import Material
from holdfast.dispatcher.outbound.secrets import read_material as read
from holdfast.sink.contract.states import OrderPolicy
from tests.support.dispatch.sender import KEY_BYTES, OTHER_KEY_BYTES, secret_text

ENDPOINT = Endpoint(1, "payouts", "https://x/", (), 1.0, 2.0, 8, (5,), OrderPolicy.STOP)
CANARY = "c4n4ry-t0ken"
PREFIXES = ("TEST_",)


def row(*secret_refs: str, **settings: Any) -> EndpointRow:
    return EndpointRow(replace(ENDPOINT, **settings), active=True, secret_refs=secret_refs)


def read_material(row: EndpointRow, *folders: Path) -> Material:
    """Read what is in the environment under any name, and in `folders`."""
    return read(row, ReferenceRule(PREFIXES, tuple(map(str, folders)) or ("/nowhere",)))


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_S", secret_text())


def test_secrets_are_read_from_environment_and_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(secret_text(OTHER_KEY_BYTES) + "\n")
    material = read_material(row("env:TEST_S", f"file:{tmp_path / 'secret'}"), tmp_path)
    assert [secret.key for secret in material.secrets] == [KEY_BYTES, OTHER_KEY_BYTES]
    assert material.fault is None


def test_headers_are_read_as_secrets_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_TOKEN", f"Bearer {CANARY}")
    monkeypatch.setenv("TEST_CA", "-----BEGIN CERTIFICATE-----\n")
    (tmp_path / "key").write_text("-----BEGIN PRIVATE KEY-----\n")
    material = read_material(
        row(
            "env:TEST_S",
            headers=(("authorization", "env:TEST_TOKEN"), ("x-tenant", "eu-1")),
            ca_ref="env:TEST_CA",
            client_cert_ref="env:TEST_CA",
            client_key_ref=f"file:{tmp_path / 'key'}",
        ),
        tmp_path,
    )
    assert material.headers == (("authorization", f"Bearer {CANARY}"), ("x-tenant", "eu-1"))
    assert material.ca_pem == material.client_cert_pem == b"-----BEGIN CERTIFICATE-----\n"
    assert material.client_key_pem == b"-----BEGIN PRIVATE KEY-----\n"
    assert CANARY not in repr(material)
    assert "BEGIN" not in repr(material)


@pytest.mark.parametrize(
    "reference",
    [
        *(
            "env:TEST_MISSING",
            "env:TEST_EMPTY",
            "file:/nowhere/secret",
            "env:TEST_SHORT",
            "bare",
            "file:/dev/zero",
        ),
        *("file:/etc", "env:", "file:", "env:TEST_NOT_ASCII", "vault:x", f"whsec_{CANARY}"),
    ],
)
def test_missing_secret_is_fault_of_all(reference: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SHORT", secret_text(b"short"))
    monkeypatch.setenv("TEST_EMPTY", "  ")
    monkeypatch.setenv("TEST_NOT_ASCII", f"{CANARY}é")
    material = read_material(row("env:TEST_S", reference))
    assert material.secrets == ()
    assert material.fault is not None
    assert "whsec_" not in material.fault.replace("whsec_ and", "").replace("with whsec_", "")
    assert CANARY not in material.fault


def test_pipe_without_a_writer_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    fault = read_material(row(f"file:{tmp_path / 'pipe'}"), tmp_path).fault
    assert fault is not None
    assert "not a regular file" in fault


@pytest.mark.parametrize(
    "settings",
    [
        {"headers": (("authorization", CANARY),)},
        {"headers": (("host", CANARY),)},
        {"headers": (("x-a", f"{CANARY}\r\nhost: b"),)},
        {"headers": (("x-a", "env:TEST_BROKEN"),)},
        {"headers": (("x-a", "env:TEST_MISSING"),)},
        {"headers": (("x-a", 5),)},
        {"ca_ref": "env:TEST_MISSING"},
        {"ca_ref": CANARY},
        {"client_cert_ref": "env:TEST_S", "client_key_ref": "file:/nowhere"},
    ],
)
def test_invalid_row_is_a_fault_and_reveals_nothing(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_BROKEN", f"{CANARY}\r\nhost: b")
    material = read_material(row("env:TEST_S", **settings))
    assert material.fault is not None
    assert (material.secrets, material.headers) == ((), ())
    assert CANARY not in material.fault


def test_world_readable_secret_is_reported(tmp_path: Path) -> None:
    for name, mode in (("open", 0o644), ("closed", 0o640)):
        (tmp_path / name).write_text(secret_text())
        (tmp_path / name).chmod(mode)
    references = [f"file:{tmp_path / name}" for name in ("open", "closed")]
    material = read_material(row(*references, ca_ref=references[0]), tmp_path)
    assert material.exposed == (references[0],)


def room(tmp_path: Path) -> tuple[Path, Path]:
    """Return a folder of secrets, and a file outside that holds a signing secret as well."""
    (inside := tmp_path / "room").mkdir()
    (outside := tmp_path / "outside").write_text(secret_text())
    return inside, outside


def test_mounted_secret_is_read_through_the_links_in_its_folder(tmp_path: Path) -> None:
    """As Kubernetes mounts them: token -> ..data/token, ..data -> ..2026_11_02."""
    inside, _ = room(tmp_path)
    for version, key in (("..1", KEY_BYTES), ("..2", OTHER_KEY_BYTES)):
        (inside / version).mkdir()
        (inside / version / "token").write_text(secret_text(key))
    (inside / "..data").symlink_to("..1")
    (inside / "token").symlink_to("..data/token")
    (tmp_path / "other").symlink_to(inside)
    for folder in (inside, tmp_path / "other"):
        assert read_material(row(f"file:{folder}/token"), folder).secrets[0].key == KEY_BYTES
    (inside / "..new").symlink_to("..2")
    (inside / "..new").rename(inside / "..data")
    assert read_material(row(f"file:{inside}/token"), inside).secrets[0].key == OTHER_KEY_BYTES


@pytest.mark.parametrize("how", ["link", "folder", "chain", "absolute", "up", "beside"])
def test_reference_that_leaves_its_folder_is_refused(tmp_path: Path, how: str) -> None:
    inside, outside = room(tmp_path)
    (tmp_path / "room2").mkdir()
    (tmp_path / "room2" / "a").write_text(secret_text())
    (inside / "link").symlink_to("../outside")
    (inside / "folder").symlink_to("..")
    (inside / "chain").symlink_to("link")
    (inside / "absolute").symlink_to(outside)
    named = {"folder": "folder/outside", "up": "../outside", "beside": "../room2/a"}.get(how, how)
    material = read_material(row(f"file:{inside}/{named}"), inside)
    assert material.secrets == ()
    assert "not allowed" in (material.fault or "")


def test_changed_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, outside = room(tmp_path)
    (inside / "a").mkdir()
    (inside / "a" / "token").write_text(secret_text())
    resolve = os.path.realpath

    def swapped(path: str, *, strict: bool = False) -> str:
        result = resolve(path, strict=strict)
        if Path(path).name == "token" and (inside / "a").is_dir():
            (inside / "a" / "token").unlink()
            (inside / "a" / "token").symlink_to(outside)
        return result

    monkeypatch.setattr(os.path, "realpath", swapped)
    material = read_material(row(f"file:{inside}/a/token"), inside)
    assert material.secrets == ()
    assert material.fault is not None


OURS = ReferenceRule(("PAYOUTS_", "HOLDFAST_SECRET_"), ("/srv/secrets", "/run/secrets/holdfast"))


@pytest.mark.parametrize(
    "reference",
    [
        *("env:HOLDFAST_SECRET_A", "env:PAYOUTS_KEY", "file:/srv/secrets/a"),
        *("file:/run/secrets/holdfast/eu/..data/token", "file:/srv/secrets//a"),
        "file:/srv/secrets/a:b",
    ],
)
def test_reference_below_what_is_allowed_is_fine(reference: str) -> None:
    assert OURS.fault(reference) is None


@pytest.mark.parametrize(
    "reference",
    [
        *("env:HOLDFAST_DSN", "env:HOLDFAST_ALLOW_SECRET_DIR", "env:PGPASSWORD", "env:OTEL_X"),
        *("env:PATH", "env:XHOLDFAST_SECRET_A", "env:holdfast_secret_a", "env:AWS_SECRET"),
        *("file:/etc/passwd", "file:/proc/self/environ", "file:/srv/secrets", "file:/srv/secretsx"),
        *("file:srv/secrets/a", "file:/srv/secrets/../x", "file:/srv/secrets/..", "file://srv/x"),
        *("file:./srv/secrets/a", "file:/srv/secrets/x/../a", "file:/srv/secrets/../secrets/a"),
    ],
)
def test_other_references_are_refused_and_allowed_ones_named(reference: str) -> None:
    fault = OURS.fault(reference) or ""
    for named in (reference, "PAYOUTS_*", "HOLDFAST_SECRET_*", "/srv/secrets"):
        assert named in fault


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((ALLOW_PREFIX, value) for value in ("H", "HOLDFAST_", "HOLDFAST_D", "P", "PG", "OTEL_A")),
        *((ALLOW_PREFIX, value) for value in ("HOLDFAST_D_", "PGX_", "PG_", "OTEL_", "OTEL_A_")),
        *((ALLOW_PREFIX, value) for value in ("A B", "*", "ABC_:", "9", "é", "9ABC_", "ABC_é_")),
        # The beginnings of names that were not meant, such as PATH and DATABASE_URL.
        *((ALLOW_PREFIX, value) for value in ("_", "D", "DAT", "DATA", "A_", "AB_", "ABC_:DATA")),
        *((ALLOW_DIR, value) for value in ("/", "//", "/.", "x", "/proc", "/proc/self", "/sys/a")),
        *((ALLOW_DIR, value) for value in ("/a/../b", "/a\0b")),
        *((ALLOW_DIR, value) for value in ("/a/../..", "/dev", "/a:", "/a:b")),
    ],
)
def test_rule_that_reaches_the_process_itself_is_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError, match="cannot be a"):
        rule_of({name: value})


def test_every_reference_of_an_endpoint_is_judged() -> None:
    columns = ("ca_ref", "client_cert_ref", "client_key_ref")
    settings = {
        "secret_refs": ["env:HOLDFAST_SECRET_A"],
        "headers": {"x-a": "env:HOLDFAST_SECRET_B", "x-b": "literal", "x-c": 5},
        **{column: f"file:/srv/secrets/{column}" for column in columns},
    }
    named = references_of(settings)
    assert named == [
        *("env:HOLDFAST_SECRET_A", "env:HOLDFAST_SECRET_B"),
        *(f"file:/srv/secrets/{column}" for column in columns),
    ]
    assert OURS.fault_of(named) is None
    assert "env:PATH" in (OURS.fault_of([*named, "env:PATH", "env:HOME"]) or "")
    assert references_of({"ca_ref": None}) == []


def test_environment_gives_the_rule_and_nothing_the_default() -> None:
    assert rule_of({ALLOW_PREFIX: "ABC_:B_C_", ALLOW_DIR: ""}) == ReferenceRule(("ABC_", "B_C_"))
    assert rule_of({ALLOW_DIR: "/a:/b"}) == ReferenceRule(folders=("/a", "/b"))
    assert rule_of({}) == ReferenceRule(("HOLDFAST_SECRET_",), ("/run/secrets/holdfast",))

"""Secrets: the strict form, and where they may come from."""

import base64
from pathlib import Path

import pytest

from holdfast.receiver import Secret, SecretError
from tests.support.dispatch.sender import KEY_BYTES, secret_text


@pytest.mark.parametrize("length", [24, 32, 64])
def test_secret_of_allowed_length_is_read(length: int) -> None:
    key = bytes(range(length))
    assert Secret.parse(secret_text(key)).key == key


@pytest.mark.parametrize(
    "text",
    [
        "",
        "whsec_",
        base64.b64encode(KEY_BYTES).decode(),
        "whsec_not-base64-secret",
        secret_text(bytes(23)),
        secret_text(bytes(65)),
        secret_text().rstrip("="),
        secret_text() + "=",
        secret_text(bytes(24)) + "==",
        secret_text() + "\n",
        " " + secret_text(),
        "whsec_" + base64.urlsafe_b64encode(b"\xff" * 32).decode(),
        "WHSEC_" + base64.b64encode(KEY_BYTES).decode(),
        "whsk_" + base64.b64encode(KEY_BYTES).decode(),
    ],
)
def test_other_secret_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(SecretError) as refused:
        Secret.parse(text)
    assert len(text) < 8 or text[6:] not in str(refused.value)


def test_secret_does_not_show_itself() -> None:
    secret = Secret.parse(secret_text())
    assert "\\x01" not in repr(secret)
    assert secret_text()[6:] not in repr(secret)


def test_secret_is_loaded_from_the_environment_or_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secret"
    path.write_text(secret_text() + "\n")
    monkeypatch.setenv("RECEIVER_SECRET", secret_text())
    assert Secret.load(f"file:{path}") == Secret.load("env:RECEIVER_SECRET") == Secret(KEY_BYTES)


def test_file_is_read_up_to_its_limit_and_has_any_name(tmp_path: Path) -> None:
    path = tmp_path / "a:b"
    path.write_text(secret_text().ljust(4096))
    assert Secret.load(f"file:{path}") == Secret(KEY_BYTES)
    for content in (secret_text().ljust(4097), f"{secret_text()}\u00a0"):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(SecretError, match="does not contain a signing secret"):
            Secret.load(f"file:{path}")


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("env:RECEIVER_SECRET_UNSET", "RECEIVER_SECRET_UNSET is empty or not set"),
        ("file:/no/such/file", "No such file"),
        ("file:/", "Is a directory"),
        ("file:/dev/zero", "signing secret"),
        ("env:", "env:VAR or file:PATH"),
        ("file:", "env:VAR or file:PATH"),
        ("file", "env:VAR or file:PATH"),
        ("vault:x", "env:VAR or file:PATH"),
        (secret_text(), "env:VAR or file:PATH"),
    ],
)
def test_unusable_reference_is_refused(reference: str, words: str) -> None:
    with pytest.raises(SecretError) as refused:
        Secret.load(reference)
    assert words in str(refused.value)
    assert secret_text() not in str(refused.value)

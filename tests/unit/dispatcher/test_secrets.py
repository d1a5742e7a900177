"""Secrets are read where the dispatcher runs, all or none."""

from pathlib import Path

import pytest

from dispatcher.secrets import read_secrets
from tests.support.sender import KEY_BYTES, OTHER_KEY_BYTES, secret_text


def test_secrets_are_read_from_environment_and_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text(secret_text(OTHER_KEY_BYTES) + "\n")
    monkeypatch.setenv("S", secret_text())
    secrets = read_secrets(["env:S", f"file:{tmp_path / 'secret'}"])
    assert [secret.key for secret in secrets.values] == [KEY_BYTES, OTHER_KEY_BYTES]
    assert secrets.fault is None


@pytest.mark.parametrize("reference", ["env:MISSING", "file:/nowhere/secret", "env:SHORT", "bare"])
def test_one_missing_secret_is_a_fault_of_all(
    reference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("S", secret_text())
    monkeypatch.setenv("SHORT", secret_text(b"short"))
    secrets = read_secrets(["env:S", reference])
    assert secrets.values == ()
    assert secrets.fault is not None
    assert "whsec_" not in secrets.fault.replace("whsec_ and", "")

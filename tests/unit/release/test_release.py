"""A release: its version in every file, its command, and its signatures."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.deploy.release import signing, version
from holdfast.deploy.release.__main__ import main
from holdfast.deploy.release.steps import rehearse
from holdfast.deploy.release.version import PLACES, ROOT, Place
from holdfast.sink.contract.exits import ExitCode
from tests.support.documents.pages import blocks_of


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The files that name the version."""
    for each in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / each, tmp_path)
    for path, _ in (match for place in PLACES for match in place.found(ROOT)):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    return tmp_path


def _edit(file: Path, pattern: str, new: str) -> None:
    text, count = re.subn(pattern, new, file.read_text(), count=1, flags=re.MULTILINE)
    assert count == 1
    file.write_text(text)


def test_every_file_has_the_version_of_the_project() -> None:
    assert list(version.faults()) == []


@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place.files} {place.pattern[:20]}")
def test_another_version_in_any_place_is_named(place: Place, copy: Path) -> None:
    assert list(version.faults(copy)) == []
    path, _ = next(place.found(copy))
    match = re.search(place.pattern, (copy / path).read_text(), re.MULTILINE)
    assert match is not None
    _edit(copy / path, re.escape(match[0]), match[0].replace(match[1], "9.9.9"))
    assert [each for each in version.faults(copy) if str(path) in each and "9.9.9" in each]


def test_place_in_which_nothing_is_found_is_named(copy: Path) -> None:
    (copy / "deploy" / "compose" / "stack.env").unlink()
    [fault] = version.faults(copy)
    assert fault.startswith("deploy/compose/stack.env: nothing")


def test_new_version_without_its_changes_is_named(copy: Path) -> None:
    _edit(copy / "pyproject.toml", r'^version = ".*"', 'version = "9.9.9"')
    assert "CHANGELOG.md: its first section is not 9.9.9" in list(version.faults(copy))


def test_changelog_without_upgrade_notes_is_named(copy: Path) -> None:
    _edit(copy / "CHANGELOG.md", "^### Upgrade notes$", "### Upgrades")
    [fault] = version.faults(copy)
    assert "Upgrade notes" in fault


def test_release_has_a_date(copy: Path) -> None:
    heading = rf"^## {re.escape(version.current())}.*$"
    _edit(copy / "CHANGELOG.md", heading, f"## {version.current()} - {version.UNRELEASED}")
    assert len(list(version.faults(copy, dated=True))) == 1
    _edit(copy / "CHANGELOG.md", heading, f"## {version.current()} - 2026-12-01")
    assert list(version.faults(copy, dated=True)) == []


def test_check_ignores_a_folder_that_is_no_release(tmp_path: Path) -> None:
    kept = tmp_path / "kept.txt"
    kept.write_text("ours")
    assert main(["check", "--to", str(tmp_path)]) == ExitCode.USAGE
    assert kept.read_text() == "ours"


PAGE = "docs/deploying/releases.md"

WHEEL, DOCS = "holdfast-0.2.0-py3-none-any.whl", "holdfast-docs-0.2.0.tar.gz"


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """A folder with two signed artifacts and, beside it, the allowed signers."""
    folder = tmp_path / "release"
    folder.mkdir()
    (folder / WHEEL).write_bytes(b"wheel")
    (folder / DOCS).write_bytes(b"docs")
    signing.make_key(tmp_path / "key").rename(tmp_path / "allowed_signers")
    signing.write_sums(folder)
    signing.sign(folder, tmp_path / "key")
    return folder


def _by_the_page(folder: Path) -> subprocess.CompletedProcess[str]:
    """What a user does who has downloaded a release: the page's first block, as it stands there."""
    script = blocks_of(PAGE, "sh")[0]
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],  # noqa: S607 - the user's shell
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "ALLOWED": str(folder.parent / "allowed_signers")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def _verify(folder: Path) -> int:
    """What the page's second block says of the folder."""
    script = blocks_of(PAGE, "sh")[1].replace("dist/release", str(folder))
    words = shlex.split(script.replace("$ALLOWED", str(folder.parent / "allowed_signers")))
    assert words[:3] == ["python", "-m", "holdfast.deploy.release"]
    return main(words[3:])


def test_signed_release_passes(released: Path) -> None:
    done = _by_the_page(released)
    assert done.returncode == 0, done.stdout + done.stderr
    assert _verify(released) == ExitCode.OK


def test_page_lets_a_user_verify_one_file_of_a_release(released: Path) -> None:
    (released / DOCS).unlink()
    assert _by_the_page(released).returncode == 0
    assert _verify(released) == ExitCode.FAILED


def _change_an_artifact(folder: Path) -> None:
    (folder / WHEEL).write_bytes(b"wheeL")


def _change_an_artifact_and_its_sum(folder: Path) -> None:
    _change_an_artifact(folder)
    signing.write_sums(folder)


def _sign_with_another_key(folder: Path) -> None:
    signing.make_key(folder.parent / "other")
    signing.write_sums(folder)
    signing.sign(folder, folder.parent / "other")


def _sign_for_something_else(folder: Path) -> None:
    (folder / signing.SIGNATURE).unlink()
    key, sums = str(folder.parent / "key"), str(folder / signing.SUMS)
    command = ("ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", "file", sums)
    subprocess.run(command, check=True)


def _take_the_signature_away(folder: Path) -> None:
    (folder / signing.SIGNATURE).unlink()


SPOILT = (
    _change_an_artifact,
    _change_an_artifact_and_its_sum,
    _sign_with_another_key,
    _sign_for_something_else,
    _take_the_signature_away,
)


@pytest.mark.parametrize("spoil", SPOILT, ids=lambda each: re.sub("_", " ", each.__name__).strip())
def test_spoilt_release_fails(spoil: Callable[[Path], None], released: Path) -> None:
    spoil(released)
    assert _by_the_page(released).returncode != 0
    assert _verify(released) == ExitCode.FAILED


def test_step_signs_with_a_key_that_is_allowed_and_fails_with_another(released: Path) -> None:
    words = ("sums", "--to", str(released), "--key", str(released.parent / "key"))
    assert main((*words, "--allowed", str(released.parent / "allowed_signers"))) == ExitCode.OK
    assert _by_the_page(released).returncode == 0
    assert main(words) == ExitCode.FAILED


def test_file_that_is_not_listed_is_named(released: Path) -> None:
    (released / "more").write_bytes(b"")
    faults = list(signing.faults(released, released.parent / "allowed_signers"))
    assert faults == ["more: not in SHA256SUMS"]


def test_key_with_which_nobody_may_sign_is_refused(released: Path) -> None:
    assert main(("verify", "--to", str(released))) == ExitCode.FAILED


def test_rehearsal_finds_nothing_that_passes(released: Path, tmp_path: Path) -> None:
    assert rehearse(released, tmp_path / "work") == []


def test_key_that_does_not_exist_is_an_error(released: Path) -> None:
    with pytest.raises(signing.SigningError):
        signing.sign(released, Path("nowhere"))

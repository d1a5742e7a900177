"""SHA256SUMS of a folder of artifacts, signed with an SSH key by `ssh-keygen`: no network."""

import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

SUMS, SIGNATURE = "SHA256SUMS", "SHA256SUMS.sig"

NAMESPACE = "holdfast-release"
"""A signature that was made for something else does not count."""

SIGNER = "release@holdfast"
"""The name in the file of allowed signers."""

ALLOWED = Path(__file__).with_name("allowed_signers")


class SigningError(Exception):
    """`ssh-keygen` did not sign; says why."""


def write_sums(folder: Path) -> Path:
    """Write the SHA-256 of every file of a folder, as `sha256sum --check` reads them."""
    sums = folder / SUMS
    sums.write_text("".join(f"{_digest(path)}  {path.name}\n" for path in _artifacts(folder)))
    return sums


def sign(folder: Path, key: Path) -> Path:
    """Sign a folder's SHA256SUMS with a private key, or by the agent that has it.

    Raises `SigningError`.
    """
    (folder / SIGNATURE).unlink(missing_ok=True)
    command = ("ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", NAMESPACE)
    done = _run((*command, str(folder / SUMS)))
    if done.returncode:
        raise SigningError(done.stderr.strip())
    return folder / SIGNATURE


def faults(folder: Path, allowed: Path = ALLOWED) -> Iterator[str]:
    """Yield what a user must not trust: the signature, changed, missing and unlisted files."""
    signature = folder / SIGNATURE
    if not signature.exists():
        yield f"{SIGNATURE} is not there"
        return
    command = ("ssh-keygen", "-Y", "verify", "-f", str(allowed), "-I", SIGNER, "-n", NAMESPACE)
    with (folder / SUMS).open() as sums:
        done = _run((*command, "-s", str(signature)), sums)
    if done.returncode:
        yield f"{SIGNATURE}: {done.stderr.strip() or done.stdout.strip()}"
    lines = (line.partition("  ") for line in (folder / SUMS).read_text().splitlines())
    listed = {name: digest for digest, _, name in lines}
    artifacts = {path.name: path for path in _artifacts(folder)}
    yield from (f"{name}: not there" for name in sorted(listed.keys() - artifacts.keys()))
    yield from (f"{name}: not in {SUMS}" for name in sorted(artifacts.keys() - listed.keys()))
    for name in sorted(listed.keys() & artifacts.keys()):
        if _digest(artifacts[name]) != listed[name]:
            yield f"{name}: changed"


def make_key(to: Path) -> Path:
    """Make a key without a password, and beside it the file that allows it; returns that file.

    Raises `SigningError`.
    """
    command = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", SIGNER, "-f", str(to))
    if (done := _run(command)).returncode:
        raise SigningError(done.stderr.strip())
    kind, text, _ = to.with_suffix(".pub").read_text().split()
    allowed = to.with_suffix(".allowed")
    allowed.write_text(f'{SIGNER} namespaces="{NAMESPACE}" {kind} {text}\n')
    return allowed


def _artifacts(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name not in {SUMS, SIGNATURE})


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _run(
    command: tuple[str, ...], stdin: IO[str] | int = subprocess.DEVNULL
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        stdin=stdin,
        capture_output=True,
        text=True,
        check=False,
    )

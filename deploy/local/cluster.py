"""A cluster on disk: its Postgres version, data directory and credentials.

<directory>/cluster.json       major version and data directory, chosen once
<directory>/credentials.json   the superuser's name and password, mode 0600
<directory>/postgres.log       the server's log
<directory>/life.lock          locked while any process of the server is alive
<directory>/data               the data directory, unless the server's account cannot reach it
"""

import hashlib
import json
import os
import secrets
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from holdfast.deploy.local.account import Account
from holdfast.deploy.local.binaries import Binaries, shared_folder
from holdfast.deploy.local.locks import acquire
from holdfast.sink.contract.exits import CommandError

SUPERUSER = "postgres"

LEFTOVER_SECONDS = 60.0
"""How long the children of a killed server may take to notice it and exit."""

SETTINGS = {
    "listen_addresses": "",  # no TCP, only a Unix socket in a private folder
    "unix_socket_permissions": "0700",
    "max_connections": "100",
    "shared_buffers": "256MB",
    "work_mem": "8MB",
    "maintenance_work_mem": "64MB",
    "max_wal_size": "512MB",
    # A batch writes tens of megabytes of WAL. With large buffers the WAL writer flushes them in the
    # background, and COPY does not wait for each page.
    "wal_buffers": "64MB",
    "wal_writer_delay": "10ms",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
"""Written to postgresql.conf by initdb; durability settings keep their defaults."""

INITDB_SETS_SINCE = 16
"""The first major version whose initdb writes settings; an older one is only used by tests."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The content of `cluster.json`, checked against the data directory."""

    directory: Path
    data: Path
    major: int

    @property
    def initialised(self) -> bool:
        return (self.data / "PG_VERSION").exists()

    @property
    def log(self) -> Path:
        return self.directory / "postgres.log"

    @property
    def password(self) -> str:
        """The superuser's password; raises `CommandError` if the file cannot be read."""
        path = _credentials(self.directory)
        try:
            return str(json.loads(path.read_text())["password"])
        except (OSError, ValueError, KeyError) as error:
            raise CommandError(
                f"the password of the cluster in {self.data} cannot be read from {path}"
                f" ({error}). The data were not touched: restore the file, or use another"
                " --directory for a new cluster.",
                code="wrong_password",
            ) from error


def load(directory: Path) -> Cluster | None:
    """Return the cluster of `directory`, or None.

    Raises `CommandError` if its data are missing or unreadable.
    """
    state = directory / "cluster.json"
    data, major, initialised = directory / "data", None, False
    try:
        if state.exists():
            known = json.loads(state.read_text())
            data, major, initialised = directory / known["data"], int(known["major"]), known["made"]
        stamp = data / "PG_VERSION"
        if stamp.exists():
            # PG_VERSION in the data directory is authoritative for the version.
            return Cluster(directory, data, int(stamp.read_text()))
    except (OSError, ValueError, KeyError) as error:
        raise CommandError(
            f"the cluster in {directory} cannot be read ({error}); nothing was changed. Use the"
            " account that created it, or choose another --directory.",
            code="directory_unusable",
        ) from error
    if initialised:
        raise CommandError(
            f"the data directory {data} is missing. Nothing was changed. Restore it, or remove"
            f" {state} to create an empty cluster.",
            code="data_missing",
        )
    return None if major is None else Cluster(directory, data, major)


def choose_cluster(directory: Path, account: Account, major: int) -> Cluster:
    """Choose the data directory of a new cluster, save the choice, and return it.

    It is inside `directory`, unless the server's account cannot enter that (a clone below /root);
    then it is a private shared folder. Permissions of the user's folders are never changed.
    """
    data = directory / "data"
    if not account.can_enter(directory):
        name = f"holdfast-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:12]}-"
        home = Path(tempfile.mkdtemp(prefix=name, dir=shared_folder(account)))
        account.own(home)
        data = home / "data"
    cluster = Cluster(directory, data, major)
    remember(cluster, initialised=False)
    return cluster


def remember(cluster: Cluster, *, initialised: bool) -> None:
    """Write `cluster.json`. Its path is relative, so that the directory can be moved."""
    inside = cluster.data.is_relative_to(cluster.directory)
    data = cluster.data.relative_to(cluster.directory) if inside else cluster.data
    value = {"major": cluster.major, "data": str(data), "made": initialised}
    _write_private(cluster.directory / "cluster.json", json.dumps(value))


def make(cluster: Cluster, binaries: Binaries, account: Account) -> None:
    """Run initdb: scram authentication, a random password, checksums, UTF-8, locale C.

    It works in a draft folder that is renamed at the end, so an interrupted initdb leaves nothing.
    """
    password = secrets.token_urlsafe(24)
    draft = cluster.data.with_name("data.draft")
    handover = cluster.data.with_name("data.password")
    life = acquire_life(cluster)
    try:
        shutil.rmtree(draft, ignore_errors=True)
        handover.unlink(missing_ok=True)
        draft.mkdir(mode=0o700)
        account.own(draft)
        _write_private(handover, password)
        account.own(handover)
        _initdb(binaries, account, draft, handover, life)
        _write_private(
            _credentials(cluster.directory),
            json.dumps({"user": SUPERUSER, "password": password}),
        )
        draft.rename(cluster.data)
    finally:
        handover.unlink(missing_ok=True)
        shutil.rmtree(draft, ignore_errors=True)
        os.close(life)
    remember(cluster, initialised=True)


def acquire_life(cluster: Cluster) -> int:
    """Take the lock that initdb, the server and all its children inherit; returns its descriptor.

    It is free only if none of them is alive, independent of `postmaster.pid` and of containers.
    Raises `CommandError` if they do not end in time.
    """
    return acquire(
        cluster.directory / "life.lock",
        LEFTOVER_SECONDS,
        f"processes of an earlier server still use {cluster.data}. Nothing was changed. Stop them,"
        " or wait until their queries end.",
    )


def _initdb(
    binaries: Binaries, account: Account, data: Path, password_file: Path, life: int
) -> None:
    modern = binaries.major >= INITDB_SETS_SINCE
    settings = [f"--set={name}={value}" for name, value in SETTINGS.items()] if modern else []
    command: list[str | Path] = [
        binaries.initdb,
        f"--pgdata={data}",
        f"--username={SUPERUSER}",
        f"--pwfile={password_file}",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        "--no-locale",
        "--data-checksums",
        "--no-instructions",
        *settings,
    ]
    with account.spawn(command, subprocess.PIPE, pass_fds=[life]) as process:
        try:
            output = process.communicate()[0].decode(errors="replace").strip()
        except BaseException:  # Ctrl-C does not reach its session
            process.kill()
            raise
    if process.returncode != 0:
        raise CommandError(
            f"initdb failed in {data.parent}: {' | '.join(output.splitlines()[-3:])}. Its files"
            " were removed.",
            code="initdb_failed",
        )
    if not modern:
        with (data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in SETTINGS.items())


def _credentials(directory: Path) -> Path:
    return directory / "credentials.json"


def _write_private(path: Path, text: str) -> None:
    """Replace `path` atomically with a file that only its owner can read."""
    draft = path.with_name(f"{path.name}.draft")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    draft.rename(path)

"""Databases of the tests: made from a template that was migrated today, and dropped again.

What a migration leaves depends on the day: a partition for each of the days around it. So a run
that goes on past midnight in UTC migrates its template again.
"""

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import psutil
import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from holdfast.deploy.local import binaries
from holdfast.deploy.local.postgres import EmbeddedPostgres

TEMPLATE = "holdfast_test_template_"
"""What the names of templates begin with. The comment of one is the day of its migration."""

PREPARED = "HOLDFAST_TEST_PREPARED"
"""The variable with the directory of a stopped server, of which each process has a copy."""

PREPARED_TEMPLATE = f"{TEMPLATE}prepared"
"""The template on that server."""

_DAY = """
    SELECT shobj_description(oid, 'pg_database'), (now() AT TIME ZONE 'UTC')::date
    FROM pg_database WHERE datname = %s
"""


@contextmanager
def template_on(server_dsn: str) -> Iterator[str]:
    """Yield the name of a migrated database to copy, and drop it."""
    name = f"{TEMPLATE}{secrets.token_hex(4)}"
    migrate(server_dsn, name)
    try:
        yield name
    finally:
        drop(server_dsn, name)


@contextmanager
def copy_of(server_dsn: str, template: str) -> Iterator[str]:
    """Yield the DSN of a copy of a database, and drop the copy: for a run of several tests."""
    name = f"holdfast_test_{secrets.token_hex(6)}"
    create(server_dsn, name, template)
    try:
        yield make_conninfo(server_dsn, dbname=name)
    finally:
        drop(server_dsn, name)


@contextmanager
def dropping_behind(server_dsn: str, *, all_of_them: bool) -> Iterator[Callable[[str], None]]:
    """Yield what drops a database while the tests go on: a drop waits for a checkpoint.

    What is not dropped in the end is left to a server that is about to go, unless `all_of_them`.
    """
    dropped: list[Future[None]] = []
    with ThreadPoolExecutor(1, "drop") as worker:
        yield lambda name: dropped.append(worker.submit(_drop_in_any_company, server_dsn, name))
        worker.shutdown(cancel_futures=not all_of_them)
    for each in dropped:
        if not each.cancelled():
            each.result()


def create(server_dsn: str, name: str, template: str | None = None) -> None:
    """Make a database, empty or as a copy; a template of another day is migrated anew before."""
    with psycopg.connect(server_dsn, autocommit=True) as server:
        if template is not None and template.startswith(TEMPLATE):
            migrated, today = _days(server, template)
            if migrated != today:
                drop(server_dsn, template)
                migrate(server_dsn, template)
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY")
        server.execute(
            statement.format(sql.Identifier(name), sql.Identifier(template or "template1"))
        )


def drop(server_dsn: str, name: str) -> None:
    """Drop a database, whoever is connected to it, if it is there."""
    statement = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
    with psycopg.connect(server_dsn, autocommit=True) as server:
        server.execute(statement.format(sql.Identifier(name)))


@retry(
    retry=retry_if_exception_type(psycopg.OperationalError),
    wait=wait_fixed(0.2),
    stop=stop_after_delay(60),
    reraise=True,
)
def _drop_in_any_company(server_dsn: str, name: str) -> None:
    """Drop a database, also while a test lets this process open no file, or the server no line."""
    drop(server_dsn, name)


def migrate(server_dsn: str, name: str) -> None:
    """Make a migrated database, and note the day."""
    from holdfast.migrations.upgrade import upgrade

    create(server_dsn, name)
    with psycopg.connect(server_dsn, autocommit=True) as server:
        # The day before the migration: one that goes on past midnight is of yesterday.
        _, today = _days(server, name)
        upgrade(make_conninfo(server_dsn, dbname=name))
        note = sql.SQL("COMMENT ON DATABASE {} IS {}")
        server.execute(note.format(sql.Identifier(name), sql.Literal(today.isoformat())))


def _days(server: psycopg.Connection, name: str) -> tuple[date | None, date]:
    """The day of the migration, if one was noted, and the day that it is now."""
    row = server.execute(_DAY, [name]).fetchone()
    assert row, name
    noted, today = row
    return date.fromisoformat(noted) if noted else None, today


MEMORY = Path("/dev/shm")  # noqa: S108 - private folders are made inside
"""A file system in memory, on Linux. Servers keep their durability settings there: what a killed
process has written stays, as on a disk, and a sync costs nothing."""

MEMORY_BYTES_MIN = 8 << 30
"""What has to be free there: every server may keep 512 MB of log beside its data."""


CHOSEN = "HOLDFAST_TEST_POSTGRES"
"""The variable with the server of the tests: a version of the wheel, or a `bin` directory."""

LANGUAGE = "HOLDFAST_TEST_LANGUAGE"
"""The variable with the language of that server's messages, as `ru`; for a `bin` directory."""

SYSTEM = Path("/usr/lib/postgresql")
"""Where Debian has its versions of Postgres. They speak other languages, and the wheel's do not."""


def major_of(folder: Path) -> int:
    """Return the major version of the Postgres in a `bin` directory."""
    done = subprocess.run(
        [folder / "postgres", "--version"], capture_output=True, text=True, check=True
    )
    return int(done.stdout.split()[2].partition(".")[0])


def chosen_major() -> int:
    """Return the version of the tests' server; a `bin` directory takes the place of the wheel's."""
    chosen = os.environ.get(CHOSEN, str(binaries.MAJOR))
    if chosen.isdecimal():
        return int(chosen)
    folder = Path(chosen).resolve()
    major = major_of(folder)
    binaries.FOLDERS[major] = str(folder.parent)
    return major


def speaks(folder: Path, language: str) -> bool:
    """Return whether the Postgres in a `bin` directory has its messages in `language`."""
    catalog = f"{language}/LC_MESSAGES/postgres-{major_of(folder)}.mo"
    return (Path("/usr/share/locale") / catalog).exists()


@contextmanager
def speaking(language: str, folder: Path) -> Iterator[EmbeddedPostgres]:
    """Run the Postgres of a `bin` directory with its messages in `language`.

    It needs no locale of the machine: gettext looks at LANGUAGE first, unless the locale is C.
    """
    major = major_of(folder)
    with server_directory() as directory:
        programs = directory.with_name("programs") / "bin"
        programs.mkdir(parents=True)
        for name in ("initdb", "postgres"):
            program = programs / name
            program.write_text(f'#!/bin/sh\nLANGUAGE={language} exec {folder / name} "$@"\n')
            program.chmod(0o755)
        binaries.FOLDERS[major] = str(programs.parent)
        with EmbeddedPostgres(directory, major=major) as server:
            with psycopg.connect(server.dsn, autocommit=True) as db:
                db.execute("ALTER SYSTEM SET lc_messages = 'C.UTF-8'")
                db.execute("SELECT pg_reload_conf()")
            yield server


@contextmanager
def chosen_server() -> Iterator[EmbeddedPostgres]:
    """Run the server of the tests: the version and the language that the environment chooses.

    It is a copy of the prepared one, if there is one.
    """
    if language := os.environ.get(LANGUAGE):
        with speaking(language, Path(os.environ[CHOSEN]).resolve()) as server:
            yield server
        return
    major, prepared = chosen_major(), os.environ.get(PREPARED)
    with (
        server_directory(Path(prepared) if prepared else None) as directory,
        EmbeddedPostgres(directory, major=major) as server,
    ):
        yield server


def memory_folder() -> Path | None:
    """Return the folder in memory for the data of servers, or None where it is not large enough."""
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN:
        return MEMORY
    return None


def _sweep(folder: Path) -> None:
    """Delete what processes of tests that were killed have left in memory."""
    for left in folder.glob("holdfast-test-*-*"):
        pid = left.name.split("-")[2]
        if pid.isdecimal() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(left, ignore_errors=True)


@contextmanager
def server_directory(copy_of: Path | None = None) -> Iterator[Path]:
    """Yield a directory that every account reaches; stops and deletes what is started there.

    It does not exist yet, or is a copy of a stopped server's directory: initdb costs seconds. Not
    pytest's `tmp_path`: that is closed to other accounts, so root's data would go elsewhere.
    """
    memory = memory_folder()
    if memory:
        _sweep(memory)
    parent = Path(tempfile.mkdtemp(prefix=f"holdfast-test-{os.getpid()}-", dir=memory))
    parent.chmod(0o755)
    directory = parent / "local"
    try:
        if copy_of:
            subprocess.run(["/bin/cp", "-a", str(copy_of), str(directory)], check=True)
        yield directory
    finally:
        if (directory / "cluster.json").exists():
            server = EmbeddedPostgres(directory)
            server.stop()
            server.remove()
        shutil.rmtree(parent)


@contextmanager
def prepared_directory() -> Iterator[Path]:
    """Yield the directory of a server that was started once and stopped, to be copied."""
    with server_directory() as directory:
        with EmbeddedPostgres(directory):
            pass
        yield directory


def processes_on(data: Path) -> list[int]:
    """Every living process that works in a data directory: the server and its children."""
    return [
        each.pid
        for each in psutil.process_iter(["cwd", "status"])
        if each.info["cwd"] == str(data) and each.info["status"] != psutil.STATUS_ZOMBIE
    ]

"""Versions of Holdfast as folders of code: an older commit, this tree, and a next release of it."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple, Self
from zipfile import ZipFile

import httpx

from holdfast.sink.contract.schema import SCHEMA_REVISION
from tests.support.dispatch.dispatching import Process, dispatching

TABLES = ("batch", "dispatcher_instance")

_EXPAND = '''"""Step: expand."""

from alembic import op

revision = "{expand}"
down_revision = "{head}"


def upgrade() -> None:
    op.execute("ALTER TABLE holdfast.batch ADD COLUMN writer text")
    op.execute("ALTER TABLE holdfast.dispatcher_instance ADD COLUMN writer text")


def downgrade() -> None:
    op.execute("ALTER TABLE holdfast.dispatcher_instance DROP COLUMN writer")
    op.execute("ALTER TABLE holdfast.batch DROP COLUMN writer")
'''

_CONTRACT = '''"""Step: contract."""

from alembic import op

revision = "{contract}"
down_revision = "{expand}"
serves_from = "{expand}"


def upgrade() -> None:
    op.execute("UPDATE holdfast.batch SET writer = 'before' WHERE writer IS NULL")
    op.execute("UPDATE holdfast.dispatcher_instance SET writer = 'before' WHERE writer IS NULL")
    op.execute("ALTER TABLE holdfast.batch ALTER COLUMN writer SET NOT NULL")
    op.execute("ALTER TABLE holdfast.dispatcher_instance ALTER COLUMN writer SET NOT NULL")
    op.execute(f"UPDATE holdfast.alembic_version SET serves_from = '{{serves_from}}'")


def downgrade() -> None:
    op.execute("UPDATE holdfast.alembic_version SET serves_from = '{served}'")
    op.execute("ALTER TABLE holdfast.dispatcher_instance ALTER COLUMN writer DROP NOT NULL")
    op.execute("ALTER TABLE holdfast.batch ALTER COLUMN writer DROP NOT NULL")
'''


class Pair(NamedTuple):
    """The revisions that were written."""

    expand: str
    contract: str


def write_pair(folder: Path, head: str, served: str = "0032") -> Pair:
    """Write both revisions above `head` into `folder`; `served` is the oldest code before them."""
    pair = Pair(f"{int(head) + 1:04}", f"{int(head) + 2:04}")
    for name, text in (("expand_writer", _EXPAND), ("contract_writer", _CONTRACT)):
        number = pair.expand if name.startswith("expand") else pair.contract
        content = text.format(head=head, served=served, **pair._asdict())
        (folder / f"{number}_{name}.py").write_text(content)
    return pair


ROOT = Path(__file__).parents[3]
PACKAGES = ("sink", "dispatcher", "migrations", "spark_app", "deploy")

LINKS = ".holdfast/links"
"""The folders of a build as the package `holdfast`."""

SINK_LOAD = Path(__file__).with_name("sink_load.py")

END_SECONDS = 60.0

PREVIOUS = "56d6e1d"
"""The newest released version that accepts a range: a commit, or a tag."""


class NotHere(Exception):
    """The older version cannot be had; the message says why."""


@dataclass(frozen=True)
class Load:
    """How much every process has to do."""

    batches: int
    """Written by every sink in each stage; at least as many attempts and answers."""
    subjects: int = 5
    """Decisions of a batch, each of another subject."""
    pause_seconds: float = 0.1
    """Between two batches."""
    patience_seconds: float = 120.0
    """How long a stage may take, a second for each batch besides."""


@dataclass(frozen=True)
class Build:
    """The code of one version."""

    name: str
    code: Path

    @property
    def command(self) -> str:
        """The module of `holdfast`: before 0.3 the folders were packages at the top level."""
        full = (self.code / "setup.py").exists()
        return "holdfast.dispatcher.cli.main" if full else "dispatcher.cli.main"

    def environment(self, dsn: str) -> dict[str, str]:
        """What a process needs to run this code, and not the one of the folder it starts in."""
        path = os.pathsep.join((str(self.code / LINKS), str(self.code)))
        return {"HOLDFAST_DSN": dsn, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}

    def run(self, dsn: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `holdfast WORDS` to its end."""
        return subprocess.run(
            [sys.executable, "-m", self.command, *words],
            env={**os.environ, "COLUMNS": "200", **self.environment(dsn)},
            cwd=self.code,
            capture_output=True,
            text=True,
            check=False,
        )

    def json(self, dsn: str, *words: str) -> Any:
        """Run a command that ends with 0, and return its JSON."""
        done = self.run(dsn, *words, "--json")
        assert done.returncode == 0, f"{self.name}: {words}\n{done.stdout}{done.stderr}"
        return json.loads(done.stdout)


class Running:
    """A process of a build, with its log."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def progress(self) -> int:
        """How far it has come: a number that grows while it works."""
        raise AssertionError("each kind has its own")

    def end(self) -> None:
        """End it in order."""
        self.process.terminate()
        assert self.process.ends(END_SECONDS) in (0, -15), self.process.text()

    def check(self) -> None:
        """Fail if it has ended by itself."""
        assert self.process.process.poll() is None, self.process.text()


class Sink(Running):
    """A stream that is written."""

    def __init__(self, process: Process, state: Path) -> None:
        super().__init__(process)
        self._state = state

    def progress(self) -> int:
        """The batches of the stream."""
        return int(self._state.read_text()) if self._state.exists() else 0


class Dispatcher(Running):
    """A dispatcher that delivers."""

    def progress(self) -> int:
        """Its attempts."""
        # Counted, not parsed: the log of a long stage is read many times a second.
        return self.process.text().count('"what": "attempt"')


class Server(Running):
    """An API server that is read."""

    def __init__(self, process: Process, token: str) -> None:
        super().__init__(process)
        # One client: each new one reads the machine's certificates.
        self._client = httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=30)
        self._answers = 0

    def progress(self) -> int:
        """Its answers; asking is part of the question."""
        match = re.search(r"listening on (\S+)", self.process.text())
        if match is None:
            return 0
        for path in ("overview", "streams", "dispatchers", "entries", "endpoints", "database"):
            answer = self._client.get(f"{match[1]}/api/v1/{path}")
            assert answer.status_code == 200, f"{path}: {answer.text}"
            self._answers += 1
        return self._answers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()


@contextmanager
def sink(build: Build, dsn: str, state: Path, load: Load, folder: Path) -> Iterator[Sink]:
    """Run a sink of the stream that `state` is named for, from where another one has left it."""
    arguments = (state.stem, str(state), str(load.subjects), str(load.pause_seconds))
    command = [sys.executable, str(SINK_LOAD), *arguments]
    with _started(build, dsn, command, folder / f"{state.stem}-{build.name}.log") as process:
        yield Sink(process, state)


@contextmanager
def dispatcher(build: Build, dsn: str, folder: Path) -> Iterator[Dispatcher]:
    """Run a dispatcher."""
    log = folder / f"dispatcher-{build.name}.log"
    environment = build.environment(dsn)
    with dispatching(dsn, log, environment=environment, launcher=(build.command,)) as process:
        yield Dispatcher(process)


@contextmanager
def server(build: Build, dsn: str, token: str, folder: Path) -> Iterator[Server]:
    """Run an API server."""
    command = [sys.executable, "-m", build.command, "api", "serve", "--port", "0"]
    log = folder / f"api-{build.name}.log"
    with _started(build, dsn, command, log) as process, Server(process, token) as running:
        yield running


@contextmanager
def _started(build: Build, dsn: str, command: Sequence[str], log: Path) -> Iterator[Process]:
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command,
            env={**os.environ, **build.environment(dsn)},
            cwd=build.code,
            stdout=stream,
            stderr=stream,
        )
    try:
        yield Process(process, log)
    finally:
        process.kill()
        process.wait()


def build_of(commit: str, folder: Path) -> Build:
    """Return the code of a commit of this repository. Raises `NotHere`."""
    git = shutil.which("git")
    if git is None:
        raise NotHere("there is no git, so the older version cannot be had")
    done = subprocess.run(
        [git, "cat-file", "-e", f"{commit}^{{commit}}"], cwd=ROOT, capture_output=True, check=False
    )
    if done.returncode:
        raise NotHere(f"this clone does not have {commit} (git fetch --unshallow --tags)")
    archive = subprocess.run(
        [git, "archive", "--format=zip", commit, *PACKAGES, "tests", "pyproject.toml"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    with ZipFile(BytesIO(archive.stdout)) as packed:
        packed.extractall(folder)
    _register(folder)
    return Build(folder.name, folder)


def _register(folder: Path) -> None:
    """Let a version find its own groups of commands, and not those that are installed."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    info = folder / f"holdfast-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: holdfast\nVersion: {project['version']}\n")
    (info / "entry_points.txt").write_text(
        "".join(
            f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in points.items())
            for group, points in project["entry-points"].items()
        )
    )


def this_build() -> Build:
    """Return the code of this tree."""
    return Build("this", ROOT)


def next_build(folder: Path) -> tuple[Build, Pair]:
    """Return a next release of this tree, which needs what its expand revision adds."""
    folder.mkdir()
    shutil.copy(ROOT / "setup.py", folder)
    for package in (*PACKAGES, "tests"):
        # With what Python has compiled, which it finds by the times of the sources.
        kept = shutil.ignore_patterns("golden")
        shutil.copytree(ROOT / package, folder / package, ignore=kept)
    links = folder / LINKS / "holdfast"
    links.mkdir(parents=True)
    for package in PACKAGES:
        (links / package).symlink_to(folder / package)
    (links / "receiver").symlink_to(folder / "dispatcher" / "receiver")
    (links / "testing").symlink_to(folder / "sink" / "testing")
    pair = write_pair(folder / "migrations" / "versions", SCHEMA_REVISION)
    schema = folder / "sink" / "contract" / "schema.py"
    text, count = re.subn(
        r'^(SCHEMA_REVISION|WORKS_FROM) = "\d{4}"',
        lambda match: (
            f'{match[1]} = "{pair.contract if match[1] == "SCHEMA_REVISION" else pair.expand}"'
        ),
        schema.read_text(),
        flags=re.MULTILINE,
    )
    assert count == 2
    schema.write_text(text)
    _insert(folder / "sink/transaction/sql/batch.sql", "add_batch", "written_at", "%(written_at)s")
    beat = "dispatcher/delivery/store/sql/upkeep.sql"
    _insert(folder / beat, "instance_beat", "draining", "%(draining)s")
    return Build("next", folder), pair


def _insert(file: Path, statement: str, column: str, value: str) -> None:
    """Let a statement write the new column after another one."""
    before, heading, text = file.read_text().partition(f"-- name: {statement}\n")
    text, columns = re.subn(rf"\b{column}(?=\s*\))", f"{column}, writer", text, count=1)
    text, values = re.subn(rf"{re.escape(value)}(?=\s*\))", f"{value}, 'next'", text, count=1)
    assert (columns, values) == (1, 1), file
    file.write_text(before + heading + text)

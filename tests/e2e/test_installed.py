"""The wheel alone, in a project that has a `sink/`, a `deploy/` and a `migrations/` of its own.

Real: pip, Spark, Postgres, HTTP. The project's programs are the examples of the README.
"""

import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

import psycopg
import pytest

from holdfast import receiver, sink
from holdfast.deploy.local.java import spark_environment
from tests.support.dispatch.sender import secret_text
from tests.support.documents.pages import blocks_of
from tests.support.job.class_archive import OPTIONS
from tests.support.job.environments import build_wheel

pytestmark = pytest.mark.rest

ROOT = Path(__file__).parents[2]

OWN = ("sink", "dispatcher", "deploy", "migrations")
"""Packages of the project."""

PYRIGHT = ROOT / ".holdfast" / "pyright" / "index.js"
"""Where `make pyright` unpacks it."""

WRITE = """\
import os
from pathlib import Path

import {own} as own
from pyspark.sql import SparkSession

from holdfast.sink import OutboxSink

assert own.OWNER == "the shop"
dsn = os.environ["HOLDFAST_DSN"]
spark = SparkSession.builder.master("local[1]").getOrCreate()
columns = (
    "subject string, type string, key array<string>, occurred_at timestamp,"
    " data struct<merchant_id: string>"
)
decisions = spark.readStream.schema(columns).json("decisions")
{example}
query.processAllAvailable()
query.stop()
"""

RECEIVE = """\
import asyncio
import os
import socket

import {own} as own
import uvicorn
from psycopg_pool import AsyncConnectionPool

assert own.OWNER == "the shop"
pool = AsyncConnectionPool(os.environ["SHOP_DSN"], open=False)


async def hold_the_payouts(connection, order):
    await connection.execute("INSERT INTO held VALUES (%s)", [order.text("merchant_id")])

{example}

async def serve():
    async with pool:
        async with pool.connection() as connection:
            await connection.execute(inbox.ddl)
            await connection.execute("CREATE TABLE held (merchant text)")
        listening = socket.create_server(("127.0.0.1", 0))
        print(listening.getsockname()[1], flush=True)
        await uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve([listening])


asyncio.run(serve())
"""

TYPED = """\
from typing import Protocol

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.receiver import {receiver}
from holdfast.receiver import Body
from holdfast.sink import {sink}

PUBLIC: list[object] = [{receiver}, {sink}]


def write(decisions: DataFrame, dsn: str) -> StreamingQuery:
{writing}
    return query


class Action(Protocol):
    async def __call__(self, connection: AsyncConnection, order: Body) -> None: ...


def receive(pool: AsyncConnectionPool, hold_the_payouts: Action) -> None:
{receiving}
"""
"""Every public name, and the examples of the README as functions."""

DECISION = {
    "subject": "m_482",
    "type": "payout_hold.block",
    "key": ["m_482", "2026-11-02"],
    "occurred_at": "2026-11-02T12:15:00Z",
    "data": {"merchant_id": "m_482"},
}


@dataclass(frozen=True)
class Installed:
    """A project beside an environment into which the wheel was installed."""

    bin: Path
    project: Path

    def run(self, *command: str, **environment: str) -> str:
        """Return what a program of the environment says on stdout; it ends with 0."""
        done = subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=self.project,
            env={**_environment(), **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def running(self, program: str, **environment: str) -> Iterator[str]:
        """Run a Python program of the project until the block ends; its first line."""
        process = subprocess.Popen(
            [str(self.bin / "python"), program],
            cwd=self.project,
            env={**_environment(), **environment},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout
            yield process.stdout.readline().strip()
        finally:
            process.kill()
            process.communicate()


def _environment() -> Mapping[str, str]:
    kept = ("PATH", "HOME", *OPTIONS)
    return {name: os.environ[name] for name in kept if name in os.environ}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel of this tree in an environment of its own.

    What it depends on comes from the environment of the tests, which is not searched for Holdfast:
    a path in a .pth file is searched for modules, and for no further .pth file.
    """
    folder = tmp_path_factory.mktemp("installed")
    wheel = build_wheel(folder)
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    into = ("--python", str(environment / "bin" / "python"), "install", "--no-deps", "--no-index")
    subprocess.run([*pip, *into, str(wheel)], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    assert {each.name.partition("-")[0] for each in packages.iterdir()} == {"holdfast"}
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    project = folder / "project"
    for name in OWN:
        (project / name).mkdir(parents=True)
        (project / name / "__init__.py").write_text('OWNER = "the shop"\n')
    return Installed(environment / "bin", project)


def test_wheel_works_in_a_project_with_folders_of_the_same_names(
    installed: Installed, make_database: Callable[[str | None], str]
) -> None:
    dsn, shop_dsn, secret = make_database(None), make_database(None), secret_text()
    writing, receiving = blocks_of("README.md", "python")
    project = installed.project
    (project / "decisions").mkdir()
    (project / "decisions" / "0.json").write_text(json.dumps(DECISION))
    example = writing.replace("/checkpoints", str(project / "checkpoints"))
    (project / "write.py").write_text(WRITE.format(own="sink", example=example))
    (project / "receive.py").write_text(RECEIVE.format(own="dispatcher", example=receiving))

    installed.run("holdfast", "db", "upgrade", HOLDFAST_DSN=dsn)
    settings = {"HOLDFAST_DSN": dsn, "PAYOUTS_SECRET": secret, "HOLDFAST_SECRET_PAYOUTS": secret}
    with installed.running("receive.py", SHOP_DSN=shop_dsn, **settings) as port:
        words = (
            f"endpoint add payouts --url http://127.0.0.1:{port}/webhooks"
            " --secret-ref env:HOLDFAST_SECRET_PAYOUTS --allow-cidr 127.0.0.0/8"
        )
        installed.run("holdfast", *words.split(), **settings)
        own = spark_environment() | {"PYSPARK_PYTHON": str(installed.bin / "python")}
        installed.run("python", "write.py", HOLDFAST_DSN=dsn, **own)
        installed.run("holdfast", "dispatch", "--drain", **settings)
    with psycopg.connect(shop_dsn) as shop:
        assert shop.execute("SELECT merchant FROM held").fetchall() == [("m_482",)]


def test_new_job_passes_its_tests_and_runs_under_its_name(
    installed: Installed, make_database: Callable[[str | None], str], template_database: str
) -> None:
    dsn = make_database(template_database)
    own = spark_environment() | {"PYSPARK_PYTHON": str(installed.bin / "python")}
    installed.run("holdfast", "job", "new", "refund_check")
    installed.run("python", "-m", "pytest", "refund_check", **own)
    installed.run("python", "refund_check/job.py", "--available-now", HOLDFAST_DSN=dsn, **own)
    with psycopg.connect(dsn) as db:
        rows = db.execute("SELECT type, count(*) FROM holdfast.entry GROUP BY 1 ORDER BY 1")
        assert rows.fetchall() == [("refund_check.hold", 3), ("refund_check.release", 2)]
        refused = db.execute("SELECT rule FROM holdfast.quarantine ORDER BY 1").fetchall()
        assert refused == [("no_amount",), ("other_currency",), ("unreadable",)]


def _checked(installed: Installed, checker: str, text: str) -> str:
    """What a checker says of a module of the project, in its strictest mode."""
    (installed.project / "checked.py").write_text(text)
    python = str(installed.bin / "python")
    if checker == "mypy":
        command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", python]
    else:
        settings = installed.project / "pyrightconfig.json"
        settings.write_text(json.dumps({"typeCheckingMode": "strict", "include": ["checked.py"]}))
        command = ["node", str(PYRIGHT), "--pythonpath", python, "--project", str(settings)]
    files = ["checked.py"] if checker == "mypy" else []
    done = subprocess.run(
        [*command, *files], cwd=installed.project, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_every_public_name_has_a_type_for_a_strict_checker(
    installed: Installed, checker: str
) -> None:
    if checker == "pyright" and not PYRIGHT.exists():
        pytest.skip("pyright is not staged: `make pyright` fetches it by npm")
    writing, receiving = (indent(each, "    ") for each in blocks_of("README.md", "python"))
    names = {"receiver": receiver.__all__, "sink": sink.__all__}
    imported = {name: ", ".join(public) for name, public in names.items()}
    output = _checked(
        installed, checker, TYPED.format(**imported, writing=writing, receiving=receiving)
    )
    assert "0 errors" in output or "no issues found" in output, output
    # Were a name `Any`, as of a package without types, this would be no error.
    lines = [f"from holdfast.{module} import {public}" for module, public in imported.items()]
    wrong = [f"{name}.no_such_attribute" for public in names.values() for name in public]
    output = _checked(installed, checker, "\n".join([*lines, *wrong]))
    marked = {int(number) for number in re.findall(r"checked\.py:(\d+).*no_such_attribute", output)}
    first = len(lines) + 1
    assert marked == set(range(first, first + len(wrong))), output

"""The receivers in other languages, built and started by the commands of their page."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL

import httpx
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.support.dispatch.sender import OTHER_KEY_BYTES, secret_text
from tests.support.pages import ROOT, blocks_of, commands
from tests.support.runbook_world import free_port
from tests.support.servers.fault_proxy import FaultProxy
from tests.support.waiting import eventually

PAGE = "docs/receivers/other-languages.md"
FOLDERS = ROOT / "dispatcher" / "receiver" / "snippets"
PROGRAMS = {
    "go": ("go",),
    "java": ("java", "javac", "mvn"),
    "php": ("php",),
    "typescript": ("node", "npm"),
}
PATH = f"{os.environ['PATH']}:/usr/local/go/bin"
BUILD_SECONDS_MAX = 300


@dataclass(frozen=True)
class Running:
    """A receiver that runs."""

    url: str
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """SIGKILL it, with the processes that it started."""
        os.killpg(self.process.pid, SIGKILL)
        self.process.wait()


def built(language: str, folder: Path) -> Path:
    """Copy a receiver and build it; skips the test where one of its programs is missing."""
    for program in PROGRAMS[language]:
        if shutil.which(program, path=PATH) is None:
            pytest.skip(f"{program} is not installed: the receiver in {language} was left out")
    if language == "php" and "pdo_pgsql" not in _output("php", "-m"):
        pytest.skip("pdo_pgsql of PHP is not installed: its receiver was left out")
    copy = folder / language
    shutil.copytree(FOLDERS / language, copy)
    *steps, _ = _steps(language)
    for step in steps:
        _output("sh", "-c", step, folder=copy)
    return copy


@contextmanager
def running(folder: Path, dsn: str) -> Iterator[Running]:
    """Run a receiver that was built, on a database, until the block ends."""
    *_, start = _steps(folder.name)
    with FaultProxy.before_postgres(dsn) as proxy:  # over TCP, because JDBC knows no Unix socket
        target = conninfo_to_dict(proxy.dsn_of(dsn))
        address = f"{target['host']}:{target['port']}/{target['dbname']}"
        user, password = target["user"], target.get("password", "")
        port = free_port()
        started = subprocess.Popen(
            ["sh", "-c", start.replace("8080", str(port))],  # noqa: S607 - the shell of the reader
            cwd=folder,
            env={
                **os.environ,
                "PATH": PATH,
                "TZ": "Asia/Kolkata",  # an answer has UTC
                "PORT": str(port),
                "PAYOUTS_SECRETS": f"{secret_text()} {secret_text(OTHER_KEY_BYTES)}",
                "PGHOST": str(target["host"]),
                "PGPORT": str(target["port"]),
                "PGUSER": str(user),
                "PGPASSWORD": str(password),
                "PGDATABASE": str(target["dbname"]),
                "JDBC_URL": f"jdbc:postgresql://{address}?user={user}&password={password}",
            },
            start_new_session=True,
        )
        receiver = Running(f"http://127.0.0.1:{port}/webhooks", started)
        try:
            eventually(lambda: _answers(receiver))
            yield receiver
        finally:
            if started.poll() is None:
                receiver.kill()


def _steps(language: str) -> list[str]:
    """Return the commands of the page, without the first, which enters the folder."""
    [block] = [each for each in blocks_of(PAGE, "sh") if each.startswith(f"cd {language}\n")]
    return list(commands(block))[1:]


def _answers(receiver: Running) -> bool:
    assert receiver.process.poll() is None, "the receiver ended"
    try:
        return httpx.get(receiver.url, timeout=30).status_code == 405
    except httpx.TransportError:
        return False


def _output(*words: str, folder: Path | None = None) -> str:
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "PATH": PATH},
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout

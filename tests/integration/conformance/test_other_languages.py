"""The receivers of docs/receivers/other-languages.md: graded, killed before COMMIT, and made wrong.

`make test-receivers` has all of them, `make test-rest` the one in PHP, which fetches and builds
nothing. They are built and started by the commands of the page, on a real Postgres.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL

import httpx
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast.deploy.local.ports import free_port
from tests.support.command import holdfast
from tests.support.dispatch.payouts import empty_database
from tests.support.dispatch.sender import OTHER_KEY_BYTES, body, headers, secret_text
from tests.support.documents.pages import ROOT, blocks, blocks_of, commands
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


LANGUAGES = os.environ.get("HOLDFAST_TEST_RECEIVERS", "php").split()

READERS_DISAGREE = {"body.member-twice", "body.float", "body.large-integer", "body.nul"}
WARNINGS = {
    "go": READERS_DISAGREE | {"body.lone-surrogate"},
    "java": READERS_DISAGREE | {"body.lone-surrogate"},
    "php": READERS_DISAGREE,
    "typescript": READERS_DISAGREE | {"body.lone-surrogate", "body.deep"},
}
"""What the JSON reader of a language lets pass; a receiver SHOULD refuse it."""

PAUSE = 482
"""An advisory lock: while a test has it, the action of a receiver waits for it, before COMMIT."""

PAUSED = """
    CREATE FUNCTION payouts.pause() RETURNS trigger LANGUAGE plpgsql
        AS $$ BEGIN PERFORM pg_advisory_xact_lock(482); RETURN NULL; END $$;
    CREATE TRIGGER pause AFTER INSERT ON payouts.hold
        FOR EACH STATEMENT EXECUTE FUNCTION payouts.pause()
"""
WAITING = """
    SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 482 AND NOT granted
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
OTHERS = """
    SELECT count(*) FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
KEPT = "SELECT (SELECT count(*) FROM payouts.inbox), (SELECT count(*) FROM payouts.hold)"


@pytest.fixture(scope="module", params=LANGUAGES)
def receiver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a receiver that was built."""
    return built(request.param, tmp_path_factory.mktemp("receiver"))


@pytest.fixture
def dsn(server_dsn: str) -> Iterator[str]:
    """A database with what the page installs."""
    [install] = [each for each in blocks_of(PAGE, "sh") if each.startswith("psql")]
    with empty_database(server_dsn) as made:
        with psycopg.connect(made, autocommit=True) as db:
            for file in re.findall(r"-f (\S+)", install):
                db.execute((ROOT / file).read_bytes())
        yield made


def sent(url: str, content: bytes) -> httpx.Response:
    return httpx.post(url, content=content, headers=headers(content), timeout=60)


def killed_before_commit(folder: Path, dsn: str) -> tuple[int, int]:
    """Kill a receiver while its action waits; return the keys and the actions that are kept."""
    with (
        psycopg.connect(dsn, autocommit=True) as db,
        running(folder, dsn) as process,
        ThreadPoolExecutor(1) as sender,
    ):
        db.execute(PAUSED)
        db.execute("SELECT pg_advisory_lock(%s)", [PAUSE])
        first = sender.submit(sent, process.url, body())
        eventually(lambda: db.execute(WAITING).fetchone() == (1,))
        again = sent(process.url, body())
        if again.status_code != 200:
            assert (again.status_code, again.headers["retry-after"]) == (409, "1")
            assert again.json()["outcome"] == "in_progress"
        process.kill()
        assert isinstance(first.exception(), httpx.TransportError)
        db.execute("SELECT pg_advisory_unlock(%s)", [PAUSE])
        eventually(lambda: db.execute(OTHERS).fetchone() == (0,))
        kept: tuple[int, int] | None = db.execute(KEPT).fetchone()
    assert kept is not None
    return kept


@pytest.mark.rest
def test_receiver_in_another_language_conforms(receiver: Path, dsn: str) -> None:
    [command] = [each for each in blocks_of(PAGE, "sh") if each.startswith("holdfast conform")]
    _, _, _, *options = command.split()
    with running(receiver, dsn) as process:
        words = ["conform", process.url, *options, "--json"]
        words += ["--second-secret-ref", "env:PAYOUTS_SECOND_SECRET"]
        if receiver.name == "php":  # its server has no deadline for a body
            words += ["--skip", "slow.*"]
        secrets = {
            "PAYOUTS_SECRET": secret_text(),
            "PAYOUTS_SECOND_SECRET": secret_text(OTHER_KEY_BYTES),
        }
        ended = holdfast(*words, environment=secrets)
    report = json.loads(ended.stdout)
    grades = {rule["rule"]: rule["grade"] for rule in report["rules"]}
    assert {rule for rule, grade in grades.items() if grade == "fail"} == set()
    warned = {rule for rule, grade in grades.items() if grade == "warn"}
    assert (warned, report["stopped"]) == (WARNINGS[receiver.name], None)
    assert len(grades) >= 110
    with psycopg.connect(dsn) as db:
        query = "SELECT count(*) - count(DISTINCT key), count(*) >= 25 FROM payouts.hold"
        assert db.execute(query).fetchone() == (0, True)


@pytest.mark.rest
def test_killed_before_commit_keeps_neither_key_nor_action(receiver: Path, dsn: str) -> None:
    assert killed_before_commit(receiver, dsn) == (0, 0)
    with running(receiver, dsn) as process:
        answers = [sent(process.url, body()) for _ in range(2)]
    assert [each.json()["outcome"] for each in answers] == ["applied", "duplicate"]
    assert re.fullmatch(r"[\d-]+T[\d:]+\.\d{6}Z", answers[0].json()["applied_at"])
    with psycopg.connect(dsn) as db:
        assert db.execute(KEPT).fetchone() == (1, 1)


@pytest.fixture
def wrong(tmp_path: Path) -> Callable[[str, str], Path]:
    """Make the receiver in PHP wrong: replace a part of it."""
    folder = built("php", tmp_path)

    def make(part: str, other: str) -> Path:
        file = folder / "receiver.php"
        text = file.read_text()
        assert text.count(part) == 1
        file.write_text(text.replace(part, other))
        return folder

    return make


@pytest.mark.rest
def test_call_outside_of_a_transaction_is_refused(
    wrong: Callable[[str, str], Path], dsn: str
) -> None:
    wrong("$db->beginTransaction();", "")
    with running(wrong("$db->commit();", ""), dsn) as process:
        assert sent(process.url, body()).status_code == 503
    with psycopg.connect(dsn) as db:
        assert db.execute(KEPT).fetchone() == (0, 0)


@pytest.mark.rest
def test_key_committed_before_its_action_is_seen(
    wrong: Callable[[str, str], Path], dsn: str
) -> None:
    action = "if ($receipt['outcome'] === 'applied') {"
    folder = wrong(action, f"$db->commit();\n    $db->beginTransaction();\n    {action}")
    assert killed_before_commit(folder, dsn) == (1, 0)


@pytest.mark.rest
def test_page_shows_code_of_the_receivers() -> None:
    shown = [each for each in blocks() if each.page == PAGE and each.language not in {"", "sh"}]
    assert {each.language for each in shown} == {"go", "java", "php", "ts"}
    files = {unindented(each.read_text()) for each in FOLDERS.rglob("*.*") if each.is_file()}
    assert [
        each.first for each in shown if not any(unindented(each.text) in f for f in files)
    ] == []


def unindented(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines())

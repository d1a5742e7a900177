"""`holdfast payouts` as a person meets it: what it prints, how it ends."""

import json
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from secrets import token_hex

import psycopg
import pytest
from click.testing import Result
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from typer.testing import CliRunner

from holdfast.deploy.payouts import database, server
from holdfast.deploy.payouts.app import build
from holdfast.deploy.payouts.cli import app
from holdfast.deploy.payouts.database import create_tables
from holdfast.receiver import Inbox, Secret
from holdfast.sink.contract.exits import CommandError, ExitCode
from tests.support.command import holdfast
from tests.support.dispatch.payouts import Payouts, payouts
from tests.support.dispatch.sender import KEY_BYTES, Sent, secret_text

pytestmark = pytest.mark.rest

REFERENCE = ("--secret-ref", "env:TEST_SECRET")
WITH_SECRET = ("payouts", "serve", "--port", "0", *REFERENCE)


def invoke(*arguments: str, environment: Mapping[str, str] | None = None) -> Result:
    """Run the command in this process, for what is decided before a server starts."""
    clean = {"PAYOUTS_DSN": None, "TEST_SECRET": None}
    return CliRunner().invoke(app, arguments, env=clean | dict(environment or {}))


def test_service_writes_its_port_and_ends_cleanly_on_sigterm(
    make_database: Callable[[str | None], str], tmp_path: Path
) -> None:
    port_file = tmp_path / "port"
    with payouts(make_database(None), "--port-file", str(port_file)) as running:
        assert running.url == f"http://127.0.0.1:{int(port_file.read_text())}"
        assert running.send(Sent.of()).status_code == 200
        running.process.send_signal(signal.SIGTERM)
        assert running.wait() == ExitCode.OK
    assert [path.name for path in tmp_path.iterdir()] == ["port"]


def test_unwritable_port_file_stops_the_service_in_one_line(
    payouts_dsn: str, tmp_path: Path
) -> None:
    done = holdfast(
        *WITH_SECRET,
        "--port-file",
        str(tmp_path / "missing" / "port"),
        environment={"PAYOUTS_DSN": payouts_dsn, "TEST_SECRET": secret_text()},
    )
    assert (done.returncode, done.stdout) == (ExitCode.FAILED, "")
    assert "cannot be written" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_held_merchants_are_listed_for_people_and_for_programs(service: Payouts) -> None:
    assert invoke("held", "--dsn", service.dsn).stdout == "No merchant is held.\n"
    service.send(Sent.of("m_482", "block", 1))
    service.send(Sent.of("m_\x1b[2J", "block", 1))
    text = invoke("held", "--dsn", service.dsn).stdout
    assert "m_482  held since" in text
    assert "exposure 85,000.00 USD above 50,000.00 USD" in text
    assert "\x1b" not in text
    shown = json.loads(invoke("held", "--json", environment={"PAYOUTS_DSN": service.dsn}).stdout)
    assert {row["merchant_id"] for row in shown} == {"m_482", "m_\x1b[2J"}
    assert shown[0]["window_end"] == "2026-11-02T12:15:00Z"


def test_database_without_the_tables_is_named(
    make_database: Callable[[str | None], str],
) -> None:
    error = invoke("held", "--dsn", make_database(None)).exception
    assert isinstance(error, CommandError)
    assert "`holdfast payouts serve`" in str(error)


@pytest.fixture
def stranger(make_database: Callable[[str | None], str]) -> Iterator[tuple[str, str]]:
    """A database with the tables, and its DSN for a role that may do nothing there."""
    dsn, role, password = make_database(None), f"holdfast_test_{token_hex(6)}", token_hex(16)
    create_tables(dsn, Inbox())
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{password}'".encode())
        try:
            yield dsn, make_conninfo(dsn, user=role, password=password)
        finally:
            db.execute(f"DROP OWNED BY {role}".encode())
            db.execute(f"DROP ROLE {role}".encode())


def _refusals(*dsns: str) -> list[str]:
    """What `held` and `serve` say; both must end in one line, without a stack trace."""
    texts = []
    environment = {"TEST_SECRET": secret_text()}
    for dsn in dsns:
        for arguments in (("held",), ("serve", "--port", "0", *REFERENCE)):
            error = invoke(*arguments, "--dsn", dsn, environment=environment).exception
            assert isinstance(error, CommandError), repr(error)
            assert (error.exit_code, "\n" in str(error)) == (ExitCode.FAILED, False)
            texts.append(str(error))
    return texts


def test_role_that_may_not_read_the_tables_is_told_so(stranger: tuple[str, str]) -> None:
    dsn, theirs = stranger
    held, serve = _refusals(theirs)
    assert "permission denied for schema payouts. Nothing was changed" in held
    assert "permission denied for schema payouts. They are created together" in serve
    with psycopg.connect(dsn, autocommit=True) as db:
        role = conninfo_to_dict(theirs)["user"]
        db.execute(f"GRANT USAGE ON SCHEMA payouts TO {role}".encode())
    held = str(invoke("held", "--dsn", theirs).exception)
    assert "permission denied for table hold. Nothing was changed; " in held


def test_read_only_database_cannot_be_given_the_tables(
    make_database: Callable[[str | None], str],
) -> None:
    dsn = make_conninfo(make_database(None), options="-c default_transaction_read_only=on")
    _, serve = _refusals(dsn)
    assert "in a read-only transaction. They are created together" in serve


def test_losing_the_database_at_start_ends_in_one_line(
    payouts_dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its tables are there, and then no connection is to be had."""
    monkeypatch.setattr(database, "POOL_START_SECONDS_MAX", 0.5)
    gone = make_conninfo(payouts_dsn, dbname="holdfast_test_gone")
    failures: list[CommandError] = []
    service = build(gone, Inbox(), [Secret(KEY_BYTES)], failures.append)
    with server.bind("127.0.0.1", 0) as listener, pytest.raises(CommandError, match="database"):
        server.run(service, listener, lambda: _raise(failures))
    [failure] = failures
    assert failure.exit_code == ExitCode.FAILED
    assert "safe" in str(failure)
    assert "Traceback" not in caplog.text


def _raise(failures: list[CommandError]) -> None:
    for each in failures:
        raise each


def test_busy_port_is_one_clear_line_and_touches_nothing(
    make_database: Callable[[str | None], str],
) -> None:
    dsn = make_database(None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = holdfast(
            *WITH_SECRET,
            "--port",
            port,
            environment={"PAYOUTS_DSN": dsn, "TEST_SECRET": secret_text()},
        )
    assert done.returncode == ExitCode.FAILED
    assert f"port {port} on 127.0.0.1 is already in use" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT to_regnamespace('payouts')").fetchone() == (None,)


def test_unreachable_database_is_one_clear_line_without_its_password() -> None:
    dsn = "postgresql://u:canary-password@127.0.0.1:1/x"
    done = holdfast(*WITH_SECRET, environment={"PAYOUTS_DSN": dsn, "TEST_SECRET": secret_text()})
    assert (done.returncode, done.stdout) == (ExitCode.FAILED, "")
    assert "the payouts database did not answer" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "canary-password" not in done.stderr


@pytest.mark.parametrize(
    ("options", "environment", "code", "words"),
    [
        ((), {}, ExitCode.USAGE, "--secret-ref"),
        (("--secret-ref", secret_text()), {}, ExitCode.USAGE, "never the secret itself"),
        (REFERENCE, {}, ExitCode.USAGE, "TEST_SECRET is empty or not set"),
        (REFERENCE, {"TEST_SECRET": "whsec_short"}, ExitCode.USAGE, "env:TEST_SECRET"),
        (REFERENCE, {"TEST_SECRET": secret_text()}, ExitCode.USAGE, "PAYOUTS_DSN"),
        (
            (*REFERENCE, "--key-days", "3"),
            {"TEST_SECRET": secret_text(), "PAYOUTS_DSN": "postgresql:///x"},
            ExitCode.USAGE,
            "--key-days: ",
        ),
        (
            (*REFERENCE, "--host", "no such host"),
            {"TEST_SECRET": secret_text(), "PAYOUTS_DSN": "postgresql:///x"},
            ExitCode.FAILED,
            "cannot listen on no such host",
        ),
    ],
)
def test_wrong_setting_is_one_clear_line(
    options: tuple[str, ...], environment: dict[str, str], code: ExitCode, words: str
) -> None:
    error = invoke("serve", *options, environment=environment).exception
    assert isinstance(error, CommandError)
    assert (error.exit_code, words in str(error)) == (code, True), str(error)
    assert "\n" not in str(error)
    assert secret_text()[6:] not in str(error)

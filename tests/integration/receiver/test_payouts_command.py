"""`holdfast payouts` as a person meets it: what it prints, how it ends."""

import json
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

import psycopg
import pytest
from click.testing import Result
from typer.testing import CliRunner

from deploy.payouts.cli import app
from sink.contract.exits import CommandError, ExitCode
from tests.support.command import holdfast
from tests.support.payouts import Payouts, payouts
from tests.support.sender import Sent, secret_text

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


def test_port_file_that_cannot_be_written_stops_the_service_in_one_line(
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
    assert "start `holdfast payouts serve`" in str(error)


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
        (REFERENCE, {}, ExitCode.USAGE, "TEST_SECRET holds no signing secret"),
        (REFERENCE, {"TEST_SECRET": "whsec_short"}, ExitCode.USAGE, "env:TEST_SECRET"),
        (REFERENCE, {"TEST_SECRET": secret_text()}, ExitCode.USAGE, "PAYOUTS_DSN"),
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

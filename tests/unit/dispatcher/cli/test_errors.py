"""How the command prints an error: as text, and with --json as one line of JSON."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.dispatcher.cli import main as command
from holdfast.sink.contract.exits import CommandError, ExitCode
from tests.support.command import holdfast
from tests.support.documents.error_index import PAGE

START = "holdfast.dispatcher.cli.start"
NO_DATABASE = "no database: pass --dsn, set HOLDFAST_DSN, or start one with `holdfast local up`."


def test_json_error_is_one_line_with_code_and_exit_code() -> None:
    done = holdfast("status", "--json", code=2)
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert done.error == {"error": NO_DATABASE, "code": "missing_dsn", "exit_code": 2}


def test_error_without_json_is_text() -> None:
    assert holdfast("status", code=2).stderr == f"holdfast: {NO_DATABASE}\n"


def test_error_names_its_place_in_the_documents_where_a_site_is_set() -> None:
    site = {"HOLDFAST_DOCS_URL": "https://docs.example/holdfast/"}
    place = "https://docs.example/holdfast/docs/reference/errors/#missing_dsn"
    assert "### `missing_dsn`" in PAGE.read_text()
    shown = holdfast("status", code=2, environment=site).stderr
    assert shown == f"holdfast: {NO_DATABASE}\n{place}\n"
    assert holdfast("status", "--json", code=2, environment=site).error["docs"] == place


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("why", "--json", "--nope", "x"), "No such option: --nope"),
        (("why", "--nope", "--json", "x"), "No such option: --nope"),
        (("dead-letter", "list", "--limit", "x", "--json"), "'x' is not a valid integer"),
        (("dead", "nope", "--json"), "No such command 'nope'"),
        (("why", "--json"), "Missing argument 'KEY|SUBJECT'"),
        (("token", "list", "--json", "--json=1"), "does not take a value"),
    ],
)
def test_usage_errors_are_json_too(arguments: tuple[str, ...], text: str) -> None:
    done = holdfast(*arguments, code=2)
    assert (done.error["code"], done.error["exit_code"], done.stdout) == ("usage", 2, "")
    assert text in done.error["error"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("why", "--", "--json"),
        ("subject", "show", "--json-file"),
        ("why", "--nope", "--", "--json"),
    ],
)
def test_json_behind_two_dashes_is_no_option(arguments: tuple[str, ...]) -> None:
    done = holdfast(*arguments, code=2)
    assert not done.stderr.startswith("{")


@pytest.mark.parametrize(
    "arguments",
    [
        ("endpoint", "pause", "a", "--reason", "--json"),
        ("dead-letter", "list", "--endpoint", "--json"),
    ],
)
def test_value_that_reads_json_is_no_option(arguments: tuple[str, ...]) -> None:
    done = holdfast(*arguments, code=2)
    assert done.stderr == f"holdfast: {NO_DATABASE}\n"


def test_other_parts_print_json_errors_too() -> None:
    assert holdfast("db", "status", "--json", code=2).error["exit_code"] == ExitCode.USAGE


@pytest.mark.parametrize(
    ("raised", "code", "exit_code"),
    [
        (CommandError("a\nb\x1b[31m", ExitCode.DEGRADED, code="table_locked"), "table_locked", 4),
        (OSError(28, "No space left on device"), "system_error", 1),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "wrong"), "invalid_text", 2),
        (command.typer.Abort(), "aborted", 1),
    ],
)
def test_every_end_has_a_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    raised: Exception,
    code: str,
    exit_code: int,
) -> None:
    def run(**_: Any) -> None:
        command._Output.record(None, None, value=True)
        raise raised

    monkeypatch.setattr(command, "command", lambda *_: run)
    monkeypatch.setattr(sys, "argv", [str(Path(command.__file__)), "status", "--json"])
    with pytest.raises(SystemExit) as end:
        command.main()
    line = capsys.readouterr().err
    assert end.value.code == exit_code
    assert (line.count("\n"), f'"code": "{code}", "exit_code": {exit_code}' in line) == (1, True)


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_command_that_is_not_installed_says_what_to_install(package: str) -> None:
    program = f"import sys; sys.modules[{package!r}] = None; from {START} import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install '/path/to/holdfast[cli]'" in done.stderr
    assert "Traceback" not in done.stderr

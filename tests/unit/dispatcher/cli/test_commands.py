"""What the commands make of their options, and how they show help and subjects."""

from datetime import UTC, datetime
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from holdfast.dispatcher.cli.endpoints.settings import columns_of, complete
from holdfast.dispatcher.cli.main import _print_error, fill_help, help_of
from holdfast.dispatcher.cli.output import Page, print_page, print_rows
from holdfast.dispatcher.cli.verbs import show
from holdfast.dispatcher.operators.endpoints.settings import DEFAULTS
from holdfast.dispatcher.operators.subjects.verbs import subject_text
from holdfast.sink.contract.exits import CommandError, ExitCode

REF = "env:HOLDFAST_SECRET_A"
SOUND = {**DEFAULTS, "url": "https://payouts.example/"}


def checked(**options: Any) -> dict[str, Any]:
    return complete({**SOUND, **columns_of(options)})


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({"budget": "5d"}, {"budget_seconds": 432_000}),
        ({"budget": "90m"}, {"budget_seconds": 5400}),
        ({"slow_start": "0s"}, {"slow_start_seconds": 0}),
        ({"rate": 0}, {"rate_per_second": None}),
        ({"rate": 7}, {"rate_per_second": 7}),
        ({"allow_cidr": ["none"]}, {"allow_cidrs": []}),
        ({"ca": "none"}, {"ca_ref": None}),
        ({"inquiry": "default"}, {"inquiry_path": "/holdfast/keys/"}),
        ({"inquiry": "/v1/keys/"}, {"inquiry_path": "/v1/keys/"}),
        ({"inquiry": "none"}, {"inquiry_path": None}),
        ({"header": [f"X-A={REF}"]}, {"headers": {"x-a": REF}}),
        ({"header_literal": ["X-A=b=c"]}, {"headers_literal": {"x-a": "b=c"}}),
        (
            {"type": ["payout_hold.release", "payout_hold.block"]},
            {"types": ["payout_hold.block", "payout_hold.release"]},
        ),
        ({"total_timeout": 2}, {"total_timeout_ms": 2000, "connect_timeout_ms": 2000}),
        ({"type": [], "ca": None, "dsn": "x"}, {}),
    ],
)
def test_options_become_columns(options: dict[str, Any], columns: dict[str, Any]) -> None:
    assert checked(**options) == {**SOUND, **columns}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"header": [f"host={REF}"]}, "host"),
        ({"header_literal": ["x-a=b\r\nhost: c"]}, "visible ASCII"),
        ({"header": ["authorization=Bearer hunter2"]}, "env:VAR"),
        ({"header": ["x-jwt=hunter2"]}, "--header-literal"),
        ({"header_literal": ["authorization=Bearer hunter2"]}, "env:VAR"),
        ({"header_literal": ["x-a=***"]}, "masks"),
        ({"header_literal": [f"x-a={REF}"]}, "reference"),
        ({"header": [f"x-a={REF}"], "header_literal": ["x-a=1"]}, "twice"),
        ({"header": ["no-value"]}, "NAME=VALUE"),
        ({"header": ["x-a="]}, "visible ASCII"),
        ({"header_literal": ["x-a="]}, "visible ASCII"),
        ({"header": [f"x-a={REF}", f"X-A={REF}"]}, "twice"),
        ({"header_literal": [f"x-{n}=1" for n in range(17)]}, "16"),
        ({"ca": "-----BEGIN hunter2"}, "--ca"),
        ({"client_cert": REF}, "--client-cert and --client-key go together"),
        ({"client_cert": "env:HOLDFAST_DSN"}, "HOLDFAST_SECRET_"),
        ({"ca": "file:/etc/passwd"}, "/run/secrets/holdfast"),
        ({"header": ["x-a=env:PGPASSWORD"]}, "HOLDFAST_SECRET_"),
        ({"secret_ref": ["env:HOME"]}, "HOLDFAST_SECRET_"),
        ({"client_key": "hunter2"}, "--client-key"),
        ({"budget": "5"}, "--budget"),
        ({"budget": "1s"}, "--budget"),
        ({"budget": "31d"}, "--budget"),
        ({"budget": "\u0665d"}, "--budget"),
        ({"slow_start": "2d"}, "--slow-start"),
        ({"inquiry": "https://other.example/keys/"}, "--inquiry"),
        ({"inquiry": "/keys?key="}, "--inquiry"),
        ({"inquiry": "/ke ys/"}, "--inquiry"),
        ({"url": "http://payouts.example/"}, "--url is plain http://, which needs --allow-cidr"),
        ({"url": "https://127.0.0.1/"}, "private"),
        ({"url": "https://u:hunter2@x/"}, "password"),
        ({"url": "https://x/" + "y" * 2048}, "2048"),
        ({"allow_cidr": ["10.0.0.1/8"]}, "--allow-cidr"),
        ({"total_timeout": float("nan")}, "--total-timeout must be 0.001 to 120 seconds."),
        ({"connect_timeout": float("inf")}, "--connect-timeout must be 0.001 to 120 seconds."),
        ({"connect_timeout": 121.0}, "--connect-timeout must be 0.001 to 120 seconds."),
        ({"schedule": "5,x"}, "--schedule"),
        ({"secret_ref": ["whsec_hunter2"]}, "env:VAR"),
        ({"secret_ref": ["env:A", "env:B", "env:C"]}, "two"),
    ],
)
def test_refused_option_repeats_no_secret(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(CommandError) as refused:
        checked(**options)
    assert refused.value.exit_code is ExitCode.USAGE
    assert complaint in str(refused.value)
    assert "Nothing was changed" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_paragraph_is_one_line_and_brackets_stay() -> None:
    text = "Make it,\n    all of it.\n\n    [endpoint.NAME] is\n    a table."
    assert help_of(text) == "Make it, all of it.\n\n\\[endpoint.NAME] is a table."


@pytest.mark.parametrize("depth", [0, 1])
def test_help_of_every_command_shows_its_docstring_as_written(depth: int) -> None:
    app, group = typer.Typer(rich_markup_mode="rich"), typer.Typer()

    @group.command()
    @app.command()
    def made() -> None:
        """Make them.

        [endpoint.NAME] names one
        each.
        """

    @group.command()
    @app.command()
    def other() -> None:
        """Do something else."""

    app.add_typer(group, name="group")
    fill_help(app)
    words = [*["group"] * depth, "made", "--help"]
    done = CliRunner().invoke(app, words).output
    assert "[endpoint.NAME] names one each." in done


def test_error_drives_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    _print_error("stream a\x1b[2J\u202eb\nsecond line [red]")
    errors = capsys.readouterr().err
    assert all(line.isprintable() for line in errors.splitlines())
    assert "\\x1b[2J\\u202eb" in errors
    assert "second line [red]" in errors


NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)
FOUND: dict[str, Any] = {
    "last_sequence": 1,
    "last_type": "payout_hold.block",
    "last_occurred_at": NOW,
    "last_written_at": NOW,
    "transitions": [],
    "entries": [],
}
LANE: dict[str, Any] = {
    "endpoint": "payouts",
    "endpoint_state": "active",
    "state": "due",
    "held": "retrying",
    "delivered_sequence": 0,
    "last_sequence": 1,
    "waiting": 1,
    "attempt": 0,
    "due_at": NOW,
    "head_sequence": 1,
    "head_type": "payout_hold.block",
    "lease_until": None,
    "dead_letter": None,
    "breaker": "closed",
    "held_until": None,
    "on_hold": None,
}
NAMES = [
    ("m_1", "m_1"),
    ("m  two", "'m  two'"),
    ("m\ttab", r"$'m\x09tab'"),
    ("whsec_abcdefgh", "whsec_abcdefgh"),
]


@pytest.mark.parametrize(("name", "word"), [*NAMES, ("-x", "-x")])
def test_next_page_begins_behind_the_name_to_the_letter(
    name: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Page("subjects", [], name, option="after")
    print_page(page, lambda _: None, "", as_json=False)
    assert capsys.readouterr().out.splitlines()[-1].endswith(f"more rows: --after {word}")


@pytest.mark.parametrize(("name", "word"), [*NAMES, ("-x", "-- -x")])
def test_subject_that_waits_is_asked_about_to_the_letter(
    name: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show(subject_text({**FOUND, "name": name, "lanes": [LANE]}, {}))
    assert f"what it waits for: holdfast why {word}\n" in capsys.readouterr().out


def test_list_escapes_what_controls_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"merchant": "m\x1b[2J", "names": ["a\u202eb"], "lines": "one\ntwo\x9b"}
    print_rows([row], tuple(row), "Events")
    shown = capsys.readouterr().out
    assert all(line.isprintable() for line in shown.splitlines())
    assert all(words in shown for words in (r"m\x1b[2J", r"a\u202eb", r"two\x9b"))

"""`holdfast quarantine`: rows that were set aside are found, taken away and dismissed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa

from holdfast.sink import BatchInput
from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.dispatch.entries import REFUSED, decision
from tests.support.job.driver import Driver

AUDIT = "SELECT action, target, reason FROM holdfast.operator_action ORDER BY id"


def _set_aside(dsn: str, *reasons: str, stream: str = "payouts") -> None:
    """Write a batch with one refused source line for each reason."""
    refused = [
        {"reason": reason, "detail": f"{reason}\x1b[2J", "row": f'{{"line": {n}}}'}
        for n, reason in enumerate(reasons)
    ]
    table = pa.Table.from_pylist(refused, REFUSED)
    spark = Driver(dsn, stream=stream, select=lambda rows: BatchInput(rows, table))
    spark.batch(0, decision("m_1"))
    spark.sink.close()


def _json(dsn: str, *arguments: str) -> dict[str, Any]:
    done = holdfast("quarantine", *arguments, "--json", dsn=dsn)
    assert done.returncode == ExitCode.OK, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_rows_are_listed_by_stream_and_reason_page_by_page(dsn: str) -> None:
    _set_aside(dsn, "malformed", "bad_time", "malformed")
    _set_aside(dsn, "malformed", stream="other")
    rows = _json(dsn, "list")["rows"]
    assert [(row["stream"], row["reason"]) for row in rows] == [
        ("other", "malformed"),
        ("payouts", "malformed"),
        ("payouts", "bad_time"),
        ("payouts", "malformed"),
    ]
    assert "row" not in rows[0]
    wanted = ("--stream", "payouts", "--reason", "malformed", "--limit", "1")
    page = _json(dsn, "list", *wanted)
    assert len(page["rows"]) == 1
    older = _json(dsn, "list", *wanted, "--before", str(page["next_before"]))
    assert older["rows"][0]["id"] < page["rows"][0]["id"]


def test_one_row_is_shown_with_its_text_and_drives_no_terminal(dsn: str) -> None:
    _set_aside(dsn, "malformed")
    [listed] = _json(dsn, "list")["rows"]
    shown = _json(dsn, "show", str(listed["id"]))
    assert shown["row"] == '{"line": 0}'
    for arguments in (("list",), ("show", str(listed["id"]))):
        text = holdfast("quarantine", *arguments, dsn=dsn).stdout
        assert r"malformed\x1b[2J" in text
        assert "\x1b" not in text
    assert holdfast("quarantine", "show", "999", dsn=dsn).returncode == ExitCode.NOTHING_MATCHED


def test_export_writes_every_row_once_and_replaces_the_file_as_a_whole(
    dsn: str, tmp_path: Path
) -> None:
    reasons = ["malformed", "bad_time"] * 300
    _set_aside(dsn, *reasons)
    output = tmp_path / "rows.jsonl"
    output.write_text("before")
    done = holdfast("quarantine", "export", "--output", str(output), dsn=dsn)
    assert done.returncode == ExitCode.OK, done.stderr
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["reason"] for row in rows] == reasons
    assert [row["row"] for row in rows] == [f'{{"line": {n}}}' for n in range(600)]
    assert rows[0].keys() >= {"id", "stream", "batch_id", "detail", "quarantined_at", "resolution"}
    assert list(tmp_path.iterdir()) == [output]

    some = holdfast("quarantine", "export", "--reason", "bad_time", dsn=dsn)
    assert len(some.stdout.splitlines()) == 300
    none = ("quarantine", "export", "--reason", "bad_key", "--output", str(output))
    assert holdfast(*none, dsn=dsn).returncode == ExitCode.NOTHING_MATCHED
    assert len(output.read_text().splitlines()) == 600


def test_export_into_a_pipe_that_is_closed_ends_quietly(dsn: str) -> None:
    _set_aside(dsn, *["malformed"] * 900)
    command = [
        sys.executable,
        "-m",
        "holdfast.dispatcher.cli.main",
        "quarantine",
        "export",
        "--dsn",
        dsn,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == ExitCode.OK


def test_export_that_cannot_be_written_leaves_nothing_behind(dsn: str, tmp_path: Path) -> None:
    _set_aside(dsn, "malformed")
    (tmp_path / "taken").mkdir()
    done = holdfast("quarantine", "export", "--output", str(tmp_path / "taken"), dsn=dsn)
    assert done.returncode == ExitCode.USAGE
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_dismissed_row_is_closed_once_with_its_audit_row(dsn: str, db: psycopg.Connection) -> None:
    _set_aside(dsn, "malformed", "bad_time")
    second, first = (row["id"] for row in _json(dsn, "list")["rows"])
    done = _json(dsn, "dismiss", str(first), "--reason", "sent again")
    assert done == {"dismissed": [first], "resolved_before": []}
    assert [row["id"] for row in _json(dsn, "list")["rows"]] == [second]
    assert [row["id"] for row in _json(dsn, "list", "--all")["rows"]] == [second, first]

    again = holdfast("quarantine", "dismiss", str(first), "--reason", "x", dsn=dsn)
    assert again.returncode == ExitCode.NOTHING_MATCHED
    assert "dismissed already" in again.stderr
    assert "(sent again)" in again.stderr
    both = _json(dsn, "dismiss", str(first), str(second), "--reason", "as well")
    assert both["dismissed"] == [second]
    assert [row["id"] for row in both["resolved_before"]] == [first]
    assert db.execute(AUDIT).fetchall() == [
        ("quarantine.dismiss", f"quarantine {first}", "sent again"),
        ("quarantine.dismiss", f"quarantine {second}", "as well"),
    ]


def test_resolved_row_is_shown_with_who_when_and_why(dsn: str) -> None:
    _set_aside(dsn, "malformed", "bad_time")
    second, first = (row["id"] for row in _json(dsn, "list")["rows"])
    _json(dsn, "dismiss", str(first), "--reason", "sent again\x1b[2J")
    [row] = _json(dsn, "list", "--resolved")["rows"]
    assert (row["id"], row["resolution"]) == (first, "dismissed")
    assert row["resolution_reason"] == "sent again\x1b[2J"
    assert row["resolved_by"]
    shown = _json(dsn, "show", str(first))
    assert {name: shown[name] for name in row} == row
    assert _json(dsn, "show", str(second))["resolution_reason"] is None
    for arguments in (("list", "--resolved"), ("list", "--all"), ("show", str(first))):
        text = holdfast("quarantine", *arguments, dsn=dsn).stdout
        assert r"sent again\x1b[2J" in text
    export = holdfast("quarantine", "export", "--resolved", dsn=dsn).stdout.splitlines()
    assert [json.loads(line)["id"] for line in export] == [first]


def test_command_that_makes_no_sense_changes_nothing(dsn: str, db: psycopg.Connection) -> None:
    _set_aside(dsn, "malformed")
    for code, *arguments in (
        (ExitCode.NOTHING_MATCHED, "dismiss", "1", "999", "--reason", "x"),
        (ExitCode.USAGE, "dismiss", "1", "--reason", " "),
        (ExitCode.USAGE, "dismiss", "1", "--reason", "x" * 2001),
        (ExitCode.USAGE, "dismiss", "1"),
        (ExitCode.USAGE, "dismiss", "0", "--reason", "x"),
        (ExitCode.USAGE, "dismiss", str(2**63), "--reason", "x"),
        (ExitCode.USAGE, "dismiss", "--reason", "x"),
        (ExitCode.USAGE, "list", "--reason", "because"),
        (ExitCode.USAGE, "requeue", "1", "--reason", "x", "--row", "/nowhere/row.json"),
    ):
        done = holdfast("quarantine", *map(str, arguments), dsn=dsn)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
    assert db.execute(AUDIT).fetchall() == []
    assert db.execute("SELECT resolution FROM holdfast.quarantine").fetchall() == [(None,)]

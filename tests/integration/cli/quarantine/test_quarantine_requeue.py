"""`holdfast quarantine`: rows are found, taken away, dismissed, and put back once."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from holdfast.dispatcher.operators.common.session import Row, acting_as
from holdfast.dispatcher.operators.quarantine.actions import (
    Way,
    open_among,
    proposed,
    put_entries,
)
from holdfast.dispatcher.operators.quarantine.store import Filter, Quarantine
from holdfast.migrations.upgrade import downgrade
from holdfast.sink import BatchInput, SchemaMismatch
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.key import Key
from tests.support.command import holdfast
from tests.support.dispatch.sender import BLOCK, REFUSED, RELEASE, SCHEMA, decision
from tests.support.job.driver import Driver, set_aside
from tests.support.job.job_stream import contents, sequences
from tests.support.refusal import raises_code
from tests.support.world import World

GOOD: dict[str, Any] = {
    "subject": "m_9",
    "type": BLOCK,
    "key": ["payout-hold/v1", "m_9", "2026-11-02T12:15:00Z", "block", "1"],
    "occurred_at": "2026-11-02T12:15:00Z",
    "data": {"merchant_id": "m_9", "exposure_minor": 1, "tags": [{"a": None}]},
}
BAD = GOOD | {"data": GOOD["data"] | {"exposure_minor": 1.5}}
CUT = json.dumps({"cut": True, "bytes": 70_000, "beginning": "{"})

RESOLVED = "SELECT id, resolution::text FROM holdfast.quarantine ORDER BY id"
AUDIT = "SELECT action, target, reason FROM holdfast.operator_action ORDER BY id"


def _requeue(dsn: str, *arguments: object) -> tuple[int, dict[str, Any], str]:
    done = holdfast(
        *("quarantine", "requeue", *map(str, arguments), "--reason", "mended", "--json"), dsn=dsn
    )
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def _file(directory: Path, row: object) -> Path:
    path = directory / "row.json"
    path.write_text(json.dumps(row, indent=2))
    return path


def test_corrected_row_becomes_an_entry_once(world: World, tmp_path: Path) -> None:
    [number] = set_aside(world.dsn, ("bad_data", json.dumps(BAD)))
    corrected = _file(tmp_path, GOOD)
    code, reply, _ = _requeue(world.dsn, number, "--row", corrected)
    assert code == ExitCode.OK
    assert [row["id"] for row in reply["requeued"]] == [number]
    [(name, sequence, key, type_, _, _, batch_id, body)] = contents(world.db)["entry"]
    assert (name, sequence, type_, batch_id) == ("m_9", 1, BLOCK, number)
    assert key == Key.of(GOOD["key"]).digest
    assert json.loads(body)["data"] == GOOD["data"]
    assert world.db.execute(RESOLVED).fetchall() == [(number, "requeued")]
    assert world.db.execute(AUDIT).fetchall() == [
        ("quarantine.requeue", f"quarantine {number}", "mended")
    ]

    code, _, complaint = _requeue(world.dsn, number, "--row", corrected)
    assert code == ExitCode.NOTHING_MATCHED
    assert "requeued already" in complaint
    assert len(contents(world.db)["entry"]) == 1


def test_exported_line_is_requeued_after_correction(world: World, tmp_path: Path) -> None:
    wrong = [BAD | {"subject": f"m_{n}", "key": [f"k{n}"]} for n in range(3)]
    numbers = set_aside(world.dsn, *(("bad_data", json.dumps(row)) for row in wrong))
    code, reply, _ = _requeue(world.dsn, *numbers)
    assert code == ExitCode.FAILED
    assert "--row FILE" in reply["advice"]
    lines = world.holdfast("quarantine", "export").stdout.splitlines()
    first, second, _ = (json.loads(line) for line in lines)
    first["row"] = first["row"].replace("1.5", "1")
    second["row"] = json.loads(second["row"]) | {"data": GOOD["data"]}
    file = tmp_path / "rows.jsonl"
    file.write_text(f"{json.dumps(first)}\n\n{json.dumps(second)}\n")
    code, _, error = _requeue(world.dsn, *numbers, "--row", file)
    assert (code, f"but not row {numbers[2]}" in error) == (ExitCode.USAGE, True)
    assert _requeue(world.dsn, numbers[0], "--row", file)[0] == ExitCode.OK
    assert _requeue(world.dsn, *numbers[:2], "--row", file)[0] == ExitCode.OK

    shown = json.loads(world.holdfast("quarantine", "show", str(numbers[2]), "--json").stdout)
    shown["row"] = shown["row"].replace("1.5", "1")
    assert _requeue(world.dsn, numbers[2], "--row", _file(tmp_path, shown))[0] == ExitCode.OK
    assert [row[0] for row in contents(world.db)["entry"]] == ["m_0", "m_1", "m_2"]


def test_requeue_killed_before_its_mark_writes_nothing_twice(world: World) -> None:
    [number] = set_aside(world.dsn, ("bad_data", json.dumps(GOOD)))
    assert _requeue(world.dsn, number)[0] == ExitCode.OK
    before = contents(world.db)
    world.db.execute(
        "UPDATE holdfast.quarantine SET resolution = NULL, resolved_at = NULL, resolved_by = NULL"
    )
    code, reply, _ = _requeue(world.dsn, number)
    assert code == ExitCode.OK
    assert "written before" in reply["requeued"][0]["detail"]
    assert contents(world.db) == before
    assert world.db.execute(RESOLVED).fetchall() == [(number, "requeued")]


def test_other_row_for_a_requeued_number_is_refused(world: World, tmp_path: Path) -> None:
    [number] = set_aside(world.dsn, ("bad_data", json.dumps(GOOD)))
    _requeue(world.dsn, number)
    world.db.execute(
        "UPDATE holdfast.quarantine SET resolution = NULL, resolved_at = NULL, resolved_by = NULL"
    )
    other = _file(tmp_path, GOOD | {"priority": 5})
    code, reply, _ = _requeue(world.dsn, number, "--row", other)
    assert code == ExitCode.FAILED
    assert "another row was" in reply["refused"][0]["detail"]
    assert len(contents(world.db)["entry"]) == 1


def test_row_refused_again_stays_open_and_spends_no_number(world: World, tmp_path: Path) -> None:
    numbers = set_aside(
        world.dsn,
        ("bad_data", json.dumps(BAD | {"subject": "m_8", "key": ["m_8"]})),
        ("bad_data", json.dumps(GOOD)),
    )
    code, reply, _ = _requeue(world.dsn, *numbers)
    assert code == ExitCode.DEGRADED
    assert [row["id"] for row in reply["requeued"]] == [numbers[1]]
    assert [row["id"] for row in reply["refused"]] == [numbers[0]]
    assert "1.5 is not whole" in reply["refused"][0]["detail"]
    assert world.db.execute(RESOLVED).fetchall() == [(numbers[0], None), (numbers[1], "requeued")]

    assert _requeue(world.dsn, numbers[0])[0] == ExitCode.FAILED
    corrected = _file(tmp_path, GOOD | {"subject": "m_8", "key": ["m_8"]})
    assert _requeue(world.dsn, numbers[0], "--row", corrected)[0] == ExitCode.OK
    assert sequences(world.db, "m_8") == sequences(world.db, "m_9") == [1]


def test_corrected_row_that_is_no_entry_changes_nothing(world: World, tmp_path: Path) -> None:
    [number] = set_aside(world.dsn, ("bad_data", json.dumps(BAD)))
    before = contents(world.db)
    code, reply, _ = _requeue(world.dsn, number, "--row", _file(tmp_path, BAD))
    assert code == ExitCode.FAILED
    assert "1.5 is not whole" in reply["refused"][0]["detail"]
    assert contents(world.db) == before
    assert world.db.execute(AUDIT).fetchall() == []


def test_taken_key_is_reported_and_nothing_is_written(dsn: str, db: psycopg.Connection) -> None:
    spark = Driver(dsn, stream="other")
    spark.batch(0, decision("m_9"), decision("m_9", minor=1))
    spark.sink.close()
    [(number,)] = db.execute("SELECT id FROM holdfast.quarantine").fetchall()
    before = contents(db)
    code, reply, _ = _requeue(dsn, number)
    assert code == ExitCode.FAILED
    assert "recorded with" in reply["refused"][0]["detail"]
    assert contents(db) == before
    assert db.execute(RESOLVED).fetchall() == [(number, None)]


def test_older_row_is_refused_or_requeued_by_two_people(world: World) -> None:
    [number] = set_aside(world.dsn, ("bad_data", json.dumps(GOOD)))
    [(query_id,)] = world.db.execute("SELECT query_id FROM holdfast.stream").fetchall()
    spark = Driver(world.dsn, query_id=query_id)
    spark.batch(1, decision("m_9", 9, RELEASE))
    spark.sink.close()
    before = contents(world.db)
    code, reply, _ = _requeue(world.dsn, number)
    assert code == ExitCode.FAILED
    assert "newer entry" in reply["refused"][0]["detail"]
    assert contents(world.db) == before
    code, reply, error = _requeue(world.dsn, number, "--keep-repeats")
    assert (code, reply["requeued"], contents(world.db)) == (ExitCode.DEGRADED, [], before), error
    [proposed] = reply["proposed"]
    assert (proposed["differs"], proposed["overtakes"]["type"]) == ([], RELEASE)
    assert proposed["overtakes"]["key"] == Key.of(decision("m_9", 9, RELEASE)["key"]).text
    with acting_as("second"):
        approved = world.holdfast("proposal", "approve", proposed["proposal"], "--reason", "older")
        assert approved.returncode == ExitCode.OK, approved.stderr
    assert _requeue(world.dsn, number, "--proposal", proposed["proposal"])[0] == ExitCode.OK
    assert sequences(world.db, "m_9") == [1, 2]


def test_store_puts_back_only_the_approved_text(world: World) -> None:
    [number] = set_aside(world.dsn, ("bad_type", json.dumps(GOOD | {"type": "a b"})))
    with Quarantine.connect(world.dsn) as store:
        rows, _ = open_among(store, [number])
        [waiting] = proposed(store, rows, {number: json.dumps(GOOD)}, "test", Way())
        with acting_as("second"):
            store.approve(waiting["proposal"], "test")
        other, id_ = {number: json.dumps(GOOD | {"subject": "m_1"})}, waiting["proposal"]
        with raises_code("proposal_mismatch"):
            put_entries(world.dsn, store, rows, other, "x", suppress_repeats=True, proposal=id_)
    assert contents(world.db)["entry"] == []


def test_source_lines_go_back_to_the_job_once(world: World, tmp_path: Path) -> None:
    lines = ['{"event_id": "e1", "currency": "EUR"}', '{"event_id": "é\\u0000"']
    numbers = set_aside(world.dsn, ("wrong_currency", lines[0]), ("malformed", lines[1]))
    code, reply, _ = _requeue(world.dsn, *numbers, "--into", tmp_path)
    assert code == ExitCode.OK
    assert [row["id"] for row in reply["requeued"]] == numbers
    paths = sorted(tmp_path.iterdir())
    assert {path.suffix for path in paths} == {".json"}
    assert [path.read_text().splitlines() for path in paths] == [[line] for line in lines]
    assert [state for _, state in world.db.execute(RESOLVED).fetchall()] == ["requeued", "requeued"]

    world.db.execute(
        "UPDATE holdfast.quarantine SET resolution = NULL, resolved_at = NULL, resolved_by = NULL"
    )
    written = [path.stat().st_mtime_ns for path in paths]
    assert _requeue(world.dsn, numbers[0], "--into", tmp_path)[0] == ExitCode.OK
    assert _requeue(world.dsn, numbers[1], "--into", tmp_path)[0] == ExitCode.OK
    assert sorted(tmp_path.iterdir()) == paths
    assert [path.stat().st_mtime_ns for path in paths] == written


def test_corrected_source_line_is_written_on_one_line(dsn: str, tmp_path: Path) -> None:
    event = {"event_id": "e1", "merchant_id": "m_1", "currency": "USD"}
    [number] = set_aside(dsn, ("wrong_currency", json.dumps(event | {"currency": "EUR"})))
    (tmp_path / "in").mkdir()
    arguments = ("--row", _file(tmp_path, event), "--into", tmp_path / "in")
    assert _requeue(dsn, number, *arguments)[0] == ExitCode.OK
    [path] = (tmp_path / "in").iterdir()
    [line] = path.read_text().splitlines()
    assert json.loads(line) == event


def test_row_that_cannot_go_that_way_is_refused(world: World, tmp_path: Path) -> None:
    entry, line, cut = set_aside(
        world.dsn, ("bad_data", json.dumps(GOOD)), ("malformed", "{"), ("bad_data", CUT)
    )
    before = contents(world.db)
    for arguments, complaint in (
        ((entry, line), "with --into"),
        ((line, entry, "--into", tmp_path), "omit --into"),
        ((cut, entry), "too long to be kept in full"),
        ((line, "--into", tmp_path / "nowhere"), "is not a directory"),
    ):
        code, _, error = _requeue(world.dsn, *arguments)
        assert code == ExitCode.USAGE
        assert complaint in error
        assert "Nothing was changed" in error
    assert contents(world.db) == before
    assert world.db.execute(AUDIT).fetchall() == []
    assert list(tmp_path.iterdir()) == []


def test_truncated_row_is_replaced_by_two_people(world: World, tmp_path: Path) -> None:
    [number] = set_aside(world.dsn, ("bad_data", CUT))
    _, reply, _ = _requeue(world.dsn, number, "--row", _file(tmp_path, GOOD))
    id_ = reply["proposed"][0]["proposal"]
    with acting_as("second"):
        assert world.holdfast("proposal", "approve", id_, "--reason", "x").returncode == 0
    assert _requeue(world.dsn, number, "--proposal", id_)[0] == ExitCode.OK
    assert sequences(world.db, "m_9") == [1]


def test_rows_of_two_streams_go_to_a_stream_each(dsn: str, db: psycopg.Connection) -> None:
    long = "s" * 63
    numbers = set_aside(dsn, ("bad_data", json.dumps(GOOD)))
    other = Driver(
        dsn,
        stream=long,
        select=lambda rows: BatchInput(
            rows,
            pa.Table.from_pylist(
                [
                    {
                        "reason": "bad_data",
                        "detail": "d",
                        "row": json.dumps(GOOD | {"subject": "m_8", "key": ["m_8"]}),
                    }
                ],
                REFUSED,
            ),
        ),
    )
    other.batch(0)
    other.sink.close()
    result_rows = db.execute("SELECT id FROM holdfast.quarantine ORDER BY id").fetchall()
    code, reply, error = _requeue(dsn, *(number for (number,) in result_rows))
    assert code == ExitCode.OK, error
    assert len(reply["requeued"]) == len(numbers) + 1
    streams = [name for name, _ in contents(db)["stream"] if name.endswith(".requeue")]
    assert len(streams) == 2
    assert all(len(name) <= 63 for name in streams)


def test_row_that_no_database_stores_is_refused_beside_others(world: World) -> None:
    unfit = [("bad_subject", json.dumps(GOOD | {"subject": name})) for name in ("m\0", "m\ud800")]
    numbers = set_aside(world.dsn, *unfit, ("bad_data", json.dumps(GOOD)))
    code, reply, complaint = _requeue(world.dsn, *numbers)
    assert code == ExitCode.DEGRADED, complaint
    assert [row["id"] for row in reply["refused"]] == numbers[:2]
    assert [row["id"] for row in reply["requeued"]] == numbers[2:]
    assert sequences(world.db, "m_9") == [1]


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
    return holdfast("quarantine", *arguments, "--json", dsn=dsn, code=ExitCode.OK).json


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


RULED = SCHEMA.append(pa.field("rejected", pa.string()))


def _ruled(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), RULED)


def test_rejected_row_is_listed_by_its_rule_and_put_back(world: World) -> None:
    row = decision("m_9", rejected="no_such_order")
    world.driver().tables(0, _ruled(row, decision("m_8", rejected="too_old"), decision("")))
    rows = _json(world.dsn, "list")["rows"]
    reasons = [("bad_subject", None), ("rejected", "too_old"), ("rejected", "no_such_order")]
    assert [(each["reason"], each["rule"]) for each in rows] == reasons
    assert len(_json(world.dsn, "list", "--reason", "rejected")["rows"]) == 2
    [listed] = _json(world.dsn, "list", "--reason", "no_such_order")["rows"]
    number = str(listed["id"])
    text = world.holdfast("quarantine", "list", "--wide").stdout
    assert "rejected: no_such_order" in text
    [exported] = world.holdfast("quarantine", "export", "--reason", "too_old").stdout.splitlines()
    assert json.loads(exported)["rule"] == "too_old"

    stream = holdfast("stream", "show", "payouts", "--json", dsn=world.dsn, code=ExitCode.OK).json
    counted = [(each["reason"], each["rule"]) for each in stream["open_quarantine"]]
    assert sorted(counted, key=str) == sorted(reasons, key=str)
    batch = holdfast("batch", "show", "payouts", "0", "--json", dsn=world.dsn, code=ExitCode.OK)
    refused = [(each["reason"], each["rule"]) for each in batch.json["refused"]]
    assert sorted(refused, key=str) == sorted(reasons, key=str)
    for words in (("stream", "show", "payouts"), ("batch", "show", "payouts", "0")):
        assert "rejected: too_old" in world.holdfast(*words, "--wide").stdout
    key = Key.of(row["key"]).text
    assert "(rejected: no_such_order)" in world.holdfast("why", json.dumps(row["key"])).stdout

    assert "rule" in world.holdfast("quarantine", "show", number).stdout
    assert _requeue(world.dsn, number)[0] == ExitCode.OK
    assert [entry[2] for entry in contents(world.db)["entry"]] == [Key.parse(key).digest]


def test_code_sets_aside_and_lists_on_the_schema_before_rules(world: World) -> None:
    downgrade(world.dsn, "0032")
    for staged in (False, True):
        world.driver(stream=f"s{staged:d}", staged=staged).batch(0, decision(""), decision("m_1"))
        ruled = world.driver(stream=f"r{staged:d}", staged=staged)
        with pytest.raises(SchemaMismatch, match="holdfast db upgrade"):
            ruled.tables(0, _ruled(decision("m_2", rejected="too_old")))
    rows = _json(world.dsn, "list", "--reason", "bad_subject")["rows"]
    assert [(row["stream"], row["rule"]) for row in rows] == [("s1", None), ("s0", None)]
    assert _json(world.dsn, "show", str(rows[0]["id"]))["rule"] is None
    assert len(world.holdfast("quarantine", "export").stdout.splitlines()) == 2
    for words in (("stream", "show", "s1"), ("batch", "show", "s1", "0")):
        assert "bad_subject" in world.holdfast(*words, code=ExitCode.OK).stdout
    assert world.holdfast("why", "nobody").returncode == ExitCode.NOTHING_MATCHED


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


def test_export_writes_each_row_once_in_a_complete_file(world: World, tmp_path: Path) -> None:
    reasons = ["malformed", "bad_time"] * 300
    _set_aside(world.dsn, *reasons)
    output = tmp_path / "rows.jsonl"
    output.write_text("before")
    world.holdfast("quarantine", "export", "--output", str(output), code=ExitCode.OK)
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["reason"] for row in rows] == reasons
    assert [row["row"] for row in rows] == [f'{{"line": {n}}}' for n in range(600)]
    assert rows[0].keys() >= {"id", "stream", "batch_id", "detail", "quarantined_at", "resolution"}
    assert list(tmp_path.iterdir()) == [output]

    some = world.holdfast("quarantine", "export", "--reason", "bad_time")
    assert len(some.stdout.splitlines()) == 300
    none = ("quarantine", "export", "--reason", "bad_key", "--output", str(output))
    assert world.holdfast(*none).returncode == ExitCode.NOTHING_MATCHED
    assert len(output.read_text().splitlines()) == 600


def test_export_is_of_one_moment(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _set_aside(dsn, "malformed")

    with Quarantine.connect(dsn) as store:
        one = store._one

        def counted(name: str, parameters: Row | None = None) -> Row:
            row = one(name, parameters)
            _set_aside(dsn, "bad_time", stream="other")
            return row

        monkeypatch.setattr(store, "_one", counted)
        with store.export(Filter()) as (count, rows):
            assert (count, [row["reason"] for row in rows]) == (1, ["malformed"])


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
        (ExitCode.NOTHING_MATCHED, "list", "--reason", "because"),
        (ExitCode.USAGE, "requeue", "1", "--reason", "x", "--row", "/nowhere/row.json"),
    ):
        done = holdfast("quarantine", *map(str, arguments), dsn=dsn, code=code)
        assert "Traceback" not in done.stderr
    assert db.execute(AUDIT).fetchall() == []
    assert db.execute("SELECT resolution FROM holdfast.quarantine").fetchall() == [(None,)]

"""`holdfast quarantine requeue`: a row is put back once, or stays where it is."""

import json
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa

from holdfast.dispatcher.operators.common.session import acting_as
from holdfast.sink import BatchInput
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.key import Key
from tests.support.command import holdfast
from tests.support.dispatch.entries import BLOCK, REFUSED, RELEASE, decision
from tests.support.job.driver import Driver
from tests.support.job.outbox import contents, sequences

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


def _set_aside(dsn: str, *rows: tuple[str, str]) -> list[int]:
    """Write a batch with refused rows, each a reason and a text; returns their numbers."""
    refused = [{"reason": reason, "detail": "d", "row": row} for reason, row in rows]
    table = pa.Table.from_pylist(refused, REFUSED)
    spark = Driver(dsn, select=lambda entries: BatchInput(entries, table))
    spark.batch(0)
    spark.sink.close()
    with psycopg.connect(dsn) as connection:
        found = connection.execute("SELECT id FROM holdfast.quarantine ORDER BY id").fetchall()
    return [number for (number,) in found]


def _requeue(dsn: str, *arguments: object) -> tuple[int, dict[str, Any], str]:
    done = holdfast(
        *("quarantine", "requeue", *map(str, arguments), "--reason", "mended", "--json"), dsn=dsn
    )
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def _file(directory: Path, row: object) -> Path:
    path = directory / "row.json"
    path.write_text(json.dumps(row, indent=2))
    return path


def test_corrected_row_becomes_an_entry_once(
    dsn: str, db: psycopg.Connection, tmp_path: Path
) -> None:
    [number] = _set_aside(dsn, ("bad_data", json.dumps(BAD)))
    corrected = _file(tmp_path, GOOD)
    code, told, _ = _requeue(dsn, number, "--row", corrected)
    assert code == ExitCode.OK
    assert [row["id"] for row in told["requeued"]] == [number]
    [(name, sequence, key, type_, _, _, batch_id, body)] = contents(db)["entry"]
    assert (name, sequence, type_, batch_id) == ("m_9", 1, BLOCK, number)
    assert key == Key.of(GOOD["key"]).digest
    assert json.loads(body)["data"] == GOOD["data"]
    assert db.execute(RESOLVED).fetchall() == [(number, "requeued")]
    assert db.execute(AUDIT).fetchall() == [
        ("quarantine.requeue", f"quarantine {number}", "mended")
    ]

    code, _, complaint = _requeue(dsn, number, "--row", corrected)
    assert code == ExitCode.NOTHING_MATCHED
    assert "requeued already" in complaint
    assert len(contents(db)["entry"]) == 1


def test_line_that_export_wrote_is_put_back_with_its_row_corrected(
    dsn: str, db: psycopg.Connection, tmp_path: Path
) -> None:
    wrong = [BAD | {"subject": f"m_{n}", "key": [f"k{n}"]} for n in range(3)]
    numbers = _set_aside(dsn, *(("bad_data", json.dumps(row)) for row in wrong))
    code, told, _ = _requeue(dsn, *numbers)
    assert code == ExitCode.FAILED
    assert "--row FILE" in told["advice"]
    lines = holdfast("quarantine", "export", dsn=dsn).stdout.splitlines()
    first, second, _ = (json.loads(line) for line in lines)
    first["row"] = first["row"].replace("1.5", "1")
    second["row"] = json.loads(second["row"]) | {"data": GOOD["data"]}
    file = tmp_path / "rows.jsonl"
    file.write_text(f"{json.dumps(first)}\n\n{json.dumps(second)}\n")
    code, _, error = _requeue(dsn, *numbers, "--row", file)
    assert (code, f"but not row {numbers[2]}" in error) == (ExitCode.USAGE, True)
    assert _requeue(dsn, numbers[0], "--row", file)[0] == ExitCode.OK
    assert _requeue(dsn, *numbers[:2], "--row", file)[0] == ExitCode.OK

    shown = json.loads(holdfast("quarantine", "show", str(numbers[2]), "--json", dsn=dsn).stdout)
    shown["row"] = shown["row"].replace("1.5", "1")
    assert _requeue(dsn, numbers[2], "--row", _file(tmp_path, shown))[0] == ExitCode.OK
    assert [row[0] for row in contents(db)["entry"]] == ["m_0", "m_1", "m_2"]


def test_requeue_that_died_before_it_was_marked_writes_nothing_twice(
    dsn: str, db: psycopg.Connection
) -> None:
    [number] = _set_aside(dsn, ("bad_data", json.dumps(GOOD)))
    assert _requeue(dsn, number)[0] == ExitCode.OK
    before = contents(db)
    db.execute(
        "UPDATE holdfast.quarantine SET resolution = NULL, resolved_at = NULL, resolved_by = NULL"
    )
    code, told, _ = _requeue(dsn, number)
    assert code == ExitCode.OK
    assert "written before" in told["requeued"][0]["detail"]
    assert contents(db) == before
    assert db.execute(RESOLVED).fetchall() == [(number, "requeued")]


def test_other_row_for_a_number_that_was_put_back_is_refused(
    dsn: str, db: psycopg.Connection, tmp_path: Path
) -> None:
    [number] = _set_aside(dsn, ("bad_data", json.dumps(GOOD)))
    _requeue(dsn, number)
    db.execute(
        "UPDATE holdfast.quarantine SET resolution = NULL, resolved_at = NULL, resolved_by = NULL"
    )
    other = _file(tmp_path, GOOD | {"priority": 5})
    code, told, _ = _requeue(dsn, number, "--row", other)
    assert code == ExitCode.FAILED
    assert "another row was" in told["refused"][0]["detail"]
    assert len(contents(db)["entry"]) == 1


def test_row_that_is_refused_again_stays_open_and_its_number_is_not_spent(
    dsn: str, db: psycopg.Connection, tmp_path: Path
) -> None:
    numbers = _set_aside(
        dsn,
        ("bad_data", json.dumps(BAD | {"subject": "m_8", "key": ["m_8"]})),
        ("bad_data", json.dumps(GOOD)),
    )
    code, told, _ = _requeue(dsn, *numbers)
    assert code == ExitCode.DEGRADED
    assert [row["id"] for row in told["requeued"]] == [numbers[1]]
    assert [row["id"] for row in told["refused"]] == [numbers[0]]
    assert "1.5 is not whole" in told["refused"][0]["detail"]
    assert db.execute(RESOLVED).fetchall() == [(numbers[0], None), (numbers[1], "requeued")]

    assert _requeue(dsn, numbers[0])[0] == ExitCode.FAILED
    corrected = _file(tmp_path, GOOD | {"subject": "m_8", "key": ["m_8"]})
    assert _requeue(dsn, numbers[0], "--row", corrected)[0] == ExitCode.OK
    assert sequences(db, "m_8") == sequences(db, "m_9") == [1]


def test_corrected_row_that_is_no_entry_changes_nothing(
    dsn: str, db: psycopg.Connection, tmp_path: Path
) -> None:
    [number] = _set_aside(dsn, ("bad_data", json.dumps(BAD)))
    before = contents(db)
    code, told, _ = _requeue(dsn, number, "--row", _file(tmp_path, BAD))
    assert code == ExitCode.FAILED
    assert "1.5 is not whole" in told["refused"][0]["detail"]
    assert contents(db) == before
    assert db.execute(AUDIT).fetchall() == []


def test_key_that_is_taken_is_told_and_nothing_is_written(dsn: str, db: psycopg.Connection) -> None:
    spark = Driver(dsn, stream="other")
    spark.batch(0, decision("m_9"), decision("m_9", minor=1))
    spark.sink.close()
    [(number,)] = db.execute("SELECT id FROM holdfast.quarantine").fetchall()
    before = contents(db)
    code, told, _ = _requeue(dsn, number)
    assert code == ExitCode.FAILED
    assert "recorded with" in told["refused"][0]["detail"]
    assert contents(db) == before
    assert db.execute(RESOLVED).fetchall() == [(number, None)]


def test_older_row_is_refused_or_put_back_by_two_people(dsn: str, db: psycopg.Connection) -> None:
    [number] = _set_aside(dsn, ("bad_data", json.dumps(GOOD)))
    [(query_id,)] = db.execute("SELECT query_id FROM holdfast.stream").fetchall()
    spark = Driver(dsn, query_id=query_id)
    spark.batch(1, decision("m_9", 9, RELEASE))
    spark.sink.close()
    before = contents(db)
    code, told, _ = _requeue(dsn, number)
    assert code == ExitCode.FAILED
    assert "newer entry" in told["refused"][0]["detail"]
    assert contents(db) == before
    code, told, error = _requeue(dsn, number, "--keep-repeats")
    assert (code, told["requeued"], contents(db)) == (ExitCode.DEGRADED, [], before), error
    [proposed] = told["proposed"]
    assert (proposed["differs"], proposed["overtakes"]["type"]) == ([], RELEASE)
    assert proposed["overtakes"]["key"] == Key.of(decision("m_9", 9, RELEASE)["key"]).text
    with acting_as("second"):
        approved = holdfast(
            "proposal", "approve", proposed["proposal"], "--reason", "older", dsn=dsn
        )
        assert approved.returncode == ExitCode.OK, approved.stderr
    assert _requeue(dsn, number, "--proposal", proposed["proposal"])[0] == ExitCode.OK
    assert sequences(db, "m_9") == [1, 2]


def test_source_lines_go_back_to_the_job_once_in_whatever_company(
    dsn: str, db: psycopg.Connection, tmp_path: Path
) -> None:
    lines = ['{"event_id": "e1", "currency": "EUR"}', '{"event_id": "é\\u0000"']
    numbers = _set_aside(dsn, ("wrong_currency", lines[0]), ("malformed", lines[1]))
    code, told, _ = _requeue(dsn, *numbers, "--into", tmp_path)
    assert code == ExitCode.OK
    assert [row["id"] for row in told["requeued"]] == numbers
    paths = sorted(tmp_path.iterdir())
    assert {path.suffix for path in paths} == {".json"}
    assert [path.read_text().splitlines() for path in paths] == [[line] for line in lines]
    assert [state for _, state in db.execute(RESOLVED).fetchall()] == ["requeued", "requeued"]

    db.execute(
        "UPDATE holdfast.quarantine SET resolution = NULL, resolved_at = NULL, resolved_by = NULL"
    )
    written = [path.stat().st_mtime_ns for path in paths]
    assert _requeue(dsn, numbers[0], "--into", tmp_path)[0] == ExitCode.OK
    assert _requeue(dsn, numbers[1], "--into", tmp_path)[0] == ExitCode.OK
    assert sorted(tmp_path.iterdir()) == paths
    assert [path.stat().st_mtime_ns for path in paths] == written


def test_corrected_source_line_is_written_on_one_line(dsn: str, tmp_path: Path) -> None:
    event = {"event_id": "e1", "merchant_id": "m_1", "currency": "USD"}
    [number] = _set_aside(dsn, ("wrong_currency", json.dumps(event | {"currency": "EUR"})))
    (tmp_path / "in").mkdir()
    arguments = ("--row", _file(tmp_path, event), "--into", tmp_path / "in")
    assert _requeue(dsn, number, *arguments)[0] == ExitCode.OK
    [path] = (tmp_path / "in").iterdir()
    [line] = path.read_text().splitlines()
    assert json.loads(line) == event


def test_row_that_cannot_go_that_way_is_refused_before_anything_happens(
    dsn: str, db: psycopg.Connection, tmp_path: Path
) -> None:
    entry, line, cut = _set_aside(
        dsn, ("bad_data", json.dumps(GOOD)), ("malformed", "{"), ("bad_data", CUT)
    )
    before = contents(db)
    for arguments, complaint in (
        ((entry, line), "with --into"),
        ((line, entry, "--into", tmp_path), "omit --into"),
        ((cut, entry), "too long to be kept in full"),
        ((line, "--into", tmp_path / "nowhere"), "is not a directory"),
    ):
        code, _, error = _requeue(dsn, *arguments)
        assert code == ExitCode.USAGE
        assert complaint in error
        assert "Nothing was changed" in error
    assert contents(db) == before
    assert db.execute(AUDIT).fetchall() == []
    assert list(tmp_path.iterdir()) == []


def test_whole_row_may_be_given_by_two_for_one_that_was_cut(
    dsn: str, db: psycopg.Connection, tmp_path: Path
) -> None:
    [number] = _set_aside(dsn, ("bad_data", CUT))
    _, told, _ = _requeue(dsn, number, "--row", _file(tmp_path, GOOD))
    id_ = told["proposed"][0]["proposal"]
    with acting_as("second"):
        assert holdfast("proposal", "approve", id_, "--reason", "x", dsn=dsn).returncode == 0
    assert _requeue(dsn, number, "--proposal", id_)[0] == ExitCode.OK
    assert sequences(db, "m_9") == [1]


def test_rows_of_two_streams_go_to_a_stream_each(dsn: str, db: psycopg.Connection) -> None:
    long = "s" * 63
    numbers = _set_aside(dsn, ("bad_data", json.dumps(GOOD)))
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
    found = db.execute("SELECT id FROM holdfast.quarantine ORDER BY id").fetchall()
    code, told, error = _requeue(dsn, *(number for (number,) in found))
    assert code == ExitCode.OK, error
    assert len(told["requeued"]) == len(numbers) + 1
    streams = [name for name, _ in contents(db)["stream"] if name.endswith(".requeue")]
    assert len(streams) == 2
    assert all(len(name) <= 63 for name in streams)


def test_row_that_no_database_stores_is_refused_beside_others(
    dsn: str, db: psycopg.Connection
) -> None:
    unfit = [("bad_subject", json.dumps(GOOD | {"subject": name})) for name in ("m\0", "m\ud800")]
    numbers = _set_aside(dsn, *unfit, ("bad_data", json.dumps(GOOD)))
    code, told, complaint = _requeue(dsn, *numbers)
    assert code == ExitCode.DEGRADED, complaint
    assert [row["id"] for row in told["refused"]] == numbers[:2]
    assert [row["id"] for row in told["requeued"]] == numbers[2:]
    assert sequences(db, "m_9") == [1]

"""`job checkpoints input`: which files and offsets a batch read, from a checkpoint alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.spark_app.checkpoint import origin, shape
from holdfast.spark_app.checkpoint_manager.batch_input import lines, read_by
from holdfast.spark_app.checkpoint_manager.folder import Folder

PLAN = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1793620800000}'
SOURCES = [
    {"kind": "files", "path": "/events", "format": "json"},
    {"kind": "ticks"},
    {"kind": "kafka", "topic": "payments"},
]


def _write(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def _entry(*files: tuple[int, str]) -> str:
    rows = (
        json.dumps({"path": f"file:///{name}", "timestamp": 1, "batchId": n}) for n, name in files
    )
    return "\n".join(["v1", *rows])


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Batches 0 to 2 of files, ticks and a topic that began at 40 and 7."""
    kept = {"version": shape.VERSION, "stream": "payouts", shape.SOURCES: SOURCES}
    _write(tmp_path, shape.FILE, json.dumps(kept))
    _write(tmp_path, "sources/2/0", '\0v1\n{"payments":{"0":40,"1":7}}')
    for batch, sources in enumerate(
        (
            ['{"logOffset":0}', "-", "-"],
            ['{"logOffset":2}', '{"logOffset":0}', '{"payments":{"0":45,"1":7}}'],
            ['{"logOffset":2}', '{"logOffset":0}', '{"payments":{"0":46,"1":9}}'],
        )
    ):
        _write(tmp_path, f"offsets/{batch}", "\n".join([PLAN, *sources]))
    _write(tmp_path, "sources/0/0", _entry((0, "events/a")))
    _write(tmp_path, "sources/0/1", _entry((1, "events/b"), (1, "events/c")))
    _write(tmp_path, "sources/0/2", _entry((2, "events/d")))
    _write(tmp_path, "sources/1/0", _entry((0, "ticks/1-2.json")))
    return tmp_path


def _read(checkpoint: Path, batch: int) -> dict[str, Any]:
    return read_by(Folder(str(checkpoint)), batch, None)


def _text(checkpoint: Path, batch: int) -> list[str]:
    return [*lines(_read(checkpoint, batch))][1:]


def test_files_ticks_and_offsets_are_named_as_they_are_recorded(checkpoint: Path) -> None:
    assert _text(checkpoint, 1) == [
        "source 0: files of /events, log entries 1 to 2",
        "  file:///events/b",
        "  file:///events/c",
        "  file:///events/d",
        "source 1: ticks of the idle clock, log entry 0",
        "  file:///ticks/1-2.json",
        "source 2: Kafka, 5 offsets, 1 partition with nothing new",
        "  payments partition 0: from 40 until 45, 5 offsets",
    ]
    assert _text(checkpoint, 2) == [
        "source 0: files of /events, nothing new",
        "source 1: ticks of the idle clock, nothing new",
        "source 2: Kafka, 3 offsets",
        "  payments partition 0: from 45 until 46, 1 offset",
        "  payments partition 1: from 7 until 9, 2 offsets",
    ]


def test_first_batch_begins_where_the_checkpoint_says(checkpoint: Path) -> None:
    _write(checkpoint, "offsets/0", f'{PLAN}\n-\n-\n{{"payments":{{"0":41,"1":7}}}}')
    topic = _read(checkpoint, 0)["sources"][2]
    assert (topic["note"], topic["count"], topic["unread"]) == (None, 1, 1)
    assert topic["partitions"][0] | {"note": None} == {
        "topic": "payments", "partition": 0, "from": 40, "until": 41, "count": 1, "note": None
    }  # fmt: skip


def test_batch_that_took_over_a_savepoint_says_so(checkpoint: Path) -> None:
    _write(checkpoint, origin.FILE, json.dumps({"version": origin.VERSION}))
    assert "took over a savepoint" in _text(checkpoint, 0)[0]
    assert "took over" not in "\n".join(_text(checkpoint, 1))


def test_compact_entry_names_the_files_of_entries_that_were_removed(checkpoint: Path) -> None:
    everything = [(0, "events/a"), (1, "events/b"), (1, "events/c"), (2, "events/d")]
    for name in ("0", "1", "2"):
        (checkpoint / "sources/0" / name).unlink()
    _write(checkpoint, "sources/0/2.compact", _entry(*everything))
    found = _read(checkpoint, 1)["sources"][0]
    assert found["files"] == ["file:///events/b", "file:///events/c", "file:///events/d"]
    assert found["lost_entries"] == []


def test_entry_that_is_lost_is_named(checkpoint: Path) -> None:
    (checkpoint / "sources/0/1").unlink()
    assert "  not known: the files of log entry 1, which is lost" in _text(checkpoint, 1)
    assert _read(checkpoint, 1)["sources"][0]["files"] == ["file:///events/d"]


def test_plan_before_that_is_gone_leaves_the_start_unknown(checkpoint: Path) -> None:
    (checkpoint / "offsets/1").unlink()
    files, _ticks, topic = _read(checkpoint, 2)["sources"]
    assert (files["first_entry"], files["files"]) == (None, None)
    assert topic["partitions"][0]["from"] is None
    assert "batch 1 are not in the ledger" in topic["note"]


def test_batch_without_a_plan_is_refused_with_what_to_do(checkpoint: Path) -> None:
    with pytest.raises(CommandError, match="pass --dsn") as refused:
        _read(checkpoint, 3)
    assert refused.value.exit_code is ExitCode.NOTHING_MATCHED


def test_where_a_topic_began_is_no_damaged_log(checkpoint: Path) -> None:
    assert Folder(str(checkpoint)).problem("sources/2/0") is None
    _write(checkpoint, "sources/2/0", '\0v1\n{"payments":{"0":4')
    assert Folder(str(checkpoint)).problem("sources/2/0") is not None
    assert _read(checkpoint, 0)["sources"][2]["kind"] == "nothing"

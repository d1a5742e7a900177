"""What is read of a checkpoint without Spark: checksums, changelogs, logs, a batch's input."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.spark_app.checkpoint import origin, shape
from holdfast.spark_app.checkpoint.checksums import (
    are_sums_damaged,
    hadoop_file,
    hadoop_problem,
    hadoop_sums,
    mend,
    spark_file,
    spark_problem,
    spark_sidecar,
)
from holdfast.spark_app.checkpoint.retention import Retention
from holdfast.spark_app.checkpoint_manager import spark_files
from holdfast.spark_app.checkpoint_manager.batch_input import lines, read_by
from holdfast.spark_app.checkpoint_manager.folder import Folder
from holdfast.spark_app.checkpoint_manager.spark_files import (
    Changelog,
    Entry,
    Link,
    Log,
    Name,
    entries,
    read_for,
    rebuilt,
)


def test_state_files_are_summed_by_the_crc_of_castagnoli() -> None:
    assert json.loads(spark_sidecar(b"123456789", 0))["value"] == 0xE3069283 - (1 << 32)


@given(st.binary(min_size=1, max_size=2000), st.data())
def test_both_checksums_see_flipped_bits_and_cuts(content: bytes, data: st.DataObject) -> None:
    sidecar = spark_sidecar(content, 0)
    assert hadoop_problem(content, hadoop_sums(content)) is None
    assert spark_problem(content, sidecar) is None
    at = data.draw(st.integers(0, len(content) - 1))
    flipped = bytearray(content)
    flipped[at] ^= 1 << data.draw(st.integers(0, 7))
    for damaged in (bytes(flipped), content[:at]):
        assert hadoop_problem(damaged, hadoop_sums(content)) is not None
        assert spark_problem(damaged, sidecar) is not None
    assert spark_problem(content, sidecar[:-1]) == "its checksum file is damaged"
    assert hadoop_problem(content, b"crc") == "its checksum file is damaged"


@given(st.binary(min_size=1, max_size=2000), st.data())
def test_checksum_file_is_blamed_where_it_matches(content: bytes, data: st.DataObject) -> None:
    sums = hadoop_sums(content)
    cut = sums[: data.draw(st.sampled_from([0, 3, 7, *range(8, len(sums), 4)]))]
    head = bytes([sums[0] ^ 1]) + sums[1:]
    assert are_sums_damaged(content, cut)
    assert are_sums_damaged(content, head)
    assert not are_sums_damaged(content, sums)
    at = data.draw(st.integers(0, len(content) - 1))
    flipped = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
    for damaged in (flipped, content[:at]):
        assert not are_sums_damaged(damaged, sums)
    covered = (len(cut) - 8) // 4 * 512
    assert are_sums_damaged(flipped, cut) == (covered <= at or len(cut) < 8)


def test_checksums_are_rewritten_only_for_intact_files(tmp_path: Path) -> None:
    content = bytes(range(200)) * 10
    state, entry = tmp_path / "state/1.changelog", tmp_path / "sources/0/9.compact"
    for file in (state, entry):
        file.parent.mkdir(parents=True)
    written = {state: content, spark_file(state): spark_sidecar(content, 7), entry: content}
    for file, held in written.items():
        file.write_bytes(held)
        hadoop_file(file).write_bytes(hadoop_sums(held))
    assert mend(tmp_path) == []
    spark_file(state).write_bytes(b"{")
    hadoop_file(entry).write_bytes(b"")
    assert set(mend(tmp_path)) == {
        spark_file(state),
        hadoop_file(spark_file(state)),
        hadoop_file(entry),
    }
    assert mend(tmp_path) == []
    assert spark_problem(content, spark_file(state).read_bytes()) is None
    # The content of these may be what is damaged.
    entry.write_bytes(content[:-1])
    state.write_bytes(content[:-1])
    spark_file(state).write_bytes(b"{")
    assert mend(tmp_path) == []


def test_no_checksum_is_made_for_a_damaged_state(tmp_path: Path) -> None:
    """Hadoop's checksum is gone, and Spark's own speaks against the content."""
    content, state = bytes(2000), tmp_path / "1.changelog"
    sidecar = spark_sidecar(content, 7)
    spark_file(state).write_bytes(sidecar)
    hadoop_file(spark_file(state)).write_bytes(hadoop_sums(sidecar))
    hadoop_file(state).write_bytes(b"")
    state.write_bytes(content[:-1] + b"1")
    assert mend(tmp_path) == []
    assert hadoop_file(state).read_bytes() == b""
    state.write_bytes(content)
    assert mend(tmp_path) == [hadoop_file(state)]


def _changelog(before: list[Link], records: list[tuple[bytes, bytes | None]]) -> bytes:
    lineage = json.dumps(
        [{"version": each.version, "checkpointUniqueId": each.unique_id} for each in before]
    ).encode()
    parts = [b"\0\2v4", len(lineage).to_bytes(2, "big"), lineage]
    for key, value in records:
        kind, size = (b"\x10", -1) if value is None else (b"\1", len(value))
        parts += [kind, len(key).to_bytes(4, "big"), key]
        parts += [size.to_bytes(4, "big", signed=True), value or b""]
    content = b"".join([*parts, b"\0"])
    blocks = [content[at : at + 64] for at in range(0, len(content), 64)]
    packed = [pa.Codec("lz4_raw").compress(block, asbytes=True) for block in blocks]
    framed = [
        b"LZ4Block%"
        + b"".join(n.to_bytes(4, "little") for n in (len(small), len(block), 0))
        + small
        for block, small in zip(blocks, packed, strict=True)
    ]
    return b"".join([*framed, b"LZ4Block\x15", bytes(12)])


BEFORE = [Link(3, "a" * 36), Link(4, "b" * 36)]
RECORDS = [(b"\2\0key", b"value"), (b"\4\0key", b"x" * 90), (b"\4\0key", None)]


def test_changelog_has_earlier_versions_and_values_of_each_kind() -> None:
    changelog = Changelog(_changelog(BEFORE, RECORDS))
    assert changelog.before == tuple(BEFORE)
    assert changelog.sizes == {2: 10, 4: 100}


def test_changelog_that_is_cut_anywhere_is_refused() -> None:
    full = _changelog(BEFORE, RECORDS)
    for length in range(len(full) - 1):
        with pytest.raises(ValueError, match=r"it ends|is not|cannot|block"):
            Changelog(full[:length])


def test_snapshot_names_shared_files_and_damage_is_refused() -> None:
    described = {
        "sstFiles": [{"localFileName": "1.sst", "dfsSstFileName": "1-x.sst", "sizeBytes": 1}],
        "columnFamilyMapping": {"ids": 4},
    }
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("metadata", f"v1\n{json.dumps(described)}")
    snapshot = spark_files.snapshot(content.getvalue())
    assert (snapshot.sst_files, snapshot.column_families) == (("1-x.sst",), {4: "ids"})
    damaged = content.getvalue().replace(b"1-x.sst", b"2-x.sst")
    with pytest.raises(ValueError, match=r"checksum of metadata|not a snapshot"):
        spark_files.snapshot(damaged)


def test_plans_and_commits_are_read_or_refused() -> None:
    plan = spark_files.plan('v1\n{"batchWatermarkMs":5,"conf":{"a":"b"}}\n{"logOffset":3}\n-')
    assert (plan.watermark_ms, plan.conf) == (5, {"a": "b"})
    assert [spark_files.log_offset(each) for each in plan.sources] == [3, None]
    assert spark_files.log_offset('{"logOffset":-1}') is None
    done = spark_files.committed(
        'v2\n{"nextBatchWatermarkMs":7,"stateUniqueIds":{"0":[["x"],["y"]]}}'
    )
    assert (done.next_watermark_ms, done.state_ids) == (7, {0: ("x", "y")})
    for text in ("", "v1", "v1\n{}", "v1\n{}\n-", "garbage\n{}\n-", "v1\n[]\n-"):
        with pytest.raises(ValueError):  # noqa: PT011 - the words are for people
            spark_files.plan(text)
    for text in ("", "v2", "v2\n{}", "v2\n[]", '{"nextBatchWatermarkMs":7}'):
        with pytest.raises(ValueError):  # noqa: PT011 - as above
            spark_files.committed(text)


def _entry(*numbers: int) -> str:
    lines = [json.dumps({"path": f"/{n}", "timestamp": n, "batchId": n}) for n in numbers]
    return "\n".join(["v1", *lines])


@given(st.integers(0, 45), st.data())
def test_lost_log_entries_are_made_again(position: int, data: st.DataObject) -> None:
    """What Spark reads afterwards is what it would have read."""
    last = data.draw(st.integers(position, 49))
    full = {Name(n, compact=False): _entry(n) for n in range(last + 1) if n % 10 != 9}
    full |= {Name(n, compact=True): _entry(*range(n + 1)) for n in range(9, last + 1, 10)}
    lost = data.draw(st.sets(st.sampled_from(sorted(full))))
    kept = {name: text for name, text in full.items() if name not in lost}
    names = [name for name in full if name not in lost or data.draw(st.booleans())]
    made = rebuilt(position, names, kept)
    if made is None:
        later = [name for name in kept if name.compact and name.number > position]
        assert not later
        return
    log = {**kept, **made}
    after = [Entry(n, line) for n, line in enumerate(_entry(*range(position + 1)).split("\n")[1:])]
    wanted = read_for(position, [*names, *made])
    assert [each for name in wanted for each in entries(log[name])] == after


@pytest.mark.parametrize(
    ("batches", "keep_for_ms", "interval_ms", "kept"),
    [(100, None, 1_000, 100), (100, 7_200_000, 1_000, 7_201), (100, 60_000, 60_000, 100)],
)
def test_a_duration_keeps_every_batch_that_can_begin_in_it(
    batches: int, keep_for_ms: int | None, interval_ms: int, kept: int
) -> None:
    assert Retention.covering(batches, keep_for_ms, interval_ms) == Retention(kept)


def _line(number: int) -> str:
    return f'{{"path":"{number}","batchId":{number}}}'


def _written(count: int, interval: int) -> dict[Name, str]:
    """A log as Spark writes it, a file an entry, without removing any."""
    found: dict[Name, str] = {}
    for number in range(count):
        compact = not (number + 1) % interval
        lines = [_line(one) for one in range(0 if compact else number, number + 1)]
        found[Name(number, compact)] = "\n".join(["v1", *lines])
    return found


@given(st.integers(0, 45), st.integers(1, 30), st.sampled_from([5, 10]))
def test_log_is_continued_as_spark_wrote_it(position: int, more: int, interval: int) -> None:
    full = _written(position + 1 + more, interval)
    kept = {name: text for name, text in full.items() if name.number <= position}
    log = Log(position, full, kept)
    added = [log.add(number, [_line(number)]) for number in range(position + 1, len(full))]
    assert kept | dict(each for each in added if each) == full


def test_compact_entry_is_not_made_of_an_incomplete_log() -> None:
    full = _written(9, 10)
    del full[Name(4, compact=False)]
    log = Log(8, full, full)
    assert log.add(9, [_line(9)]) is None
    # Only the newest compact entry is left: Spark takes its number for the interval.
    log = Log(
        19,
        [Name(19, compact=True)],
        {Name(19, compact=True): _written(20, 10)[Name(19, compact=True)]},
    )
    names = [result[0] for number in range(20, 40) if (result := log.add(number, [_line(number)]))]
    assert [name.number for name in names if name.compact] == [39]


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


def _input_entry(*files: tuple[int, str]) -> str:
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
    _write(tmp_path, "sources/0/0", _input_entry((0, "events/a")))
    _write(tmp_path, "sources/0/1", _input_entry((1, "events/b"), (1, "events/c")))
    _write(tmp_path, "sources/0/2", _input_entry((2, "events/d")))
    _write(tmp_path, "sources/1/0", _input_entry((0, "ticks/1-2.json")))
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


def test_compact_entry_names_files_of_removed_entries(checkpoint: Path) -> None:
    everything = [(0, "events/a"), (1, "events/b"), (1, "events/c"), (2, "events/d")]
    for name in ("0", "1", "2"):
        (checkpoint / "sources/0" / name).unlink()
    _write(checkpoint, "sources/0/2.compact", _input_entry(*everything))
    result = _read(checkpoint, 1)["sources"][0]
    assert result["files"] == ["file:///events/b", "file:///events/c", "file:///events/d"]
    assert result["lost_entries"] == []


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

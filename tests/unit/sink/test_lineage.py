"""What a checkpoint says, where it lies, and when it and the ledger are not of one moment."""

import json
import re
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from holdfast.dispatcher.operators.streams.verbs import query_id_in
from holdfast.sink import OutboxSink
from holdfast.sink.contract.checkpoint import FILE_SYSTEMS, Safety, file_system, local_folder
from holdfast.sink.contract.source_offsets import readable_offsets, without_files
from holdfast.sink.errors import (
    CheckpointBehind,
    CheckpointReplaced,
    CheckpointUnreadable,
    Fenced,
    LedgerBehind,
    Permanent,
    SinkError,
    Transient,
    UnadoptedCheckpoint,
    UnsafeCheckpoint,
)
from holdfast.sink.transaction.lineage import (
    Checkpoint,
    Files,
    compare,
    local_files,
    next_batch,
    read_checkpoint,
    require_beginning,
    require_recorded,
    require_safe,
)
from holdfast.sink.transaction.plans import Chain, Memory, Plan, read_plan
from holdfast.sink.transaction.writer import Ownership

QUERY_ID = UUID("5f3a1c58-6f0e-4c7e-9d5b-0b5a7d2f6c11")
HERE = "/checkpoints/payouts"


def _checkpoint(folder: Path, planned: list[str], committed: list[str]) -> Path:
    (folder / "metadata").write_text(json.dumps({"id": str(QUERY_ID)}))
    for name, batches in (("offsets", planned), ("commits", committed)):
        (folder / name).mkdir()
        for batch in batches:
            (folder / name / batch).touch()
    return folder


def test_newest_batches_are_found_among_other_files(tmp_path: Path) -> None:
    _checkpoint(tmp_path, ["9", "10", ".10.crc", ".11.a1b2.tmp"], ["9", ".9.crc", "\u0661\u0662"])
    expected = Checkpoint(str(tmp_path), planned=10, committed=9)
    assert read_checkpoint(local_files(str(tmp_path)), QUERY_ID) == expected
    assert read_checkpoint(local_files(f"file://{tmp_path}"), QUERY_ID) == expected


def test_checkpoint_before_its_first_batch_has_planned_none(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text(json.dumps({"id": str(QUERY_ID)}))
    assert read_checkpoint(local_files(str(tmp_path)), QUERY_ID) == Checkpoint(
        str(tmp_path), None, None
    )


@pytest.mark.parametrize("metadata", [None, "", "[]", "{}", '{"id": 1}', '{"id": "no uuid"}'])
def test_folder_that_is_no_checkpoint_says_nothing(tmp_path: Path, metadata: str | None) -> None:
    if metadata is not None:
        (tmp_path / "metadata").write_text(metadata)
    assert read_checkpoint(local_files(str(tmp_path)), QUERY_ID) is None
    assert read_checkpoint(local_files(str(tmp_path / "gone")), QUERY_ID) is None


def test_foreign_checkpoint_is_not_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _checkpoint(tmp_path, ["0"], [])
    assert read_checkpoint(local_files(str(tmp_path)), uuid4()) is None
    assert "is not the checkpoint of query" in caplog.text
    assert read_checkpoint(local_files(f"hdfs://name{tmp_path}"), QUERY_ID) is None
    assert read_checkpoint(local_files(None), QUERY_ID) is None


def test_unreadable_checkpoint_does_not_fit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "metadata").mkdir()
    (tmp_path / "offsets" / "3").mkdir(parents=True)
    files = local_files(str(tmp_path))
    with pytest.raises(CheckpointUnreadable, match="Nothing was written") as raised:
        read_checkpoint(files, QUERY_ID)
    assert isinstance(raised.value, Transient)
    # A batch itself does not depend on what is kept for reading only.
    assert _kept(files, 3) is None
    assert "the source's offsets of batch 3 are not stored" in caplog.text
    assert _kept(files, 4) is None


def _kept(files: Files | None, batch_id: int) -> str | None:
    plan = read_plan(files, batch_id)
    return plan and plan.source_offsets


def _plan(*entries: int) -> str:
    lines = [f'{{"logOffset":{entry}}}' for entry in entries]
    return "\n".join(["v1", '{"batchWatermarkMs":7}', *lines])


def _log(*names: str, entry: int) -> list[str]:
    return [f'{{"path":"{name}","timestamp":5,"batchId":{entry}}}' for name in names]


def test_offsets_are_kept_with_the_files_that_a_batch_reads(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "sources/0").mkdir(parents=True)
    (tmp_path / "sources/1").mkdir()
    older = _log(*(f"file:///{'x' * 90}/{n}" for n in range(3000)), entry=8)
    newest = _log("file:///a%20b", 'file:///c,\\"files\\":{', entry=9)
    (tmp_path / "sources/0/8").write_text("\n".join(["v1", *older]))
    (tmp_path / "sources/0/9.compact").write_text("\n".join(["v1", *older, *newest]))
    (tmp_path / "sources/1/0.compact").write_text("\n".join(["v1", *_log("one", entry=0)]))
    for batch, plan in enumerate([_plan(-1), _plan(9), _plan(9, 0), _plan(9, 0), _plan(8, 1)]):
        (tmp_path / f"offsets/{batch}").write_text(plan)
    kept = [_kept(local_files(str(tmp_path)), batch) or "" for batch in range(5)]
    for text, plan, files in (
        (kept[0], _plan(-1), {}),
        (kept[1], _plan(9), {0: list(map(json.loads, newest))}),
        (kept[2], _plan(9, 0), {1: list(map(json.loads, _log("one", entry=0)))}),
        (kept[3], _plan(9, 0), {}),
        # Its log has no such entry.
        (kept[4], _plan(8, 1), {}),
    ):
        assert without_files(text) == (plan, files)
        assert readable_offsets(text) == readable_offsets(plan)
    (tmp_path / "offsets/9").write_text(_plan(7))
    (tmp_path / "offsets/10").write_text(_plan(8))
    (tmp_path / "sources/0/8").write_text("\n".join(["v1", *older * 4]))
    assert _kept(local_files(str(tmp_path)), 10) == _plan(8), "too many to keep"


def test_plan_is_compared_by_what_it_reads_and_not_by_its_settings(tmp_path: Path) -> None:
    files, run_id = local_files(str(tmp_path)), uuid4()
    ours = 'v1\n{"batchWatermarkMs":7,"batchTimestampMs":8,"conf":{"a":"1","b":"2"}}\n{"t":{"0":5}}'
    same = 'v1\n{"conf":{"b":"2"},"batchTimestampMs":8,"batchWatermarkMs":7}\n{"t": {"0": 5}}\n-'
    for text, paths, is_replaced in (
        (ours, frozenset("a"), False),
        (same, None, False),
        (ours, frozenset("b"), True),
        (ours.replace(":5}", ":6}"), frozenset("a"), True),
        (ours.replace('Ms":7', 'Ms":9'), frozenset("a"), True),
        (f'{ours}\n{{"t":{{"0":1}}}}', frozenset("a"), True),
    ):
        plan = Plan(4, ours, {0: [{"path": "a", "batchId": 2}]}, complete=True)
        found = Chain("payouts").replaced(files, run_id, plan, Memory(text, paths))
        assert isinstance(found, CheckpointReplaced) is is_replaced, text


@pytest.mark.parametrize(
    ("planned", "committed", "recorded"),
    [
        (None, None, None),
        (7, 6, None),  # it ran before it got this sink
        (0, None, 0),
        (7, 6, 6),  # planned, and died before the sink's COMMIT
        (7, 6, 7),  # and after it
        (7, 7, 7),
    ],
)
def test_what_crashes_leave_is_of_one_moment(
    planned: int | None, committed: int | None, recorded: int | None
) -> None:
    assert _refusal(Checkpoint(HERE, planned, committed), recorded) is None


def _refusal(checkpoint: Checkpoint, recorded: int | None) -> SinkError | None:
    try:
        compare("payouts", checkpoint, recorded)
    except SinkError as error:
        return error
    return None


def test_older_checkpoint_copy_is_reported_with_a_remedy() -> None:
    with pytest.raises(CheckpointBehind) as raised:
        compare("payouts", Checkpoint(HERE, 5, 4), 9)
    assert isinstance(raised.value, Permanent)
    assert str(raised.value) == (
        "stream 'payouts': the ledger has batch 9 of this query, but in the checkpoint"
        " /checkpoints/payouts batch 5 is the newest: it is an older copy, and its state does not"
        " have what the ledger has. Nothing was written, and what the ledger has stands. Restore"
        " the newest copy of the checkpoint; or start the query with a new checkpointLocation (and"
        " `checkpoint=`), which the stream adopts by the command that the error then has: keys that"
        " are recorded repeat nothing."
    )
    with pytest.raises(CheckpointBehind, match="no batch was ever planned"):
        compare("payouts", Checkpoint(HERE, None, None), 0)


def test_older_database_is_reported_with_a_remedy() -> None:
    with pytest.raises(LedgerBehind) as raised:
        compare("payouts", Checkpoint(HERE, 10, 9), 5)
    assert isinstance(raised.value, Permanent)
    assert str(raised.value) == (
        "stream 'payouts': the checkpoint /checkpoints/payouts has finished batch 9, but the newest"
        " batch of this query in the ledger is 5: the database was put back to an older moment (or"
        " the sink was not called for each batch, which it has to be), and Spark does not run the"
        " batches between again. Nothing was written. Restore the newest"
        " copy of the database; or start the query with a new checkpointLocation (and"
        " `checkpoint=`), which the stream adopts by the command that the error then has: keys that"
        " are recorded repeat nothing, and what is missing is decided again under the same keys."
    )


def test_query_that_began_with_the_sink_is_known_to_the_ledger() -> None:
    for committed, recorded in ((None, None), (None, 0), (4, 4), (4, 5)):
        require_recorded("payouts", HERE, committed, recorded)
    with pytest.raises(LedgerBehind, match="finished batch 4, but the ledger has no batch of this"):
        require_recorded("payouts", "hdfs://namenode/payouts", 4, None)


@pytest.mark.parametrize(
    ("planned", "committed", "expected"), [(None, None, 0), (0, None, 0), (4, 3, 4), (3, 3, 4)]
)
def test_next_batch_is_the_one_after_the_newest_commit(
    planned: int | None, committed: int | None, expected: int
) -> None:
    assert next_batch(Checkpoint(HERE, planned, committed)) == expected


@pytest.mark.parametrize(
    ("batch_id", "declared", "other", "expected"),
    [
        (0, None, None, None),
        (0, 7, None, None),  # a later checkpoint of the same code
        (7, 7, None, None),
        (None, None, None, None),  # not known yet: its first batch is compared
        (None, 7, ("old", 6), None),
        (7, 7, ("old", 6), None),
        (4, None, None, LedgerBehind),
        (4, 7, None, LedgerBehind),
        (4, 0, None, LedgerBehind),
        (0, None, ("old", 0), UnadoptedCheckpoint),
        (4, 7, ("old", 3), UnadoptedCheckpoint),
        (None, None, ("old", 3), UnadoptedCheckpoint),
    ],
)
def test_query_begins_at_batch_0_or_where_a_person_says(
    batch_id: int | None,
    declared: int | None,
    other: tuple[str, int] | None,
    expected: type[SinkError] | None,
) -> None:
    if expected is None:
        require_beginning("payouts", QUERY_ID, batch_id, declared, other)
        return
    with pytest.raises(expected) as raised:
        require_beginning("payouts", QUERY_ID, batch_id, declared, other)
    assert isinstance(raised.value, Permanent)


DSN = "postgresql://app@db/holdfast"
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("location", "folder"),
    [
        ("/a/b", "/a/b"),
        ("/a%20b/c:d", "/a%20b/c:d"),
        ("a/b", "a/b"),
        ("file:/a", "/a"),
        ("file:///a%20b", "/a%20b"),
        ("file:///a b/c?d#e", "/a b/c?d#e"),
        ("s3a://bucket/a", None),
        ("dbfs:/a", None),
        ("file://host/a", None),
        ("file:a", None),
        ("", None),
        (None, None),
    ],
)
def test_location_is_read_as_spark_reads_it(location: str | None, folder: str | None) -> None:
    assert local_folder(location) == (None if folder is None else Path(folder))


def test_query_id_is_found_where_spark_put_it(tmp_path: Path) -> None:
    query_id = uuid4()
    (tmp_path / "cp%20x").mkdir()
    (tmp_path / "cp%20x" / "metadata").write_text(json.dumps({"id": str(query_id)}))
    assert query_id_in(f"file://{tmp_path}/cp%20x") == query_id
    assert query_id_in(f"{tmp_path}/cp%20x") == query_id
    assert query_id_in(f"file://{tmp_path}/cp x") is None
    assert query_id_in("file://[x/tmp") is None
    assert query_id_in(f"{tmp_path}\x00") is None


def test_path_object_is_taken_for_its_text() -> None:
    sink = OutboxSink(DSN, stream="payouts", checkpoint=Path("/checkpoints/payouts"))
    assert sink._settings["checkpoint"] == "/checkpoints/payouts"
    assert sink._checkpoint == sink._writer._checkpoint == "/checkpoints/payouts"


@pytest.mark.parametrize(
    "location", ["", "file://[x/tmp", "file://host/tmp", "file:tmp", "/a\x00b", "/\udcff", b"/a", 5]
)
def test_location_invalid_for_spark_is_refused(location: Any) -> None:
    with pytest.raises(ValueError, match="is not the location of a checkpoint: expected a path"):
        OutboxSink(DSN, stream="payouts", checkpoint=location)


@pytest.mark.parametrize("scheme", ["s3", "s3n", "oss", "cos", "S3"])
def test_object_store_is_refused_by_name_with_the_reason(scheme: str) -> None:
    location = f"{scheme}://bucket/payouts"
    reason = FILE_SYSTEMS[scheme.lower()].reason
    with pytest.raises(ValueError, match=rf"{location} .*\({scheme.lower()}\).*{reason}"):
        OutboxSink(DSN, stream="payouts", checkpoint=location)


def test_place_where_spark_has_a_path_is_compared_too() -> None:
    """A path without a scheme may lie on an object store, by `fs.defaultFS`."""
    require_safe("file:/checkpoints/payouts")
    with pytest.raises(UnsafeCheckpoint, match=r"oss://bucket/payouts is on an object store"):
        require_safe("oss://bucket/payouts")


def test_local_paths_and_hdfs_are_tried_and_others_are_not() -> None:
    tried = ["/checkpoints/a:b", "file:///a", "hdfs://namenode:8020/a", "relative"]
    untried = ["abfs://box@account/a", "abfss://box@account/a", "viewfs://cluster/a", "dbfs:/a"]
    with_manager = ["s3a://bucket/a", "gs://bucket/a"]
    assert {file_system(each).safety for each in tried} == {Safety.TRIED}
    assert {file_system(each).safety for each in with_manager} == {Safety.WITH_MANAGER}
    assert {file_system(each).safety for each in untried} == {Safety.UNTRIED}
    assert file_system("s3a://bucket/a").safety is Safety.WITH_MANAGER
    for each in (*untried, "s3a://bucket/a"):
        OutboxSink(DSN, stream="payouts", checkpoint=each)


def test_page_has_the_file_systems_of_the_table() -> None:
    page = (ROOT / "docs/spark/remote-checkpoints.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:`\w+`,? ?)+) \| (\w+) \|", page, re.MULTILINE)
    shown = {name: safety for names, safety in rows for name in re.findall(r"`(\w+)`", names)}
    assert shown == {name: known.safety.value for name, known in FILE_SYSTEMS.items()}


def test_run_that_took_the_stream_without_an_answer_is_own() -> None:
    ownership, claim, unanswered, other = Ownership("payouts"), uuid4(), uuid4(), uuid4()
    # Without a claim, a run may replace any other.
    ownership.require({"run_id": other})
    ownership.claimed(claim)
    ownership.expect(unanswered)
    for run_id in (claim, unanswered):
        ownership.require({"run_id": run_id})
    with pytest.raises(Fenced, match=f"run {other} took the stream"):
        ownership.require({"run_id": other})


def test_free_stream_is_no_longer_free_once_a_run_has_it() -> None:
    ownership = Ownership("payouts")
    ownership.claimed(None)
    ownership.require(None)
    ownership.require({"run_id": None})
    with pytest.raises(Fenced):
        ownership.require({"run_id": uuid4()})

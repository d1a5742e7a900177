"""Where a checkpoint lies: as Spark reads its location, and which locations are refused."""

import json
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from holdfast.dispatcher.cli.streams import query_id_in
from holdfast.sink import OutboxSink
from holdfast.sink.contract.checkpoint import FILE_SYSTEMS, Safety, file_system, local_folder

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
def test_location_that_spark_cannot_mean_is_refused_in_words(location: Any) -> None:
    with pytest.raises(ValueError, match="is not the location of a checkpoint: expected a path"):
        OutboxSink(DSN, stream="payouts", checkpoint=location)


@pytest.mark.parametrize("scheme", ["s3a", "s3", "s3n", "gs", "oss", "cos", "S3A"])
def test_object_store_is_refused_by_name_with_the_reason(scheme: str) -> None:
    location = f"{scheme}://bucket/payouts"
    reason = FILE_SYSTEMS[scheme.lower()].reason
    with pytest.raises(ValueError, match=rf"{location} .*\({scheme.lower()}\).*{reason}"):
        OutboxSink(DSN, stream="payouts", checkpoint=location)


def test_local_paths_and_hdfs_are_tried_and_others_are_not() -> None:
    tried = ["/checkpoints/a:b", "file:///a", "hdfs://namenode:8020/a", "relative"]
    untried = ["abfs://box@account/a", "abfss://box@account/a", "viewfs://cluster/a", "dbfs:/a"]
    assert {file_system(each).safety for each in tried} == {Safety.TRIED}
    assert {file_system(each).safety for each in untried} == {Safety.UNTRIED}
    for each in untried:
        OutboxSink(DSN, stream="payouts", checkpoint=each)


def test_page_has_the_file_systems_of_the_table() -> None:
    page = (ROOT / "docs/spark/remote-checkpoints.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:`\w+`,? ?)+) \| (\w+) \|", page, re.MULTILINE)
    shown = {name: said for names, said in rows for name in re.findall(r"`(\w+)`", names)}
    assert shown == {name: known.safety.value for name, known in FILE_SYSTEMS.items()}

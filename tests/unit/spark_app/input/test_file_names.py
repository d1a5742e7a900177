import os
from pathlib import Path

import pytest

from holdfast.spark_app.input.file_names import describe, describe_skipped, skipped, unreadable
from holdfast.spark_app.lifecycle.failure import one_line


def _put(folder: Path, *names: bytes) -> bytes:
    for name in names:
        place = folder / os.fsdecode(name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"")
    return os.fsencode(folder)


READ = [
    "zürich",
    "e\u0301",
    "{a}",
    "[a]",
    "a*",
    "a?",
    "a,b",
    "a%20b",
    "a#b",
    "a\nb",
    "a\\b",
    " a ",
    "_day=1",
    "a" * 255,
    "a:b/c",
    "zürich/c",
]
SKIPPED = ["_a", ".a", "a._COPYING_", "_a/b", ".a/b:c"]


@pytest.mark.parametrize("name", [*READ, *SKIPPED])
def test_name_that_spark_reads_or_skips_by_rule_passes(name: str, tmp_path: Path) -> None:
    assert [*unreadable(_put(tmp_path, name.encode()))] == []


@pytest.mark.parametrize(
    ("name", "encoding", "reason"),
    [
        (b"z\xfcrich", "UTF-8", "is not UTF-8"),
        (b"z\xfc/a", "UTF-8", "is not UTF-8"),
        (b"\xed\xa0\x80", "UTF-8", "is not UTF-8"),
        ("zürich".encode(), "ANSI_X3.4-1968", "LC_ALL=C.UTF-8"),
        ("zürich/a".encode(), "ANSI_X3.4-1968", "LC_ALL=C.UTF-8"),
        ("zürich".encode(), "unknown-17", "LC_ALL=C.UTF-8"),
        (b"a:b", "UTF-8", "has a colon"),
        (b"a/b:c", "UTF-8", "has a colon"),
    ],
)
def test_name_that_spark_cannot_read_is_named(
    name: bytes, encoding: str, reason: str, tmp_path: Path
) -> None:
    [found] = unreadable(_put(tmp_path, b"plain", name), encoding)
    assert reason in found.reason
    assert found.place.startswith(os.fsencode(tmp_path) + b"/" + name.partition(b"/")[0])
    assert describe([found, found]).count("(and 1 more)") == 1


def test_directory_that_leads_into_itself_is_listed_once(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path)
    [_] = unreadable(_put(tmp_path, b"a:b"))
    assert [*unreadable(os.fsencode(tmp_path / "gone"))] == []


def test_names_that_are_skipped_are_reported_without_checksums(tmp_path: Path) -> None:
    _put(tmp_path, b"a", b"_SUCCESS", b".a.crc", b"_b\xff", b".c\n")
    assert skipped(str(tmp_path)) == [b".c\n", b"_b\xff"]
    said = one_line(describe_skipped(str(tmp_path), skipped(str(tmp_path))))
    assert said.startswith(".c (and 1 more) in ")
    assert (skipped(str(tmp_path / "gone")), skipped("hdfs://host/a")) == ([], [])

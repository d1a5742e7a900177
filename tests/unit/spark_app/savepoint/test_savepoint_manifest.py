"""The manifest of a savepoint: what it says, and every damage that it notices."""

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.checkpoint.shape import SOURCES
from holdfast.spark_app.exposure import codec
from holdfast.spark_app.exposure.settings import Settings
from holdfast.spark_app.savepoint.manifest import VERSION, File, Manifest, checksum

MANIFEST = Manifest(
    savepoint_id="0b5a7c4e-2d0c-4b0e-9e62-7a1d1a2b3c4d",
    stream="payouts",
    query_id="9f0c7c1e-9d53-4c6e-8a44-0f6a4c1c1c11",
    batch_id=7,
    digest="ab" * 32,
    created_at="2026-11-25T03:00:00+00:00",
    holdfast="0.1.0",
    spark="4.3.0",
    codec=codec.VERSION,
    begun={
        "version": 3,
        "stream": "payouts",
        SOURCES: [{"kind": "files", "path": "/events", "format": "json"}],
        "key_groups": 4,
        "partitions": 2,
        "window_us": 900_000_000,
        "watermark_delay_us": 30_000_000,
        "late_cutoff_us": 120_000_000,
        "future_tolerance_us": 300_000_000,
    },
    watermark_ms=1_730_722_580_000,
    next_watermark_ms=1_730_723_610_000,
    settled_until_us=None,
    offsets=["v1", '{"batchWatermarkMs":1730722580000,"conf":{}}', '{"logOffset":2}'],
    policies={"version": 1, "policies": []},
    rows={"windows": 1, "merchants": 1, "ids": 2},
    files=[
        File(f"{table}/part-0.parquet", 10, "cd" * 32) for table in ("windows", "merchants", "ids")
    ],
)
TEXT = MANIFEST.to_json()


def test_a_manifest_is_read_as_it_was_written() -> None:
    found = Manifest.from_json(TEXT, "/sp")
    assert found == MANIFEST
    assert found.proof.digest == bytes.fromhex("ab" * 32)
    assert found.settings == Settings()
    assert found.watermark_us == 1_730_722_580_000_000
    assert replace(found, watermark_ms=0).watermark_us is None
    found.require_readable("/sp")


def test_a_table_with_rows_and_no_file_is_damage() -> None:
    """Else its part of the state would silently be empty."""
    for table in MANIFEST.rows:
        files = [file for file in MANIFEST.files if not file.name.startswith(f"{table}/")]
        with pytest.raises(CommandError, match="cannot be read"):
            Manifest.from_json(replace(MANIFEST, files=files).to_json(), "/sp")
        empty = replace(MANIFEST, files=files, rows={**MANIFEST.rows, table: 0})
        assert Manifest.from_json(empty.to_json(), "/sp") == empty


@given(st.integers(0, len(TEXT) - 2))
def test_a_cut_manifest_is_refused(length: int) -> None:
    with pytest.raises(CommandError, match=r"manifest\.json in the savepoint /sp"):
        Manifest.from_json(TEXT[:length], "/sp")


@given(st.integers(0, len(TEXT) - 1), st.integers(0, 6))
def test_a_flipped_bit_is_refused_or_changes_nothing(place: int, bit: int) -> None:
    flipped = TEXT[:place] + chr(ord(TEXT[place]) ^ 1 << bit) + TEXT[place + 1 :]
    # A space of the layout may become another one.
    with suppress(CommandError):
        assert Manifest.from_json(flipped, "/sp") == MANIFEST


def _resealed(**changed: Any) -> str:
    content = json.loads(TEXT) | changed
    del content["checksum"]
    return json.dumps({**content, "checksum": checksum(content)})


def test_a_manifest_of_a_later_version_is_refused_by_its_version() -> None:
    later = json.dumps({"version": VERSION + 1, "holdfast": "9.1.0", "unknown": "fields"})
    with pytest.raises(CommandError, match=r"version 2, and this Holdfast reads up to 1.*9\.1\.0"):
        Manifest.from_json(later, "/sp")


@pytest.mark.parametrize("field", ["digest", "query_id", "begun", "files", "offsets"])
def test_a_sealed_manifest_without_sense_is_refused(field: str) -> None:
    with pytest.raises(CommandError, match="cannot be read"):
        Manifest.from_json(_resealed(**{field: [{"no": "sense"}]}), "/sp")


@pytest.mark.parametrize("text", ["", "[]", "7", "null", "{}", '{"version": "1"}', "\0"])
def test_another_file_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="cannot be read"):
        Manifest.from_json(text, "/sp")


def test_columns_of_another_version_are_refused() -> None:
    other = Manifest.from_json(_resealed(codec=codec.VERSION + 1), "/sp")
    with pytest.raises(CommandError, match=r"run the version that wrote it \(0\.1\.0\)"):
        other.require_readable("/sp")

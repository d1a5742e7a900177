"""Spark's offsets file, as far as a person wants to read it."""

from datetime import UTC, datetime

import pytest

from dispatcher.operators.streams.rules import readable_offsets

METADATA = '{"batchWatermarkMs":%d,"batchTimestampMs":1793620800250,"conf":{"a":"b"}}'


def test_times_and_one_position_for_each_source_are_read() -> None:
    text = "\n".join(["v1", METADATA % 1793620770000, '{"logOffset":3}', "-", "42"])
    assert readable_offsets(text) == {
        "batch_time": datetime(2026, 11, 2, 12, 0, 0, 250_000, UTC),
        "watermark": datetime(2026, 11, 2, 11, 59, 30, tzinfo=UTC),
        "sources": [{"logOffset": 3}, None, 42],
    }


def test_watermark_that_is_not_there_yet_is_none() -> None:
    found = readable_offsets(f"v1\n{METADATA % 0}")
    assert found is not None
    assert found["watermark"] is None
    assert found["sources"] == []


@pytest.mark.parametrize(
    "text",
    ["", "v1", "offsets", "v1\n[]", "v1\n{", f"v1\n{METADATA % 1}\nnot json", "v1\n" + "9" * 30],
)
def test_text_in_another_form_is_shown_as_it_is(text: str) -> None:
    assert readable_offsets(text) == {"text": text}


def test_batch_without_offsets_has_none() -> None:
    assert readable_offsets(None) is None

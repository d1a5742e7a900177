"""Spark's offsets file, as far as a person wants to read it, and what a batch read."""

import json
import string
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.sink.contract.source_offsets import (
    FIRST_READ,
    NEW_PARTITION,
    OFFSET_MAX,
    range_lines,
    ranges,
    readable_offsets,
)

METADATA = '{"batchWatermarkMs":%d,"batchTimestampMs":1793620800250,"conf":{"a":"b"}}'

Topics = dict[str, dict[str, int]]

OFFSETS = st.integers(0, OFFSET_MAX)
NAMES = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=8)
TOPICS = st.dictionaries(
    NAMES, st.dictionaries(st.integers(0, 9).map(str), OFFSETS, min_size=1), min_size=1, max_size=3
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


def _text(*sources: Any, watermark: int = 0) -> str:
    lines = ("-" if each is None else json.dumps(each) for each in sources)
    return "\n".join(["v1", METADATA % watermark, *lines])


def _only(before: str | None, after: str | None, batch_id: int = 9) -> dict[str, Any]:
    [source] = ranges(before, after, batch_id)
    return source


def test_times_and_one_position_for_each_source_are_read() -> None:
    text = "\n".join(["v1", METADATA % 1793620770000, '{"logOffset":3}', "-", "42"])
    assert readable_offsets(text) == {
        "batch_time": datetime(2026, 11, 2, 12, 0, 0, 250_000, UTC),
        "watermark": datetime(2026, 11, 2, 11, 59, 30, tzinfo=UTC),
        "sources": [{"logOffset": 3}, None, 42],
    }


def test_missing_watermark_is_none() -> None:
    rows = readable_offsets(f"v1\n{METADATA % 0}")
    assert rows is not None
    assert rows["watermark"] is None
    assert rows["sources"] == []


NOT_SPARKS = {
    "empty": "",
    "version alone": "v1",
    "no version": "offsets",
    "metadata is a list": "v1\n[]",
    "metadata ends early": "v1\n{",
    "source is no JSON": f"v1\n{METADATA % 1}\nnot json",
    "number": "v1\n" + "9" * 30,
    "number of too many digits": f"v1\n{METADATA % 1}\n" + "9" * 10_000,
    "time beyond the calendar": 'v1\n{"batchTimestampMs":' + "9" * 30 + "}",
    "nested too deep to be parsed": f"v1\n{METADATA % 1}\n" + "[" * 100_000 + "]" * 100_000,
    "nested too deep to be written": f"v1\n{METADATA % 1}\n" + "[" * 100 + "]" * 100,
    "NaN": f'v1\n{METADATA % 1}\n{{"t":{{"0":NaN}}}}',
    "infinite": f'v1\n{METADATA % 1}\n{{"t":{{"0":1e999}}}}',
    "half a character": f'v1\n{METADATA % 1}\n"\\ud800"',
    "name of half a character": f'v1\n{METADATA % 1}\n{{"\\udc00":1}}',
}


@pytest.mark.parametrize("text", NOT_SPARKS.values(), ids=[*NOT_SPARKS])
def test_text_in_another_form_is_shown_as_it_is_and_has_no_ranges(text: str) -> None:
    assert readable_offsets(text) == {"text": text}
    assert ranges(None, text, 0) == []
    assert "not in the ledger" in _only(text, _text({"t": {"0": 5}}))["note"]


def test_batch_without_offsets_has_none() -> None:
    assert readable_offsets(None) is None
    assert ranges(_text({"logOffset": 1}), None, 3) == []


def test_kafka_range_is_from_inclusive_until_exclusive() -> None:
    before = _text({"payments": {"0": 1200, "1": 40, "2": 7}})
    source = _only(before, _text({"payments": {"0": 1804, "1": 40, "2": 9}}))
    assert source == {
        "source": 0,
        "kind": "kafka",
        "count": 606,
        "unread": 1,
        "note": None,
        "partitions": [
            {"topic": "payments", "partition": each, "from": start, "until": end, "count": count}
            | {"note": None}
            for each, start, end, count in ((0, 1200, 1804, 604), (2, 7, 9, 2))
        ],
    }
    assert [*range_lines(source)] == [
        "source 0: Kafka, 606 offsets, 1 partition with nothing new",
        "  payments partition 0: from 1200 until 1804, 604 offsets",
        "  payments partition 2: from 7 until 9, 2 offsets",
    ]


def test_start_of_the_first_batch_is_not_known() -> None:
    after = _text({"t": {"0": 5}})
    for before, batch_id in ((None, 0), (_text(None), 4), (_text(), 4)):
        source = _only(before, after, batch_id)
        assert FIRST_READ in source["note"]
        assert (source["count"], source["partitions"][0]["from"]) == (None, None)
        assert source["partitions"][0]["until"] == 5
    source = _only(None, after, 4)
    assert "batch 3 are not in the ledger" in source["note"]
    assert "from ? until 5" in "\n".join(range_lines(source))


ONE = {"t": {"0": 5}}


@pytest.mark.parametrize(
    ("then", "now", "partition", "message"),
    [
        (ONE, {"t": {"0": 5, "1": 3}}, ("t", 1, None, 3), NEW_PARTITION),
        (ONE, {"t": {"0": 5}, "u": {"0": 0}}, ("u", 0, None, 0), NEW_PARTITION),
        (ONE, {"t": {"0": 4}}, ("t", 0, 5, 4), "ends before it begins"),
        (ONE, {"u": {"0": 5}}, ("t", 0, 5, None), "not in the offsets any more"),
        (ONE, {}, ("t", 0, 5, None), "not in the offsets any more"),
    ],
    ids=["new partition", "new topic", "backwards", "absent topic", "no topic"],
)
def test_partition_without_a_full_range_is_explained(
    then: Topics, now: Topics, partition: tuple[Any, ...], message: str
) -> None:
    source = _only(_text(then), _text(now))
    assert source["count"] is None
    each = source["partitions"][0]
    assert tuple(each[name] for name in ("topic", "partition", "from", "until")) == partition
    assert each["count"] is None
    assert message in each["note"]
    assert message in "\n".join(range_lines(source))


@pytest.mark.parametrize(
    ("then", "now", "first", "last", "text"),
    [
        ({"logOffset": 2}, {"logOffset": 3}, 3, 3, "log entry 3"),
        ({"logOffset": 2}, {"logOffset": 5}, 3, 5, "log entries 3 to 5"),
        ({"logOffset": 2}, {"logOffset": 2}, None, None, "nothing new"),
        (None, {"logOffset": 0}, 0, 0, "log entry 0"),
        ({"logOffset": -1}, {"logOffset": 1}, 0, 1, "log entries 0 to 1"),
        (None, {"logOffset": -1}, None, None, "nothing new"),
        ({"logOffset": 4}, {"logOffset": 3}, None, None, "went back from entry 4 to 3"),
        (ONE, {"logOffset": 3}, None, 3, "another kind"),
    ],
)
def test_file_source_read_entries_of_its_log(
    then: Any, now: Any, first: int | None, last: int | None, text: str
) -> None:
    source = _only(_text(then), _text(now))
    assert (source["kind"], source["first_entry"], source["last_entry"]) == ("log", first, last)
    assert text in "\n".join(range_lines(source))


def test_file_source_of_the_first_batch_begins_with_entry_0() -> None:
    source = _only(None, _text({"logOffset": 1}), 0)
    assert (source["first_entry"], source["last_entry"], source["note"]) == (0, 1, None)
    source = _only(None, _text({"logOffset": 1}), 1)
    assert (source["first_entry"], source["last_entry"]) == (None, 1)
    assert "log entries up to 1" in "\n".join(range_lines(source))


def test_sources_keep_their_order_and_an_added_one_begins_there() -> None:
    before, after = _text({"logOffset": 1}, ONE), _text({"logOffset": 1}, ONE, None, 7)
    assert [each["kind"] for each in ranges(before, after, 3)] == [
        "log",
        "kafka",
        "nothing",
        "other",
    ]
    assert [line for each in ranges(before, after, 3) for line in range_lines(each)] == [
        "source 0: files or ticks, nothing new",
        "source 1: Kafka, 0 offsets, 1 partition with nothing new",
        "source 2: no data yet",
        "source 3: up to 7",
    ]


@pytest.mark.parametrize(
    "offset",
    [
        {"t": {"0": -1}},
        {"t": {"0": True}},
        {"t": {"0": 1.5}},
        {"t": {"0": "5"}},
        {"t": {"0": OFFSET_MAX + 1}},
        {"t": {"00": 5}},
        {"t": {"٣": 5}},
        {"t": {"x": 5}},
        {"": {"0": 5}},
        {"t": 5},
        {"t": {"0": 5}, "u": None},
        {"logOffset": 1.0},
        {"logOffset": True},
        {"logOffset": OFFSET_MAX + 1},
        {"logOffset": 3, "more": 1},
        {},
        [],
        "t",
    ],
    ids=json.dumps,
)
def test_offset_of_no_known_form_is_of_another_kind(offset: Any) -> None:
    source = _only(_text(ONE if offset else None), _text(offset))
    assert (source["kind"], source["offset"]) == ("other", offset)


@settings(max_examples=40)
@given(TOPICS, st.data())
def test_consecutive_ranges_neither_overlap_nor_gap(begun: Topics, data: st.DataObject) -> None:
    cuts = [begun]
    for _ in range(data.draw(st.integers(1, 4))):
        cuts.append(
            {
                topic: {
                    name: data.draw(st.integers(offset, OFFSET_MAX))
                    for name, offset in partitions.items()
                }
                for topic, partitions in cuts[-1].items()
            }
        )
    texts = [_text(cut) for cut in cuts]
    read: dict[tuple[str, int], int] = {
        (topic, int(name)): offset
        for topic, partitions in begun.items()
        for name, offset in partitions.items()
    }
    for number in range(1, len(cuts)):
        source = _only(texts[number - 1], texts[number], number)
        for each in source["partitions"]:
            place = (each["topic"], each["partition"])
            assert each["from"] == read[place]
            assert each["count"] == each["until"] - each["from"] > 0
            read[place] = each["until"]
        assert source["count"] == sum(each["count"] for each in source["partitions"])
        assert source["unread"] + len(source["partitions"]) == len(read)
    assert read == {
        (topic, int(name)): offset
        for topic, partitions in cuts[-1].items()
        for name, offset in partitions.items()
    }


@pytest.mark.rest
@given(
    *(
        st.none() | st.text() | st.builds(lambda lines: "\n".join(["v1", *lines]), st.lists(each))
        for each in [st.text() | JSON.map(json.dumps) | TOPICS.map(json.dumps) | st.just("-")] * 2
    ),
    st.integers(0, 3),
)
def test_whatever_is_stored_can_be_shown_and_written_again(
    before: str | None, after: str | None, batch_id: int
) -> None:
    result = ranges(before, after, batch_id)
    json.dumps([result, (readable_offsets(after) or {}).get("sources")], allow_nan=False)
    for source in result:
        assert all(line.encode() for line in range_lines(source))

"""Files of JSON lines as events, and which rows are refused."""

import itertools
import json
import os
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.sink.contract.states import QuarantineReason
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.input import lines as module
from holdfast.spark_app.input.events import EVENT, Parsed
from holdfast.spark_app.input.file_names import describe, describe_skipped, skipped, unreadable
from holdfast.spark_app.input.lines import parse_lines, parse_time, parse_times
from holdfast.spark_app.input.missing_files import FileGone
from holdfast.spark_app.input.missing_files import describe as missing_describe
from holdfast.spark_app.input.source import parse_columns
from holdfast.spark_app.input.text_bytes import all_visible_ascii, crc32
from holdfast.spark_app.input.validate import validate
from holdfast.spark_app.lifecycle.failure import Cause, diagnose, one_line
from tests.support.examples import examples

GOOD = {
    "event_id": "e917",
    "merchant_id": "m_482",
    "type": "payout_submitted",
    "amount_minor": -1_800_000,
    "currency": "USD",
    "occurred_at": "2026-11-02T12:00:00Z",
}


def _line(**changed: Any) -> bytes:
    return json.dumps(GOOD | changed).encode()


def _array(*lines: bytes) -> pa.Array:
    return pa.array(lines, pa.binary())


BAD_LINES = {
    b'{"event_id":': "malformed",
    b"hello": "malformed",
    b"[]": "malformed",
    b'["' + _line() + b'"]': "malformed",
    b"[" + _line() + b"]": "malformed",
    b'"text"': "malformed",
    b"5": "malformed",
    b"null": "malformed",
    _line() + _line(): "malformed",
    _line() + b" // sent twice": "malformed",
    b'{"event_id":"\xff"}': "malformed",
    b'\xef\xbb\xbf{"event_id":"e"}': "malformed",
    b'{"event_id":"e","event_id":"e"}': "malformed",
    b'{"x":' + b"[" * 100_000: "malformed",
    b'{"amount_minor":-' + b"1" * 5_000 + b"}": "amount_out_of_range",
    _line(event_id=5): "bad_text",
    _line(event_id={}): "bad_text",
    _line(merchant_id=True): "bad_text",
    _line(type=[]): "bad_text",
    _line(merchant_id="m\ud800"): "bad_text",
    _line(currency=840): "wrong_currency",
    _line(amount_minor="5"): "bad_amount",
    _line(amount_minor="many"): "bad_amount",
    _line(amount_minor=1.5): "bad_amount",
    _line(amount_minor=1e3): "bad_amount",
    _line(amount_minor=float("nan")): "bad_amount",
    _line(amount_minor=float("inf")): "bad_amount",
    _line(amount_minor=False): "bad_amount",
    _line(amount_minor=2**63): "amount_out_of_range",
    _line(amount_minor=-(10**30)): "amount_out_of_range",
    _line(occurred_at=1_793_620_800): "bad_time",
    _line(occurred_at="2026-11-02T12:00:00"): "bad_time",
    _line(occurred_at="2026-02-30T12:00:00Z"): "bad_time",
    _line(occurred_at="noon\ud800"): "bad_time",
}


@pytest.mark.parametrize(("line", "reason"), BAD_LINES.items(), ids=lambda x: repr(x)[:60])
def test_each_bad_line_has_its_reason(line: bytes, reason: str) -> None:
    parsed = parse_lines(_array(line))
    assert {at: fault.reason.value for at, fault in parsed.faults.items()} == {0: reason}
    assert parsed.faults[0].detail


def test_a_bad_line_takes_no_other_with_it() -> None:
    bad = list(BAD_LINES)
    lines = [line for each in bad for line in (_line(), each)] + [_line()] * 1_000
    parsed = parse_lines(_array(*lines))
    assert sorted(parsed.faults) == list(range(1, 2 * len(bad), 2))
    good = [row for at, row in enumerate(parsed.events.to_pylist()) if at not in parsed.faults]
    assert len(good) == len(lines) - len(bad)
    assert {(row["event_id"], row["amount_minor"]) for row in good} == {("e917", -1_800_000)}


def test_refused_line_is_kept_unchanged() -> None:
    parsed = parse_lines(_array(_line(), b"  ", b' {"event_id": 1.0 } ', b'{"event_id":"\xff"}'))
    assert parsed.text(1) == ' {"event_id": 1.0 } '
    assert parsed.text(2) == '{"event_id":"\\xff"}'


def test_blank_lines_and_unknown_fields_are_ignored() -> None:
    more = _line(note={"by": ["x", {"y": None}]}, Event_id="other")
    parsed = parse_lines(_array(b"", b" \t\r", b"\t" + more + b"\r", b""))
    assert not parsed.faults
    assert parsed.events.to_pylist() == parse_lines(_array(_line())).events.to_pylist()


def test_missing_and_null_fields_are_null() -> None:
    parsed = parse_lines(_array(b"{}", json.dumps(dict.fromkeys(GOOD)).encode()))
    assert not parsed.faults
    assert all(value is None for row in parsed.events.to_pylist() for value in row.values())


_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.just(10**4000),
    st.floats(),
    st.text(),
    st.sampled_from(["a Inf b", "}{", "\x00", "2026-11-02T12:00:00Z"]),
)
_VALUES = st.recursive(_SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
_OBJECTS = st.dictionaries(
    st.one_of(st.sampled_from([*GOOD, "note"]), st.text(max_size=3)), _VALUES, max_size=6
).map(json.dumps)
_TOKENS = st.lists(
    st.sampled_from(
        ["{", "}", '"event_id"', '"note"', ":", ",", "1", "01", "-Inf", "NaN", '"x"', "[", "]", " "]
    ),
    max_size=8,
).map("".join)
_LINES = st.one_of(_OBJECTS, _TOKENS, _TOKENS.map(lambda text: f'{{"note":{text}}}'))


@pytest.mark.rest
@given(st.lists(_LINES.map(str.encode), min_size=1, max_size=3))
@settings(max_examples=examples(500))
def test_lines_read_together_are_the_lines_read_one_by_one(lines: list[bytes]) -> None:
    together = module._read_all(_array(*lines))
    if together is not None:
        one_by_one = module._read_each(_array(*lines))
        assert one_by_one.faults == {}
        assert together.table.equals(one_by_one.table)


_SPLIT = st.one_of(st.sampled_from([_line(), _line(event_id="e2")]), _OBJECTS.map(str.encode))
_BREAKS = st.sampled_from([b"\n", b"\r", b"\r\n", b"\n\n", b" "])


@pytest.mark.rest
@given(st.lists(_SPLIT, min_size=1, max_size=4), st.lists(_BREAKS, min_size=5), st.data())
@settings(max_examples=examples(500))
def test_values_with_line_ends_are_read_as_single_ones(
    objects: list[bytes], breaks: list[bytes], data: st.DataObject
) -> None:
    """Objects and halves of them, spread over values in any way."""
    content = b"".join(each + sep for each, sep in zip(objects, breaks, strict=False))
    places = st.integers(0, len(content)) | st.sampled_from(
        [at for at, byte in enumerate(content) if byte in b",{\n\r"]
    )
    at = sorted({0, len(content), *data.draw(st.lists(places, max_size=3))})
    values = [content[a:b] for a, b in itertools.pairwise(at)]
    values = [each for each in values if each.strip()]
    together = parse_lines(_array(*values))
    results = [parse_lines(_array(value)) for value in values]
    assert together.events.to_pylist() == [
        row for each in results for row in each.events.to_pylist()
    ]
    assert together.faults == {i: each.faults[0] for i, each in enumerate(results) if each.faults}


def test_record_is_not_completed_by_the_next_one() -> None:
    full, half = _line(), _line(event_id="e2").partition(b", ")
    values = [full + b"\n" + half[0] + b",", half[2]]
    for parsed in (parse_lines(_array(*values)), *(parse_lines(_array(each)) for each in values)):
        assert {fault.reason.value for fault in parsed.faults.values()} == {"malformed"}
        assert len(parsed.faults) == parsed.events.num_rows
    pretty = json.dumps(GOOD, indent=1).encode()
    assert parse_lines(_array(pretty, full, pretty)).events.to_pylist() == (
        parse_lines(_array(full)).events.to_pylist() * 3
    )


def test_plain_lines_are_read_together() -> None:
    """The fast reader must not have become one that always gives up."""
    assert module._read_all(_array(_line(), _line(note=[1, {"x": "Inf"}]))) is not None


NOON = 1_793_620_800_000_000  # 2026-11-02T12:00:00Z


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("2026-11-02T12:00:00Z", NOON),
        ("2026-11-02t12:00:00z", NOON),
        ("2026-11-02 12:00:00Z", NOON),
        ("2026-11-02T12:00:00.5Z", NOON + 500_000),
        ("2026-11-02T12:00:00.123456789Z", NOON + 123_456),
        ("2026-11-02T17:30:00+05:30", NOON),
        ("2026-11-02T12:00:00-00:00", NOON),
        ("9999-12-31T23:59:59-23:59", 253_402_387_139_000_000),
        ("0001-01-01T00:00:00Z", -62_135_596_800_000_000),
    ],
)
def test_rfc_3339_is_read_to_the_microsecond(text: str, micros: int) -> None:
    assert parse_time(text) == micros
    assert parse_times(pa.array([text])).cast(pa.int64()).to_pylist() == [micros]


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-02T12:00:00",
        "2026-11-02",
        "2026-11-02T12:00Z",
        "2026-02-30T12:00:00Z",
        "2026-11-02T24:00:00Z",
        "2026-11-02T23:59:60Z",
        "2026-11-02T12:00:00+0530",
        "2026-11-02T12:00:00+24:00",
        "2026-11-02T12:00:00Z\n",
        " 2026-11-02T12:00:00Z",
        "\u0662026-11-02T12:00:00Z",
        "0000-01-01T00:00:00Z",
        "yesterday",
        "",
        "1793620800",
    ],
)
def test_invalid_time_does_not_affect_other_lines(text: str) -> None:
    assert parse_time(text) is None
    column = parse_times(pa.array([text, "2026-11-02T12:00:00Z", None]))
    assert column.cast(pa.int64()).to_pylist() == [None, NOON, None]


_VALID = st.builds(
    lambda moment, separator, digits, zone: (
        f"{moment:%Y-%m-%d}{separator}{moment:%H:%M:%S}{digits}{zone}"
    ),
    st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)),  # noqa: DTZ001 - the zone is drawn
    st.sampled_from("Tt "),
    st.sampled_from(["", ".1", ".000001", ".1234567"]),
    st.sampled_from(["Z", "z", "+00:00", "-07:30", "+23:59", ""]),
)


@given(st.lists(st.one_of(_VALID, st.text(max_size=5)), max_size=5))
def test_a_column_reads_as_its_texts_one_by_one(texts: list[str]) -> None:
    column = parse_times(pa.array(texts, pa.string()))
    assert column.cast(pa.int64()).to_pylist() == [parse_time(text) for text in texts]


@given(st.datetimes(timezones=st.just(UTC)))
def test_the_text_of_a_moment_is_that_moment(moment: datetime) -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert parse_time(moment.isoformat()) == (moment - epoch) // timedelta(microseconds=1)


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
    message = one_line(describe_skipped(str(tmp_path), skipped(str(tmp_path))))
    assert message.startswith(".c (and 1 more) in ")
    assert (skipped(str(tmp_path / "gone")), skipped("hdfs://host/a")) == ([], [])


def test_missing_files_are_reported_by_first_name_and_count() -> None:
    one = missing_describe(["file:/data/events/3.jsonl"], 4)
    assert one.startswith("/data/events/3.jsonl is gone, and batch 4 was planned to read it. ")
    three = missing_describe(["s3a://bucket/a b.jsonl", "file:/b", "file:/c"], 4)
    assert three.startswith("s3a://bucket/a b.jsonl (and 2 more) are gone, and batch 4 was planned")


def test_missing_file_may_return_and_has_its_own_advice() -> None:
    error = FileGone(missing_describe(["s3a://me:secret@bucket/new\nline"], 4))
    gone = diagnose(error, jvm_gone=True)
    assert (gone.cause, gone.permanent) == (Cause.FILE, False)
    assert gone.message.startswith("s3a://me:***@bucket/new line is gone, and batch 4 ")
    assert gone.message.endswith("put an empty file in its place.")
    assert "\n" not in gone.message


TEXTS = st.lists(st.text(max_size=12), max_size=20)


@settings(deadline=None)
@given(TEXTS, st.integers(0, 5))
def test_checksums_are_those_of_zlib_also_in_a_slice(texts: list[str], first: int) -> None:
    expected = [zlib.crc32(text.encode()) for text in texts]
    column = pa.array(texts, pa.string())
    assert crc32(column).tolist() == expected
    assert crc32(column.slice(first)).tolist() == expected[first:]


@settings(deadline=None)
@given(TEXTS, st.integers(0, 5))
def test_visible_ascii_is_seen_as_a_person_would_read_it(texts: list[str], first: int) -> None:
    column = pa.array(texts, pa.string()).slice(first)
    expected = bool(texts[first:]) and all(
        1 <= len(text) <= 4 and all("!" <= letter <= "~" for letter in text)
        for text in texts[first:]
    )
    assert all_visible_ascii(column, 4) == expected


@pytest.mark.parametrize("other", [None, "", "a b", "a\t", "\u00e9", "a\x7f", "12345"])
def test_one_other_text_is_enough(other: str | None) -> None:
    assert all_visible_ascii(pa.array(["!", "~~~~"]), 4)
    assert not all_visible_ascii(pa.array(["!", other, "~~~~"]), 4)


POLICY = Policy.parse("""
version = "v1"
[[default]]
limit_minor = 100
release_level_minor = 100
[[merchant]]
id = "m_eur"
currency = "EUR"
limit_minor = 100
release_level_minor = 100
""")

GOOD_VALIDATE = {
    "event_id": "e1",
    "merchant_id": "m_1",
    "type": "payout_submitted",
    "amount_minor": 5,
    "currency": "USD",
    "occurred_at": NOON,
}


def _parsed(*rows: dict[str, Any]) -> Parsed:
    batch = pa.RecordBatch.from_pylist([GOOD_VALIDATE | row for row in rows], schema=EVENT)
    return parse_columns(batch)


BAD_ROWS: list[tuple[dict[str, Any], str]] = [
    ({"event_id": None}, "missing_event_id"),
    ({"event_id": ""}, "missing_event_id"),
    ({"event_id": " \u00a0\t"}, "missing_event_id"),
    ({"event_id": "e\x00"}, "bad_text"),
    ({"event_id": "e\x1f1"}, "bad_text"),
    ({"event_id": "e" * 257}, "bad_text"),
    ({"merchant_id": None}, "missing_merchant"),
    ({"merchant_id": "\t"}, "missing_merchant"),
    ({"merchant_id": "m\n1"}, "bad_text"),
    ({"type": None}, "missing_type"),
    ({"type": "t" * 129}, "bad_text"),
    ({"amount_minor": None}, "missing_amount"),
    ({"amount_minor": 10**15 + 1}, "amount_out_of_range"),
    ({"amount_minor": -(2**63)}, "amount_out_of_range"),
    ({"currency": None}, "wrong_currency"),
    ({"currency": "EUR"}, "wrong_currency"),
    ({"currency": "usd"}, "wrong_currency"),
    ({"merchant_id": "m_eur"}, "wrong_currency"),
    ({"occurred_at": None}, "missing_time"),
    ({"occurred_at": 946_684_799_999_999}, "time_out_of_range"),
    ({"occurred_at": 4_102_444_800_000_000}, "time_out_of_range"),
    ({"occurred_at": 2**63 - 1}, "time_out_of_range"),
]


@pytest.mark.parametrize(("row", "reason"), BAD_ROWS, ids=lambda x: repr(x)[:50])
def test_bad_row_has_only_its_reason(row: dict[str, Any], reason: str) -> None:
    events, refused = validate(_parsed({}, row, {"event_id": "e2"}), POLICY)
    assert events.column("event_id").to_pylist() == ["e1", "e2"]
    assert refused.column("reason").to_pylist() == [reason]
    assert refused.column("detail")[0].as_py()
    assert set(json.loads(refused.column("row")[0].as_py())) == set(GOOD_VALIDATE)


def test_what_is_just_inside_passes() -> None:
    rows = [
        {"event_id": "\u00e9" * 256},
        {"merchant_id": "\U0001f600" * 256},
        {"type": "t" * 128},
        {"amount_minor": 10**15},
        {"amount_minor": -(10**15)},
        {"amount_minor": 0},
        {"occurred_at": 946_684_800_000_000},
        {"occurred_at": 4_102_444_799_999_999},
        {"merchant_id": "m_eur", "currency": "EUR"},
    ]
    events, refused = validate(_parsed(*rows), POLICY)
    assert refused.num_rows == 0
    assert events.num_rows == len(rows)
    assert all(column.null_count == 0 for column in events.columns)


def test_every_row_is_an_event_or_refused_once() -> None:
    rows = [row for row, _ in BAD_ROWS]
    events, refused = validate(_parsed(*rows, {}, *rows), POLICY)
    assert events.num_rows == 1
    assert refused.num_rows == 2 * len(rows)


def test_a_row_that_could_not_be_read_keeps_its_first_reason() -> None:
    line = b'{"event_id":"e1","merchant_id":null,"amount_minor":1.5}'
    _, refused = validate(parse_lines(pa.array([line], pa.binary())), POLICY)
    assert refused.column("reason").to_pylist() == ["bad_amount"]


def test_refused_rows_are_text_that_postgres_takes() -> None:
    lines = [b'{"event_id":"\xff\x00', b'{"merchant_id":"\x00', b"x" * 1_000_000]
    _, refused = validate(parse_lines(pa.array(lines, pa.binary())), POLICY)
    texts = refused.column("row").to_pylist()
    assert refused.column("reason").to_pylist() == ["malformed"] * 3
    assert not any("\x00" in text for text in texts)
    assert max(map(len, texts)) < 100_000


def test_parquet_bytes_that_are_not_utf_8_are_refused() -> None:
    """Spark hands a string column over without looking at it."""
    ids = pa.array([b"e1", b"e\xff"], pa.binary()).view(pa.string())
    batch = pa.RecordBatch.from_pylist([GOOD_VALIDATE, GOOD_VALIDATE], schema=EVENT)
    columns = [ids if name == "event_id" else batch.column(name) for name in EVENT.names]
    parsed = parse_columns(pa.RecordBatch.from_arrays(columns, schema=EVENT))
    events, refused = validate(parsed, POLICY)
    assert events.column("event_id").to_pylist() == ["e1"]
    assert refused.column("reason").to_pylist() == ["bad_text"]
    assert "e\\\\xff" in refused.column("row")[0].as_py()


def test_reasons_are_those_of_a_source_row() -> None:
    used = {reason for _, reason in BAD_ROWS}
    assert used <= {reason.value for reason in QuarantineReason}


def test_an_event_from_before_the_first_policy_is_refused() -> None:
    limits = "limit_minor = 5\nrelease_level_minor = 5\n"
    since = "effective_from = 2026-11-02T12:00:00Z\n"
    policy = Policy.parse(f'version = "v1"\n[[default]]\n{limits}{since}')
    before, within = NOON - 15 * 60 * 1_000_000 - 1, NOON - 15 * 60 * 1_000_000
    events, refused = validate(_parsed({"occurred_at": before}, {"occurred_at": within}), policy)
    assert events.column("occurred_at").cast(pa.int64()).to_pylist() == [within]
    assert refused.column("reason").to_pylist() == ["time_out_of_range"]

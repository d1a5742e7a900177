"""Rows, times and hashes by column are those that are read one by one."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.sink.contract.canonical import NotCanonical, canonical_json, rfc3339_from_micros
from holdfast.sink.contract.envelope import Envelope
from holdfast.sink.contract.key import Key
from holdfast.sink.rows import read_rows as module
from holdfast.sink.rows.batch import BatchInput, prepare
from holdfast.sink.rows.columns import check_entries
from holdfast.sink.rows.copy_formats import array_literal, csv
from holdfast.sink.rows.hashes import contents, hashes
from holdfast.sink.rows.json_columns import times_of
from holdfast.sink.rows.prepared import ARRIVED
from holdfast.sink.rows.read_rows import Rows, read_rows, read_singly
from tests.support.dispatch.sender import alternating, decision, table
from tests.support.examples import examples

_INNER = pa.struct({"n": pa.int64(), "\u00e9": pa.string(), "\U0001f600": pa.bool_()})
SCHEMA = pa.schema(
    {
        "subject": pa.string(),
        "type": pa.string(),
        "key": pa.list_(pa.string()),
        "occurred_at": pa.timestamp("us", "UTC"),
        "data": pa.struct(
            {
                "text": pa.string(),
                "n": pa.int64(),
                "u": pa.uint64(),
                "small": pa.int8(),
                "yes": pa.bool_(),
                "at": pa.timestamp("us", "America/New_York"),
                "nothing": pa.null(),
                "inner": _INNER,
                "list": pa.list_(_INNER),
                "lists": pa.large_list(pa.list_(pa.string())),
            }
        ),
        "priority": pa.int32(),
        "traceparent": pa.string(),
    }
)

_text = st.text(alphabet='ab"\\\n\t\r\x08\x00\x1f\x7f\u00e9\u2028\U0001f600/<', max_size=5)
_maybe_text = st.none() | _text
_number = st.none() | st.sampled_from([0, -1, 5, 2**53 - 1, -(2**53) + 1, 2**53, -(2**53), 2**62])
_moment = st.none() | st.datetimes(
    datetime(1, 1, 2),  # noqa: DTZ001 - hypothesis wants naive bounds
    datetime(9999, 12, 30),  # noqa: DTZ001 - hypothesis wants naive bounds
    timezones=st.just(UTC),
)
_inner = st.none() | st.fixed_dictionaries(
    {"n": _number, "\u00e9": _maybe_text, "\U0001f600": st.none() | st.booleans()}
)
_trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_row = st.fixed_dictionaries(
    {
        "subject": st.sampled_from([None, "", "m_1", "m_2", "\u00e9", 'a"b', "\x00", "x" * 1025]),
        "type": st.sampled_from([None, "", "payout_hold.block", "a b", "t" * 129, "\u00e9", "t\n"]),
        "key": st.none()
        | st.lists(st.sampled_from(["a", "", None, 'q"', "\x00", "k" * 1025]), max_size=3)
        | st.just(["p"] * 17),
        "occurred_at": _moment,
        "data": st.none()
        | st.fixed_dictionaries(
            {
                "text": _maybe_text,
                "n": _number,
                "u": st.sampled_from([None, 0, 2**53, 2**64 - 1]),
                "small": st.sampled_from([None, -128, 127]),
                "yes": st.none() | st.booleans(),
                "at": _moment,
                "nothing": st.none(),
                "inner": _inner,
                "list": st.none() | st.lists(_inner, max_size=2),
                "lists": st.none() | st.lists(st.none() | st.lists(_maybe_text, max_size=2)),
            }
        ),
        "priority": st.sampled_from([None, 0, 32767, 32768, -1]),
        "traceparent": st.sampled_from([None, "", _trace, f"{_trace}\n", _trace.upper()]),
    }
)


def _bag(rows: Rows) -> tuple[list[dict[str, Any]], list[Any]]:
    entries = rows.entries.to_pylist()
    return sorted(entries, key=lambda entry: str(sorted(entry.items(), key=str))), sorted(
        rows.refused
    )


@pytest.mark.rest
@settings(max_examples=examples(300), deadline=None)
@given(st.lists(_row, max_size=6), st.integers(0, 6))
def test_reading_by_column_is_reading_one_by_one(rows: list[dict[str, Any]], cut: int) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    check_entries(table)
    pieces = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    (batch,) = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], SCHEMA)]
    singly = read_singly(batch)
    assert _bag(read_rows(pieces)) == _bag(singly)
    assert singly.entries.num_rows + len(singly.refused) == len(rows)


def test_plain_rows_are_read_by_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison above would hold as well if nothing were ever read by column."""

    def never(batch: pa.RecordBatch) -> Rows:
        raise AssertionError(batch.to_pylist())

    monkeypatch.setattr(module, "read_singly", never)
    at = datetime(2026, 11, 2, 12, 15, 0, 5, UTC)
    inner = {"n": -(2**53) + 1, "\u00e9": 'quoted "\\\n\t\r', "\U0001f600": None}
    data = {"text": "\u20ac", "n": 1, "u": 2, "small": 3, "yes": True, "at": at, "nothing": None}
    row = {
        "subject": "m_482",
        "type": "payout_hold.block",
        "key": ["a", "\u00e9"],
        "occurred_at": at,
        "data": data | {"inner": None, "list": [inner, None], "lists": [["x", None], [], None]},
        "priority": None,
        "traceparent": _trace,
    }
    rows = read_rows(pa.Table.from_pylist([row] * 3, SCHEMA))
    assert rows.entries.num_rows == 3


def test_invalid_utf8_refuses_only_its_own_row(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counted(batch: pa.RecordBatch) -> Rows:
        read.append(batch.num_rows)
        return read_singly(batch)

    monkeypatch.setattr(module, "read_singly", counted)
    row = {
        "subject": "m",
        "type": "t",
        "key": ["k"],
        "occurred_at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    table = pa.Table.from_pylist([row | {"data": {}}] * 2000, SCHEMA)
    subjects = [b"m"] * 2000
    subjects[1234] = b"\xff"
    table = table.set_column(0, "subject", pa.array(subjects).view(pa.string()))
    rows = read_rows(table)
    assert rows.entries.num_rows == 1999
    assert [row.reason for row in rows.refused] == ["bad_subject"]
    assert sum(read) <= module.ROWS_READ_SINGLY


def _one(data: pa.Array, subject: str = "m") -> Rows:
    return read_rows(
        pa.table(
            {
                "subject": [subject],
                "type": ["t"],
                "key": [["k"]],
                "occurred_at": pa.array([0], pa.timestamp("us", "UTC")),
                "data": data,
            }
        )
    )


@pytest.mark.parametrize("subject", ["m", 'read "singly"'])
@pytest.mark.parametrize(
    ("moment", "zone"),
    [
        (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC), "Asia/Tokyo"),
        (datetime(1, 1, 1, tzinfo=UTC), "America/New_York"),
    ],
)
def test_column_zone_does_not_count_at_the_ends(subject: str, moment: datetime, zone: str) -> None:
    at = pa.array([moment], pa.timestamp("us", "UTC")).cast(pa.timestamp("us", zone))
    rows = _one(pa.StructArray.from_arrays([at], ["at"]), subject)
    assert rows.refused == []
    assert rows.entries.num_rows == 1


@pytest.mark.parametrize(("levels", "refused"), [(32, []), (33, ["bad_data"])])
def test_too_deep_null_is_refused_as_a_value_is(levels: int, refused: list[str]) -> None:
    values = pa.array([None], pa.string())
    for _ in range(levels):
        values = pa.StructArray.from_arrays([values], ["x"])
    assert [row.reason for row in _one(values).refused] == refused


def test_a_null_around_a_field_that_is_not_nullable_is_one() -> None:
    required = pa.field("n", pa.int64(), nullable=False)
    inner = pa.StructArray.from_arrays(
        [pa.array([7, 8, 9])], fields=[required], mask=pa.array([False, True, False])
    )
    items = pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), inner)
    struct = pa.StructArray.from_arrays(
        [items, inner.slice(1)],
        fields=[
            pa.field(name, of.type, nullable=False) for name, of in (("l", items), ("s", inner))
        ],
        mask=pa.array([False, True]),
    )
    first, second = _one(struct.slice(0, 1)), _one(struct.slice(1))
    assert first.entries["tail"][0].as_py().endswith(',"data":{"l":[{"n":7}],"s":null}}')
    assert [row.reason for row in second.refused] == ["bad_data"]


def test_a_list_of_nulls_has_all_of_them() -> None:
    nulls = pa.ListArray.from_arrays(pa.array([0, 3], pa.int32()), pa.nulls(3))
    rows = _one(pa.StructArray.from_arrays([nulls], ["x"]))
    assert rows.entries["tail"][0].as_py().endswith(',"data":{"x":[null,null,null]}}')


FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Microseconds of the first and the last moment that have a year of four digits."""

_ends = st.sampled_from([FIRST - 1, FIRST, -1_000_000, -1, 0, 1, 999_999, 10**6, LAST, LAST + 1])
_micros = st.none() | _ends | st.integers(-(2**63), 2**63 - 1) | st.integers(FIRST, LAST)
_whole = st.integers(FIRST // 10**6, LAST // 10**6).map(lambda second: second * 10**6)


def _time_one(micros: int | None) -> str | None:
    try:
        return None if micros is None else rfc3339_from_micros(micros)
    except (OverflowError, NotCanonical):
        return None


@given(st.lists(_micros | _whole))
def test_every_time_is_written_independently(micros: list[int | None]) -> None:
    texts, odd = times_of(pa.array(micros, pa.timestamp("us", "UTC")))
    assert texts.to_pylist() == [_time_one(each) for each in micros]
    assert odd.tolist() == [each is not None and _time_one(each) is None for each in micros]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_a_time_in_a_literal_or_in_csv_is_utc(zone: str) -> None:
    moments = [datetime(2026, 11, 2, 12, 15, 0, 5, UTC), None, datetime(1, 1, 1, tzinfo=UTC)]
    column = pa.chunked_array([pa.array(moments, pa.timestamp("us", zone))])
    first, last = '"2026-11-02 12:15:00.000005Z"', '"0001-01-01 00:00:00.000000Z"'
    assert array_literal(column) == f"{{{first},NULL,{last}}}"
    text = b"".join(csv(pa.table({"n": [1, 2, 3], "at": column})))
    assert text.decode() == f"1,{first}\n2,\n3,{last}\n"


_texts = st.text(alphabet='a"\\\u00e9\U0001f600', max_size=3)
_bodies = st.lists(st.tuples(st.sampled_from(["", "{", "{\u00e9"]), _texts), max_size=6)


def _entries(bodies: list[tuple[str, str]]) -> pa.Table:
    heads, tails = [head for head, _ in bodies], [tail for _, tail in bodies]
    text = pa.large_string()
    return pa.table({"head": pa.array(heads, text), "tail": pa.array(tails, text)})


@given(_bodies, st.integers(0, 6))
def test_contents_are_the_envelopes_in_any_chunks(bodies: list[tuple[str, str]], cut: int) -> None:
    full = _entries(bodies)
    chunked = pa.concat_tables([full.slice(0, cut), full.slice(cut)])
    assert contents(chunked).to_pylist() == [
        Envelope(head.encode(), tail.encode()).content.hex for head, tail in bodies
    ]


def test_a_hash_of_a_key_is_the_key() -> None:
    keys = [["a", "\u00e9"], ["b"]]
    data = hashes(pa.array([canonical_json(parts).decode() for parts in keys]))
    assert data.to_pylist() == [Key.of(parts).digest.hex for parts in keys]


def test_what_arrives_has_the_content_of_its_own_row() -> None:
    """Contents are hashed in the order of the input, and entries are put in order meanwhile."""
    rows = [*alternating("m_1", range(9)), *alternating("m_2", range(9))]
    rows += [rows[3], decision("m_1", 3, minor=9_000_000)]  # the same, and with other content
    prepared = prepare(BatchInput(table(*rows[::-1])))
    assert (prepared.duplicate_count, prepared.quarantined.num_rows) == (1, 1)
    assert prepared.arrived.schema == ARRIVED
    assert prepared.arrived.to_pylist() == [
        {name: entry[name] for name in ARRIVED.names if name != "content"}
        | {"content": Envelope(entry["head"].encode(), entry["tail"].encode()).content.hex}
        for entry in prepared.entries.to_pylist()
    ]

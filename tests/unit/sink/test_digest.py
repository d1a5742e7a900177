"""The digest and the numbers of a batch, by column as one by one."""

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.sink.errors import SchemaMismatch
from holdfast.sink.rows.digest import combined, digest, kind
from holdfast.sink.rows.numbering import SUBJECTS, number

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def reference_digest(tables: Mapping[str, pa.Table]) -> bytes:
    """SHA-256 over the sorted hashes of the rows of each table that has rows."""
    total = hashlib.sha256(b"holdfast-digest/2\n")
    for name in sorted(tables):
        rows = tables[name].to_pylist()
        if rows:
            columns = [[c, kind(tables[name].schema.field(c).type)] for c in sorted(rows[0])]
            header = json.dumps([name, len(rows), columns], separators=(",", ":"))
            total.update(header.encode() + b"\n")
            hashes = sorted(hashlib.sha256(_fields(row)).digest() for row in rows)
            total.update(hashlib.sha256(b"".join(hashes)).digest())
    return total.digest()


def _fields(row: dict[str, Any]) -> bytes:
    return b"".join(_text(row[name]) for name in sorted(row))


def _text(value: Any) -> bytes:
    match value:
        case None:
            return b"N"
        case dict():
            return b"{" + _fields(value)
        case list():
            return b"[%d:" % len(value) + b"".join(map(_text, value))
        case bool():
            plain = "true" if value else "false"
        case datetime():
            plain = str((value - _EPOCH) // timedelta(microseconds=1))
        case _:
            plain = str(value)
    return b"%d:%s" % (len(plain.encode()), plain.encode())


SCHEMA = pa.schema(
    {
        "subject": pa.string(),
        "amount": pa.int64(),
        "held": pa.bool_(),
        "at": pa.timestamp("us", "UTC"),
        "key": pa.list_(pa.string()),
        "data": pa.struct(
            {"name": pa.string(), "parts": pa.list_(pa.struct({"n": pa.int32()})), "z": pa.null()}
        ),
    }
)

_names = st.none() | st.text(alphabet="aN:1{[é€\n", max_size=4)
_moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001 (the bounds are naive by hypothesis's rule)
_rows = st.lists(
    st.fixed_dictionaries(
        {
            "subject": _names,
            "amount": st.none() | st.integers(-(2**63), 2**63 - 1),
            "held": st.none() | st.booleans(),
            "at": st.none() | _moments,
            "key": st.none() | st.lists(_names, max_size=3),
            "data": st.none()
            | st.fixed_dictionaries(
                {
                    "name": _names,
                    "parts": st.none()
                    | st.lists(
                        st.none() | st.fixed_dictionaries({"n": st.integers(0, 9)}), max_size=2
                    ),
                    "z": st.none(),
                }
            ),
        }
    ),
    max_size=8,
)


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


@settings(max_examples=150)
@given(_rows)
def test_digest_is_that_of_the_plain_python_reference(rows: list[dict[str, Any]]) -> None:
    tables = {"entries": _table(rows)}
    assert digest(tables) == reference_digest(tables)


@settings(max_examples=100)
@given(_rows, st.randoms(use_true_random=False), st.integers(0, 8), st.integers(0, 8))
def test_order_chunks_and_column_order_do_not_count(
    rows: list[dict[str, Any]], random: Any, one: int, two: int
) -> None:
    shuffled = random.sample(rows, len(rows))
    names = random.sample(SCHEMA.names, len(SCHEMA.names))
    full = _table(shuffled).select(names)
    first, second = sorted((min(one, len(rows)), min(two, len(rows))))
    pieces = [full.slice(0, first), full.slice(first, second - first), full.slice(second)]
    assert digest({"t": pa.concat_tables(pieces)}) == digest({"t": _table(rows)})


@settings(max_examples=100)
@given(_rows, _rows)
def test_other_rows_or_another_multiplicity_change_it(
    rows: list[dict[str, Any]], others: list[dict[str, Any]]
) -> None:
    def bag(of: list[dict[str, Any]]) -> list[str]:
        return sorted(json.dumps(row, sort_keys=True, default=str) for row in of)

    same = digest({"t": _table(rows)}) == digest({"t": _table(others)})
    assert same == (bag(rows) == bag(others))
    if rows:
        assert digest({"t": _table([*rows, rows[0]])}) != digest({"t": _table(rows)})


@given(st.lists(st.sampled_from([0, 1, 2**63, 2**64 - 1]), max_size=6), st.booleans())
def test_hashes_with_equal_prefixes_are_sorted_in_full(starts: list[int], falling: bool) -> None:
    ends = range(len(starts), 0, -1) if falling else range(len(starts))
    hashes = [start.to_bytes(8) + end.to_bytes(24) for start, end in zip(starts, ends, strict=True)]
    assert combined(hashes) == hashlib.sha256(b"".join(sorted(hashes))).digest()


def test_names_of_tables_and_columns_count() -> None:
    rows = pa.table({"a": ["x"]})
    digests = {
        digest({"t": rows}),
        digest({"u": rows}),
        digest({"t": rows.rename_columns(["b"])}),
        digest({"t": rows, "u": rows}),
    }
    assert len(digests) == 4


def test_cells_that_look_alike_differ() -> None:
    tables = [
        pa.table({"a": pa.array(["1"]), "b": pa.array(["2"])}),
        pa.table({"a": pa.array(["12"]), "b": pa.array([""])}),
        pa.table({"a": pa.array([None], pa.string()), "b": pa.array(["2"])}),
        pa.table({"a": pa.array(["N"]), "b": pa.array(["2"])}),
        pa.table({"a": pa.array([1]), "b": pa.array(["2"])}),
        pa.table({"a": pa.array([{"x": "1"}]), "b": pa.array(["2"])}),
        pa.table({"a": pa.array([["1"]]), "b": pa.array(["2"])}),
        pa.table({"a": pa.array([["1", None]]), "b": pa.array(["2"])}),
    ]
    assert len({digest({"t": table}) for table in tables}) == len(tables)


def test_widths_and_an_empty_table_do_not_count() -> None:
    narrow = pa.table({"a": pa.array([1], pa.int16()), "b": pa.array(["x"], pa.string())})
    wide = pa.table({"a": pa.array([1], pa.int64()), "b": pa.array(["x"], pa.large_string())})
    assert digest({"t": narrow}) == digest({"t": wide})
    assert digest({"t": narrow, "u": wide.slice(0, 0)}) == digest({"t": narrow})


def test_bytes_that_are_not_utf8_have_a_digest() -> None:
    broken = pa.table({"a": pa.array([b"\xff"]).view(pa.string())})
    other = pa.table({"a": pa.array([b"\xfe"]).view(pa.string())})
    assert digest({"t": broken}) != digest({"t": other})


@pytest.mark.parametrize(
    "type_", [pa.float64(), pa.decimal128(9, 2), pa.binary(), pa.timestamp("ns", "UTC")], ids=str
)
def test_type_without_one_text_form_is_refused(type_: pa.DataType) -> None:
    with pytest.raises(SchemaMismatch, match=r"no one text form"):
        digest({"t": pa.table({"a": pa.nulls(1, type_)})})


NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
ARRIVED = pa.schema(
    {"subject": pa.large_string(), "type": pa.string(), "occurred_at": pa.timestamp("us", "UTC")}
)

_types = st.sampled_from(["block", "release", "note"])
_numbering_moments = st.integers(0, 4).map(lambda minutes: NOON + timedelta(minutes=minutes))
_subjects = st.fixed_dictionaries(
    {
        "id": st.integers(1, 2**40),
        "last_sequence": st.integers(0, 5),
        "last_type": st.none() | st.sampled_from(["block", "release", "other"]),
        "last_occurred_at": st.none() | _numbering_moments,
    }
)
_entries = st.lists(st.tuples(_numbering_moments, _types, st.booleans()), min_size=1, max_size=6)
_batches = st.lists(
    st.tuples(_subjects, _entries), max_size=5, unique_by=lambda pair: pair[0]["id"]
)


def _one_by_one(batch: list[Any], *, suppress: bool) -> tuple[list[Any], list[Any], list[Any]]:
    """The rules of the sink's README, an entry at a time."""
    written, suppressed, moved, position = [], [], [], -1
    for subject, entries in batch:
        sequence, last, newest = (
            subject[name] for name in ("last_sequence", "last_type", "last_occurred_at")
        )
        before = newest
        for at, type_, fresh in entries:
            position += 1
            if not fresh:
                continue
            if suppress and before is not None and at < before:
                suppressed.append((position, subject["id"], True))
            elif suppress and type_ == last:
                suppressed.append((position, subject["id"], False))
            else:
                sequence, last = sequence + 1, type_
                newest = at if newest is None else max(at, newest)
                written.append((subject["id"], sequence, position))
        if sequence > subject["last_sequence"]:
            moved.append((subject["id"], sequence, last, newest))
    return sorted(written), suppressed, sorted(moved)


@pytest.mark.rest
@settings(max_examples=400, deadline=None)
@given(_batches, st.booleans())
def test_numbering_by_column_is_numbering_one_by_one(batch: list[Any], suppress: bool) -> None:
    batch = [(subject, sorted(entries)) for subject, entries in batch]
    rows = [
        {"subject": f"s{index}", "type": type_, "occurred_at": at, "fresh": fresh}
        for index, (_, entries) in enumerate(batch)
        for at, type_, fresh in entries
    ]
    entries = pa.Table.from_pylist(rows, ARRIVED)
    subjects = pa.Table.from_pylist([subject for subject, _ in batch], SUBJECTS)
    fresh = np.array([row["fresh"] for row in rows], bool)

    numbered = number(entries, subjects, fresh, suppress=suppress)

    written, suppressed, moved = _one_by_one(batch, suppress=suppress)
    columns = (numbered.subject_id.tolist(), numbered.sequence.tolist(), numbered.rows.tolist())
    assert list(zip(*columns, strict=True)) == written
    assert list(zip(*(each.tolist() for each in numbered.suppressed), strict=True)) == suppressed
    assert sorted(tuple(row.values()) for row in numbered.moved.to_pylist()) == moved


def test_each_kind_of_fate_occurs() -> None:
    """The comparison above would hold as well if everything were written."""
    rows = [("a", "block", 0), ("a", "block", 2), ("a", "release", 3), ("a", "block", 4)]
    entries = pa.Table.from_pylist(
        [
            {"subject": name, "type": type_, "occurred_at": NOON + timedelta(minutes=minute)}
            for name, type_, minute in rows
        ],
        ARRIVED,
    )
    subject = {"id": 7, "last_sequence": 4, "last_type": "block"}
    subjects = pa.Table.from_pylist(
        [subject | {"last_occurred_at": NOON + timedelta(minutes=1)}], SUBJECTS
    )
    numbered = number(entries, subjects, np.array([True] * 3 + [False]), suppress=True)
    assert (numbered.rows.tolist(), numbered.sequence.tolist()) == ([2], [5])
    assert numbered.suppressed.rows.tolist() == [0, 1]
    assert numbered.suppressed.overtaken.tolist() == [True, False]
    assert numbered.moved["last_type"].to_pylist() == ["release"]

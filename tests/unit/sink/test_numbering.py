"""Numbering whole columns is numbering one entry after another."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.sink.rows.numbering import SUBJECTS, number

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
ARRIVED = pa.schema(
    {"subject": pa.large_string(), "type": pa.string(), "occurred_at": pa.timestamp("us", "UTC")}
)

_types = st.sampled_from(["block", "release", "note"])
_moments = st.integers(0, 4).map(lambda minutes: NOON + timedelta(minutes=minutes))
_subjects = st.fixed_dictionaries(
    {
        "id": st.integers(1, 2**40),
        "last_sequence": st.integers(0, 5),
        "last_type": st.none() | st.sampled_from(["block", "release", "other"]),
        "last_occurred_at": st.none() | _moments,
    }
)
_entries = st.lists(st.tuples(_moments, _types, st.booleans()), min_size=1, max_size=6)
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

    found = number(entries, subjects, fresh, suppress=suppress)

    written, suppressed, moved = _one_by_one(batch, suppress=suppress)
    columns = (found.subject_id.tolist(), found.sequence.tolist(), found.rows.tolist())
    assert list(zip(*columns, strict=True)) == written
    assert list(zip(*(each.tolist() for each in found.suppressed), strict=True)) == suppressed
    assert sorted(tuple(row.values()) for row in found.moved.to_pylist()) == moved


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
    found = number(entries, subjects, np.array([True] * 3 + [False]), suppress=True)
    assert (found.rows.tolist(), found.sequence.tolist()) == ([2], [5])
    assert found.suppressed.rows.tolist() == [0, 1]
    assert found.suppressed.overtaken.tolist() == [True, False]
    assert found.moved["last_type"].to_pylist() == ["release"]

"""Decisions in an outbox, written by the real sink."""

from collections.abc import Iterable
from typing import Any, Self
from uuid import uuid4

from holdfast.sink.rows.batch import BatchInput, prepare
from holdfast.sink.rows.outcome import Written
from holdfast.sink.transaction.driver_path import InDriver
from holdfast.sink.transaction.writer import Writer
from tests.support.dispatch.sender import BLOCK, decision, table


class Decisions:
    """A stream that writes one batch after another."""

    def __init__(self, dsn: str, stream: str = "test") -> None:
        self._writer = Writer(dsn, stream, suppress_repeats=False, first_batch=1)
        self._writer.begin_run(uuid4(), uuid4())
        self._batch_id = 0
        self._windows: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._writer.close()

    def write(self, *subjects: str, type_: str = BLOCK, **other: Any) -> Written:
        """Write one batch with one decision for each name; a name may occur more than once."""
        return self.write_rows([self.row(subject, type_, **other) for subject in subjects])

    def row(self, subject: str, type_: str = BLOCK, **other: Any) -> dict[str, Any]:
        """The next decision of a subject, each at the end of a window of its own."""
        window = self._windows[subject] = self._windows.get(subject, 0) + 1
        return decision(subject, window, type_, **other)

    def write_rows(self, rows: Iterable[dict[str, Any]]) -> Written:
        """Write one batch."""
        prepared = prepare(BatchInput(table(*rows)))
        self._batch_id += 1
        written = self._writer.write(self._batch_id, InDriver(prepared))
        assert isinstance(written, Written)
        return written


BAD_ROWS: dict[str, tuple[dict[str, Any], str]] = {
    "subject is null": ({"subject": None}, "bad_subject"),
    "subject is empty": ({"subject": ""}, "bad_subject"),
    "subject has a NUL": ({"subject": "m\x00"}, "bad_subject"),
    "subject is 10 kB": ({"subject": "é" * 600}, "bad_subject"),
    "type is null": ({"type": None}, "bad_type"),
    "type is empty": ({"type": ""}, "bad_type"),
    "type has a space": ({"type": "payout hold"}, "bad_type"),
    "type ends with a line break": ({"type": "payout_hold.block\n"}, "bad_type"),
    "type is long": ({"type": "a" * 129}, "bad_type"),
    "type has an empty word": ({"type": "payout_hold..block"}, "bad_type"),
    "type begins with a dot": ({"type": ".block"}, "bad_type"),
    "type ends with a dot": ({"type": "payout_hold."}, "bad_type"),
    "type has another alphabet's digit": ({"type": "hold.\u0661"}, "bad_type"),
    "key is null": ({"key": None}, "bad_key"),
    "key is empty": ({"key": []}, "bad_key"),
    "key has an empty part": ({"key": ["a", ""]}, "bad_key"),
    "key has a null part": ({"key": ["a", None]}, "bad_key"),
    "key has a NUL": ({"key": ["a\x00"]}, "bad_key"),
    "key has many parts": ({"key": ["a"] * 17}, "bad_key"),
    "key part is 10 kB": ({"key": ["a" * 10_240]}, "bad_key"),
    "time is null": ({"occurred_at": None}, "bad_data"),
    "time is the year 20000": ({"occurred_at": 569_000_000_000_000_000}, "bad_data"),
    "time is before the year 1": ({"occurred_at": -(2**62)}, "bad_data"),
    "data is null": ({"data": None}, "bad_data"),
    "data has a NUL": ({"data": {"merchant_id": "m\x00"}}, "bad_data"),
    "amount is beyond 2^53": ({"data": {"exposure_minor": 2**53}}, "bad_data"),
    "priority is negative": ({"priority": -1}, "bad_data"),
    "body is large": ({"data": {"merchant_id": "x" * 262_144}}, "body_too_large"),
}

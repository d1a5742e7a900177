"""Decisions in an outbox, written by the real sink."""

from collections.abc import Iterable
from typing import Any, Self
from uuid import uuid4

from holdfast.sink.rows.batch import BatchInput, prepare
from holdfast.sink.transaction.driver_path import InDriver
from holdfast.sink.transaction.ledger import Written
from holdfast.sink.transaction.writer import Writer
from tests.support.dispatch.entries import BLOCK, decision, table


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

"""A staged batch: `Content` whose rows are in Postgres."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import psycopg
import pyarrow as pa
from psycopg.rows import dict_row

from holdfast.sink.contract.failpoints import failpoint
from holdfast.sink.rows.digest import digest_of_parts, header
from holdfast.sink.rows.evidence import BEFORE_DATA_LENGTH
from holdfast.sink.rows.numbering import Numbered, Suppressed
from holdfast.sink.rows.order import conflict
from holdfast.sink.rows.postgres_text import COPY_ROWS, array_literal, csv, read_csv
from holdfast.sink.rows.prepared import ARRIVED, ENTRIES, QuarantinedRow, quarantine_table
from holdfast.sink.transaction import write_batch
from holdfast.sink.transaction.content import Arrived, Stamp
from holdfast.sink.transaction.database import execute, statement
from holdfast.sink.transaction.driver_path import add_quarantined
from holdfast.sink.transaction.ledger import Run
from holdfast.sink.transaction.staging.stage import Stage, StageLost
from holdfast.sink.transaction.staging.task import Summary


@dataclass(frozen=True, slots=True)
class StagedContent:
    """The rows that the winning attempts staged.

    Its methods raise `StageLost` where rows are missing.
    """

    stage: Stage
    promised: dict[int, tuple[int, int]]
    """Rows and refused rows of each winning attempt that has rows."""

    digest: bytes

    @property
    def row_count(self) -> int:
        return sum(rows for rows, _ in self.promised.values())

    @property
    def refused_count(self) -> int:
        return sum(refused for _, refused in self.promised.values())

    @property
    def attempts(self) -> list[int]:
        return list(self.promised)

    def arrive(self, connection: psycopg.Connection) -> Arrived:
        check_promises(connection, self.stage, self.promised)
        execute(connection, "staging/create_staged")
        run = self.stage.execute
        promoted = run(connection, "staging/promote_stage", attempts=self.attempts).rowcount
        again = self.row_count - self.refused_count - promoted
        conflicts = 0
        if again:
            found = run(
                connection, "staging/count_stage_conflicts", attempts=self.attempts
            ).fetchone()
            conflicts = found["count"] if found else 0
        with connection.cursor().copy(statement("staging/read_staged")) as copy:
            entries = read_csv(b"".join(copy), ARRIVED)
        return Arrived(entries, again - conflicts, self.refused_count + conflicts)

    def rows_at(self, connection: psycopg.Connection, positions: Sequence[int]) -> pa.Table:
        if not positions:
            return ENTRIES.empty_table()
        given = {"ordinals": list(positions), "attempts": self.attempts}
        found = self.stage.execute(connection, "staging/show_staged", **given).fetchall()
        return pa.Table.from_pylist(found, ENTRIES)

    def add_entries(self, connection: psycopg.Connection, numbered: Numbered, stamp: Stamp) -> None:
        execute(connection, "staging/create_numbered")
        middle = len(numbered.rows) // 2
        table = pa.table(
            {
                "ordinal": numbered.rows,
                "subject_id": numbered.subject_id,
                "sequence": numbered.sequence,
            }
        )
        with connection.cursor().copy(statement("staging/copy_numbered")) as copy:
            for piece in csv(table.slice(0, middle)):
                copy.write(piece)
            failpoint("S4")
            for piece in csv(table.slice(middle)):
                copy.write(piece)
        execute(
            connection,
            "staging/add_entries",
            batch_no=stamp.batch_no,
            written_at=stamp.written_at,
            traceparent=stamp.traceparent,
        )

    def add_suppressed(
        self, connection: psycopg.Connection, suppressed: Suppressed, stamp: Stamp
    ) -> None:
        if not len(suppressed.rows):
            return
        self.stage.execute(
            connection,
            "staging/suppress_staged",
            attempts=self.attempts,
            ordinals=array_literal(pa.chunked_array([suppressed.rows])),
            subject_ids=array_literal(pa.chunked_array([suppressed.subject_id])),
            overtaken=array_literal(pa.chunked_array([suppressed.overtaken])),
            batch_no=stamp.batch_no,
            at=stamp.written_at,
            traceparent=stamp.traceparent,
            before_data=BEFORE_DATA_LENGTH,
        )

    def add_quarantined(self, connection: psycopg.Connection, stamp: Stamp) -> None:
        if self.refused_count:
            self.stage.execute(
                connection,
                "staging/quarantine_stage",
                attempts=self.attempts,
                batch_no=stamp.batch_no,
                at=stamp.written_at,
            )
        for conflicts in self._conflicts(connection):
            add_quarantined(connection, quarantine_table(conflicts), stamp)

    def _conflicts(self, connection: psycopg.Connection) -> Iterator[list[QuarantinedRow]]:
        # A server-side cursor: a batch may consist of conflicts only.
        with connection.cursor("holdfast_conflicts", row_factory=dict_row) as cursor:
            cursor.execute(
                self.stage.statement("staging/read_stage_conflicts"), {"attempts": self.attempts}
            )
            while found := cursor.fetchmany(COPY_ROWS):
                yield [conflict(row | {"key": row["key"].hex}) for row in found]


def take_over(
    stage: Stage, summaries: Sequence[Summary], schema: pa.Schema, run: Run, batch_id: int
) -> StagedContent:
    """Return the batch of the summaries' attempts, with its digest.

    Raises `StageLost`, and `Fenced` where the cause is a newer run that owns the stream.
    """
    promised = {
        summary.attempt: (summary.row_count, summary.refused_count)
        for summary in summaries
        if summary.row_count
    }
    rows = sum(count for count, _ in promised.values())

    def combined(connection: psycopg.Connection) -> bytes:
        check_promises(connection, stage, promised)
        stage.execute(connection, "staging/analyze_stage", number=stage.number)
        hashed = hashlib.sha256()
        cursor = connection.cursor()
        # At most 256 groups, one at a time: all hashes together may be large.
        for (hashes,) in cursor.stream(
            stage.statement("staging/hash_stage"), {"attempts": list(promised)}, binary=True
        ):
            hashed.update(hashes)
        return hashed.digest()

    parts = {}
    if rows:
        try:
            parts = {"entries": (header("entries", schema, rows), stage.work(combined))}
        except StageLost:
            # A newer run drops the stages of older ones: then the error is `Fenced`.
            stage.work(lambda connection: write_batch.lock(connection, run, batch_id))
            raise
    return StagedContent(stage, promised, digest_of_parts(parts))


def check_promises(
    connection: psycopg.Connection, stage: Stage, promised: dict[int, tuple[int, int]]
) -> None:
    """Raise `StageLost` unless all rows of each attempt are in the stage."""
    if not promised:
        return
    found = {
        row["attempt"]: (row["rows"], row["refused"])
        for row in stage.execute(connection, "staging/count_stage", attempts=list(promised))
    }
    if found != promised:
        rows = sum(count for count, _ in promised.values())
        there = sum(count for count, _ in found.values())
        raise stage.lost(f"{there:,} of {rows:,} rows are")

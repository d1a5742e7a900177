"""Checks a case's tables: a case that lost or invented a row gets no figure."""

from pathlib import Path

import psycopg

from holdfast.sink.rows.digest import digest
from tests.benchmarks.sink.by_hand import TABLE
from tests.benchmarks.sink.ours import STREAM
from tests.benchmarks.sink.rows import batch_count, read_batch

_COUNTS = """
SELECT
    (SELECT count(*) FROM holdfast.entry),
    (SELECT count(*) FROM holdfast.entry_key),
    (SELECT count(*) FROM holdfast.entry JOIN holdfast.entry_key USING (key, batch_no)),
    (SELECT sum(last_sequence) FROM holdfast.subject),
    (SELECT count(*) FROM (
        SELECT subject_id FROM holdfast.entry GROUP BY subject_id
        HAVING min(sequence) <> 1 OR max(sequence) <> count(*)
            OR count(DISTINCT sequence) <> count(*)
    ) AS gap)
"""


class Wrong(RuntimeError):
    """The tables are not those of the rows that went in."""


def outbox(dsn: str, folder: Path) -> None:
    """Compare ledger, digests, keys and sequences with the batches; raises `Wrong`."""
    tables = [read_batch(folder / "decisions", n) for n in range(batch_count(folder / "decisions"))]
    rows = sum(table.num_rows for table in tables)
    with psycopg.connect(dsn) as connection:
        ledger = connection.execute(
            "SELECT batch_id, row_count, entry_count, digest FROM holdfast.batch"
            " WHERE stream = %s ORDER BY batch_id",
            [STREAM],
        ).fetchall()
        found = connection.execute(_COUNTS).fetchone()
    expected = [
        (number, table.num_rows, table.num_rows, digest({"entries": table}))
        for number, table in enumerate(tables)
    ]
    if ledger != expected:
        raise Wrong(f"the ledger has {_shown(ledger)}, expected {_shown(expected)}")
    if found != (rows, rows, rows, rows, 0):
        raise Wrong(
            f"{rows} rows went in, but entries, keys, entries with their key, sequences and"
            f" subjects with a gap are {found}"
        )


def by_hand(dsn: str, folder: Path) -> None:
    """Compare the rows with the batches; raises `Wrong`."""
    count = batch_count(folder / "finished")
    rows = sum(read_batch(folder / "finished", number).num_rows for number in range(count))
    with psycopg.connect(dsn) as connection:
        found = connection.execute(
            f"SELECT count(*), count(DISTINCT id) FROM {TABLE}".encode()
        ).fetchone()
    if found != (rows, rows):
        raise Wrong(f"{rows} rows went in, but rows and different ids in the table are {found}")


def _shown(ledger: list[tuple[int, int, int, bytes]]) -> str:
    return ", ".join(
        f"{n}: {rows} rows {kept} entries {d.hex()[:8]}" for n, rows, kept, d in ledger
    )

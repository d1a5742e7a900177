"""A driver as a process: it writes three fixed batches and keeps a checkpoint as Spark would.

`offsets/N` is there before the batch, `commits/N` after the sink returned, and a restart goes on at
the first batch without a commit. Run as
`python -m tests.support.job.sink_program DSN FOLDER QUERY_ID`,
with `staged` behind it for the staged path, or `plain`: then the rows alone are the batch.
"""

import sys
from pathlib import Path
from uuid import UUID

import psycopg
import pyarrow as pa

from holdfast.sink import BatchInput
from holdfast.sink.transaction.database import Timeouts
from tests.support.dispatch.sender import REFUSED, alternating, decision
from tests.support.job.driver import PATIENT, Driver

SUBJECTS = [f"m_{n:02}" for n in range(8)]
BATCHES = 3


def rows(batch_id: int) -> list[dict[str, object]]:
    """The decisions of a batch: fresh ones, one of the batch before, and one that is refused."""
    fresh = [row for subject in SUBJECTS for row in alternating(subject, [batch_id])]
    known = alternating(SUBJECTS[0], [batch_id - 1]) if batch_id else []
    return [*fresh, *known, decision("", batch_id)]


def select(entries: pa.Table) -> BatchInput:
    """Add a row that was refused upstream, and a companion."""
    refused = pa.Table.from_pylist([{"reason": "malformed", "detail": "", "row": "{"}], REFUSED)
    return BatchInput(entries, refused, {"subjects": entries.select(["subject"])})


def also(connection: psycopg.Connection, entries: pa.Table) -> None:
    """Write a companion row; the test made the table."""
    connection.execute("INSERT INTO public.companion (rows) VALUES (%s)", [entries.num_rows])


def drive(
    dsn: str,
    folder: Path,
    query_id: UUID,
    timeouts: Timeouts = PATIENT,
    *,
    staged: bool = False,
    plain: bool = False,
) -> list[str]:
    """Write what `folder` has no commit for; return what became of each batch.

    The driver path has refused rows and a companion, unless `plain`; the staged path has none.
    """
    plain = plain or staged
    spark = Driver(
        dsn,
        query_id=query_id,
        staged=staged,
        select=None if plain else select,
        also=None if plain else also,
        checkpoint=str(folder),
        timeouts=timeouts,
    )
    for name in ("offsets", "commits"):
        (folder / name).mkdir(exist_ok=True)
    outcomes = []
    for batch_id in range(BATCHES):
        commit = folder / "commits" / str(batch_id)
        if not commit.exists():
            (folder / "offsets" / str(batch_id)).write_text(f"v1\n{batch_id}")
            outcomes.append(type(spark.batch(batch_id, *rows(batch_id))).__name__)
            commit.touch()
    spark.sink.close()
    return outcomes


if __name__ == "__main__":
    given = {name: name in sys.argv[4:] for name in ("staged", "plain")}
    drive(sys.argv[1], Path(sys.argv[2]), UUID(sys.argv[3]), **given)

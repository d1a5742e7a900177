"""An event file that is gone when its batch comes stops the job; it is never read as empty."""

from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa
import pytest

from holdfast.sink.rows.batch import BatchInput
from tests.support.job.jobs import Play, event, order

if TYPE_CHECKING:
    from holdfast.spark_app.lifecycle.failure import Failure


@pytest.mark.rest
def test_missing_file_stops_the_job_until_it_is_back(play: Play, db: psycopg.Connection) -> None:
    from holdfast.spark_app.lifecycle.failure import Cause
    from holdfast.spark_app.operator import output

    events, archive = play.folder / "events", play.folder / "archive"
    archive.mkdir()
    amounts = enumerate([1, 20, 300])
    play.put(*([event(f"e{number}", "12:01", amount)] for number, amount in amounts))
    play.put([event("last", "12:20", 0, merchant="m_2")], first=3)
    # Each batch has a file too which Spark takes for a pattern, and then has the other one twice.
    for number in range(4):
        (pattern := events / f"[{number}].json").touch()
        order(pattern, number)
    missed: list[Failure] = []
    listed = ["001.json", "002.json"]

    def archive_next(blobs: pa.Table) -> BatchInput:
        """Spark has listed all files in the first batch of a run, and planned those of one."""
        if listed:
            name = listed.pop(0)
            (events / name).rename(archive / name)
        return output.select(blobs)

    def mend(failure: "Failure") -> None:
        if failure.cause is not Cause.FILE:
            return
        missed.append(failure)
        written = db.execute("SELECT count(*) FROM holdfast.batch").fetchone()
        # The first time in the run that listed it, the second time as a batch that was planned.
        if len(missed) <= 2:
            assert written == (1,)
        if len(missed) == 2:
            (archive / "001.json").rename(events / "001.json")
        if len(missed) == 3:
            (events / "002.json").touch()
            order(events / "002.json", 2)

    play.options = {"max_files_per_trigger": 2}
    play.supervised(mend, select=archive_next)
    assert [failure.said.partition(". ")[0] for failure in missed] == [
        f"{events / name} is gone, and batch {batch} was planned to read it"
        for name, batch in (("001.json", 1), ("001.json", 1), ("002.json", 2))
    ]
    windows = db.execute("SELECT merchant_id, exposure_minor FROM holdfast.exposure_window")
    # Without the file in whose place an empty one was put, and with the one that came back.
    assert windows.fetchall() == [("m_1", 21)]

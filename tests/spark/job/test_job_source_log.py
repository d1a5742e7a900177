"""A JVM that dies between Spark's list of files and its plan of a batch changes no batch."""

import json
from contextlib import closing
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from holdfast.sink import OutboxSink
from holdfast.sink.errors import Fenced
from holdfast.spark_app.lifecycle.failure import QueryFailed
from tests.support.job.job_outcome import ledger
from tests.support.job.jobs import Play, event


@pytest.mark.rest
def test_listed_but_unplanned_files_are_read_one_a_batch(
    play: Play, db: psycopg.Connection
) -> None:
    checkpoint = play.checkpoint
    play.put([event("e1", "12:01", 6_000_000)])
    play.command()
    written = ledger(play.dsn)

    # Nothing newer than before, so that no batch without rows follows.
    play.put([event("e2", "12:00", 1), event("e1", "12:01", 6_000_000)], first=1)
    play.command()
    grown = ledger(play.dsn)
    assert len(grown) == len(written) + 1
    # As if the JVM had died when the second file was on the list and no batch was planned for it:
    # what comes then has to be what was.
    db.execute("DELETE FROM holdfast.batch WHERE batch_id >= %s", [len(written)])
    db.execute("DELETE FROM holdfast.late_event")
    for folder in ("offsets", "commits"):
        for path in (checkpoint / folder).iterdir():
            if int(path.name.strip(".").removesuffix(".crc")) >= len(written):
                path.unlink()

    play.put([event("e3", "12:21", 1), event("e2", "12:00", 1)], first=2)
    play.command()
    assert ledger(play.dsn)[: len(grown)] == grown
    late = db.execute("SELECT event_id, reason FROM holdfast.late_event ORDER BY id")
    assert late.fetchall() == [("e1", "duplicate"), ("e2", "duplicate")]


@pytest.mark.guarantee(4)
def test_driver_that_was_replaced_removes_nothing_from_the_checkpoint(
    play: Play, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of the newer driver has no plan yet: that of a dead driver would be removed."""
    from holdfast.spark_app.checkpoint import journal

    play.put([event("e1", "12:01", 6_000_000)])
    play.command()
    checkpoint = play.checkpoint
    listed = checkpoint / "sources" / "0" / "1"
    query_id = UUID(json.loads((checkpoint / "metadata").read_text())["id"])
    forget, newer_run = journal.forget_unplanned, uuid4()

    def replaced(*arguments: Any) -> None:
        with closing(OutboxSink(dsn, stream="payouts")) as newer:
            newer.start(query_id, newer_run)
        listed.write_text("v1")
        forget(*arguments)

    monkeypatch.setattr(journal, "forget_unplanned", replaced)
    with pytest.raises(QueryFailed, match=f"{Fenced.__name__}: .*run {newer_run} took the stream"):
        play.command()
    assert listed.read_text() == "v1"

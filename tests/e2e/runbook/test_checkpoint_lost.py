"""The checkpoint was lost: the page, followed by a job that begins anew under another query id."""

import json
from pathlib import Path
from uuid import UUID

import pytest

from holdfast.sink import UnadoptedCheckpoint
from tests.support.documents.runbook import Reader, Site, decided, refused_as, rows
from tests.support.job.driver import Driver

pytestmark = pytest.mark.rest

PAGE = "checkpoint-lost"
BEFORE = (decided("m_482", 1, "block"), decided("m_7", 1, "block"))
AFTER = (decided("m_482", 2, "release"), decided("m_8", 2, "block"))


def checkpoint(folder: Path, query_id: UUID) -> None:
    """Make what Spark makes when a query starts."""
    folder.mkdir()
    (folder / "metadata").write_text(json.dumps({"id": str(query_id)}))


def test_nothing_is_decided_twice_and_the_hold_is_released(site: Site, reader: Reader) -> None:
    old, new = site.folder / "old", site.folder / "new"
    site.serve()
    site.endpoint()
    site.dispatch()
    lost = Driver(site.dsn, checkpoint=str(old))
    lost.tables(0, rows(*BEFORE))
    lost.sink.close()
    site.delivered()
    anew = Driver(site.dsn, checkpoint=str(new))

    def refused() -> None:
        checkpoint(new, anew.query_id)
        with refused_as(PAGE, UnadoptedCheckpoint) as refusal:
            anew.sink.start(anew.query_id, anew.run_id)
        assert str(anew.query_id) in str(refusal.value)

    def started() -> None:
        anew.sink.start(anew.query_id, anew.run_id)
        anew.tables(0, rows(*BEFORE, *AFTER))

    reader.known |= {"OLD_CHECKPOINT": str(old), "NEW_CHECKPOINT": str(new)}
    reader.finds = {"QUERY_ID": r'"id": "([0-9a-f-]{36})"'}
    reader.follow(
        PAGE,
        {
            "the job is started on the new checkpoint, and is refused": refused,
            "the job is started again, with the same new checkpoint": started,
        },
    )
    anew.sink.close()
    assert site.applied() == [
        ("m_482", "block", "applied"),
        ("m_482", "release", "applied"),
        ("m_7", "block", "applied"),
        ("m_8", "block", "applied"),
    ]

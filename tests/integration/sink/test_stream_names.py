"""A stream belongs to one job, or holds what people wrote by hand for another: never both."""

import json
from collections.abc import Callable
from uuid import UUID, uuid4

import psycopg
import pytest

from sink import UnadoptedCheckpoint
from sink.contract.exits import CommandError
from sink.contract.requeue import REISSUED, REQUEUED
from sink.requeue import requeue, stream_of
from tests.support.dispatch.entries import RELEASE, decision
from tests.support.job.driver import Driver

MakeDriver = Callable[..., Driver]

STREAMS = "SELECT name, query_id, acts_for FROM holdfast.stream ORDER BY 1"
ENDINGS = pytest.mark.parametrize("suffix", [REQUEUED, REISSUED])


def _by_hand(dsn: str, suffix: str) -> bool:
    text = json.dumps(decision("m_2", 2, RELEASE), default=lambda value: value.isoformat())
    [told] = requeue(dsn, "a", {1: text}, suppress_repeats=True, suffix=suffix)
    return told.written


def _own(db: psycopg.Connection, name: str) -> UUID:
    """A job has written the stream since before such names were refused."""
    query_id = uuid4()
    db.execute("INSERT INTO holdfast.stream (name, query_id) VALUES (%s, %s)", [name, query_id])
    return query_id


@ENDINGS
def test_a_jobs_new_stream_may_not_be_called_as_one_that_is_written_by_hand(
    driver: MakeDriver, db: psycopg.Connection, suffix: str
) -> None:
    job = driver(stream=f"a{suffix}")
    with pytest.raises(ValueError, match="Nothing was written"):
        job.sink.check()
    with pytest.raises(ValueError, match="Nothing was written"):
        job.batch(0, decision("m_1"))
    assert db.execute(STREAMS).fetchall() == []


@ENDINGS
def test_a_jobs_stream_that_is_there_already_goes_on(
    driver: MakeDriver, db: psycopg.Connection, suffix: str
) -> None:
    query_id = _own(db, f"a{suffix}")
    job = driver(stream=f"a{suffix}", query_id=query_id)
    job.sink.check()
    assert job.batch(0, decision("m_1")).counts.entries == 1
    assert db.execute(STREAMS).fetchall() == [(f"a{suffix}", query_id, None)]


@ENDINGS
def test_an_entry_by_hand_is_refused_where_a_job_has_the_stream_and_the_job_goes_on(
    driver: MakeDriver, dsn: str, db: psycopg.Connection, suffix: str
) -> None:
    own = driver(stream=f"a{suffix}", query_id=_own(db, f"a{suffix}"))
    own.batch(0, decision("m_1"))
    driver(stream="a").batch(0, decision("m_2"))
    before = db.execute(STREAMS).fetchall()
    with pytest.raises(CommandError) as refused:
        _by_hand(dsn, suffix)
    # Following that advice would stop the job.
    assert "holdfast stream adopt" not in str(refused.value)
    assert f"a{suffix}" in str(refused.value)
    assert "Nothing was written" in str(refused.value)
    assert db.execute(STREAMS).fetchall() == before
    assert own.batch(1, decision("m_1", 2, RELEASE)).counts.entries == 1


@ENDINGS
def test_a_job_is_refused_the_stream_of_what_was_written_by_hand(
    driver: MakeDriver, dsn: str, db: psycopg.Connection, suffix: str
) -> None:
    driver(stream="a").batch(0, decision("m_2"))
    assert _by_hand(dsn, suffix)
    before = db.execute(STREAMS).fetchall()
    with pytest.raises(UnadoptedCheckpoint) as refused:
        driver(stream=stream_of("a", suffix)).batch(0, decision("m_1"))
    assert "holdfast stream adopt" not in str(refused.value)
    assert "by hand for 'a'" in str(refused.value)
    assert db.execute(STREAMS).fetchall() == before

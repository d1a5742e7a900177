"""The region is lost: the page, followed with a database older and newer than the savepoint.

Real: the server, its backup and archive, the job on Spark, dispatcher, payouts service.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.sink.contract.exits import CommandError
from tests.support.documents.runbook import Reader, running_site
from tests.support.job.job_stream import published
from tests.support.job.jobs import Play, event
from tests.support.servers.databases import server_directory
from tests.support.servers.embedded import BackedUp

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.rest

PAGE = str(Path("docs/spark/region-lost").absolute())
FIRST, SECOND = "20261129T100000Z", "20261129T110000Z"
FILES = [
    [event("e1", "12:01", 5_900_000), event("e2", "12:02", 1, "m_2")],
    [event("e3", "12:16:30", 5_500_000), event("e4", "12:16:30", 100, "m_2")],
    # Emits 12:00-12:15 and blocks m_1.
    [event("e5", "12:16:40", 7, "m_2")],
    # Corrects that window, and closes the next one.
    [event("e6", "12:14", 100_000), event("e7", "12:32", 1, "m_2")],
    # Releases m_1.
    [event("e8", "12:50", 1, "m_2")],
    # After the loss: blocks it again.
    [event("e9", "13:01", 9_000_000), event("e10", "13:32", 1, "m_2")],
]
SAVED, LOST, AFTER = 3, 4, 5
"""Files before the first savepoint, before what an older database has lost, before the loss."""


@pytest.fixture
def server() -> Iterator[BackedUp]:
    with server_directory() as directory:
        yield BackedUp(directory)


def _of_batch(shown: str, newest: int) -> str:
    """The newest savepoint in what `verify` shows whose batch the database has."""
    found = re.findall(r"^(\S+)  payouts after batch (\d+) of .*  intact$", shown, re.MULTILINE)
    return next(name for name, batch in found if int(batch) <= newest)


@pytest.mark.parametrize("database", ["older", pytest.param("newer", marks=pytest.mark.long)])
def test_region_that_is_lost_loses_and_repeats_no_action(
    server: BackedUp,
    spark: "SparkSession",
    make_database: Callable[[str | None], str],
    template_database: str,
    tmp_path: Path,
    database: str,
) -> None:
    undisturbed = Play(spark, make_database(template_database), tmp_path / "undisturbed")
    undisturbed.folder.mkdir()
    undisturbed.put(*FILES)
    undisturbed.command()
    play, elsewhere = Play(spark, server.dsn, tmp_path / "region"), tmp_path / "elsewhere"
    play.folder.mkdir()
    elsewhere.mkdir()
    with running_site(server.dsn, make_database(None), tmp_path) as site:
        site.serve()
        site.endpoint()
        site.dispatch()
        play.put(*FILES[:SAVED])
        play.command()
        play.save(str(play.checkpoint), str(elsewhere / FIRST))
        server.backup()
        play.put(*FILES[SAVED:LOST], first=SAVED)
        play.command()
        moment = datetime.now(UTC)
        play.put(*FILES[LOST:AFTER], first=LOST)
        play.command()
        if database == "older":
            play.save(str(play.checkpoint), str(elsewhere / SECOND))
        site.delivered()
        if database == "newer":
            server.follow()
        done = site.applied()
        assert [effect for *_, effect in done] == ["applied"] * 2
        site.db.close()
        shutil.rmtree(play.checkpoint)
        again = {"checkpoint": str(tmp_path / "new"), "key_groups": None}

        def started() -> None:
            name = _of_batch(reader.shown[-1], int(reader._known("BATCH")))
            assert name == FIRST
            if database == "older":
                with pytest.raises(CommandError, match="does not have that batch with the same"):
                    play.command(**again, savepoint=str(elsewhere / SECOND))
            play.put(*FILES[AFTER:], first=AFTER)
            play.command(**again, savepoint=str(elsewhere / name))

        reader = Reader(server.dsn, {"PAYOUTS_DSN": site.payouts_dsn}, {"SUBJECT": "m_1"})
        reader.known |= {"SAVEPOINTS": str(elsewhere)}
        reader.finds = {"BATCH": r"older rows: --before (\d+)"}
        reader.follow(
            PAGE,
            {
                "the database is there again": (
                    server.fail_over if database == "newer" else lambda: server.restore(moment)
                ),
                "the job is started from that savepoint": started,
            },
        )
        assert "only_there" not in reader.shown[-3]
        assert site.applied() == [*done, ("m_1", "block", "applied"), ("m_1", "release", "applied")]
    assert published(server.dsn) == published(undisturbed.dsn)

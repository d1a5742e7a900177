"""`make upgrade-transcript`: an upgrade without a stop, carried out and shown step by step.

The previous version and a next release of this tree work on one database under steady load. The
output is in docs/operators/upgrading.md; each stage takes HOLDFAST_TRANSCRIPT_SECONDS at least.
"""

import os
import sys
import tempfile
from pathlib import Path

import psycopg
import pytest

from holdfast.deploy.local.postgres import EmbeddedPostgres
from tests.support.dispatch.dispatching import SECRET
from tests.support.dispatch.payouts import empty_database, payouts
from tests.support.dispatch.sender import secret_text
from tests.support.servers.databases import server_directory
from tests.support.upgrades import builds
from tests.support.upgrades.builds import Load, NotHere
from tests.support.upgrades.stage import Stage, roll

SUBJECTS = 10
PAUSE_SECONDS = 0.15
STAGE_SECONDS = float(os.environ.get("HOLDFAST_TRANSCRIPT_SECONDS", "15"))
LOAD = Load(round(STAGE_SECONDS / PAUSE_SECONDS), SUBJECTS, PAUSE_SECONDS, patience_seconds=900)


def main() -> int:
    """Run it; returns 0 if nothing was lost, repeated, altered or out of order."""
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
        server_directory() as directory,
        EmbeddedPostgres(directory) as server,
        empty_database(server.dsn) as dsn,
        empty_database(server.dsn) as payouts_dsn,
        payouts(payouts_dsn) as service,
        psycopg.connect(dsn, autocommit=True) as db,
    ):
        patch.setenv(SECRET, secret_text())
        stage = Stage(dsn, db, Path(folder), service, LOAD)
        stage.say = _say
        try:
            return _run(stage, Path(folder))
        finally:
            stage.close()


def _run(stage: Stage, folder: Path) -> int:
    commit = os.environ.get("HOLDFAST_TEST_PREVIOUS", builds.PREVIOUS)
    try:
        old = builds.build_of(commit, folder / "previous")
    except NotHere as why:
        _say(f"{why}. Nothing was run.")
        return 2
    new, pair = builds.next_build(folder / "next")
    _say(f"previous: {commit}")
    _say(
        f"next: this version and two more revisions, {pair.expand} expand, {pair.contract} contract"
    )
    _say(f"load: two jobs; each writes {SUBJECTS} decisions, pauses {PAUSE_SECONDS:g} s, and so on")
    roll(stage, old, new, pair)
    proof = stage.end()
    stage.title("What the receiver's tables say")
    _say(f"  {proof.decided:,} decisions, {proof.resent} of them sent again by operators")
    _say(f"  {proof}")
    return int(not proof.holds)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

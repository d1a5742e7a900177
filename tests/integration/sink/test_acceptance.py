"""A diverged replay that a person accepted: new keys are written once, and nothing else changes.

Real: Postgres, the command, SIGKILL of the driver's process. Doubled: Spark.
"""

import os
import re
import shlex
import subprocess
import sys
from signal import SIGKILL
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from holdfast.dispatcher.operators.common.session import acting_as
from holdfast.sink import BatchInput, Fenced, ReplayDiverged, Replayed, UnadoptedCheckpoint, Written
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.failpoints import ENVIRONMENT
from tests.support.dispatch.sender import REFUSED, RELEASE, decision
from tests.support.documents.pages import blocks_of
from tests.support.job.driver import Driver
from tests.support.job.job_stream import contents, sequences
from tests.support.world import World

BOTH = pytest.mark.parametrize("staged", [False, True])
WHY = ("--reason", "the rule is new", "--yes")
Rows = list[dict[str, Any]]

THEN: Rows = [decision("m_1", 1), decision("m_2", 1, minor=1), decision("m_3", 1), decision("")]
"""What is written first."""

NOW: Rows = [
    decision("m_1", 1),
    decision("m_1", 2, RELEASE),
    decision("m_2", 1, minor=2),
    decision("m_4", 1),
    decision("", 2),
    decision("", 3),
]
"""What the new code makes of it: two keys more, one with other content and one less."""


def _diverge(spark: Driver, batch_id: int, rows: Rows) -> ReplayDiverged:
    with pytest.raises(ReplayDiverged) as raised:
        spark.batch(batch_id, *rows)
    return raised.value


def _accept(world: World, *more: str, batch_id: int = 0) -> Any:
    words = ("batch", "accept", "payouts", str(batch_id), *WHY, *more, "--json")
    return world.holdfast(*words, code=ExitCode.OK).json


def _kept(db: psycopg.Connection) -> set[tuple[str, str]]:
    """Return what no acceptance may change or remove: entries, keys, rows of the ledger."""
    return {
        (table, row)
        for table in ("entry", "entry_key", "batch", "suppressed", "quarantine")
        for (row,) in db.execute(f"SELECT to_jsonb(t)::text FROM holdfast.{table} t".encode())
    }


@BOTH
@pytest.mark.guarantee(2)
def test_accepted_replay_writes_its_new_keys_and_keeps_the_others(
    world: World, *, staged: bool
) -> None:
    spark = world.driver(staged=staged)
    first = spark.batch(0, *THEN)
    before = _kept(world.db)
    _diverge(spark, 0, NOW)
    assert _accept(world)["accepted"]
    assert _kept(world.db) == before
    assert spark.sink.outcome(0) == first

    restarted = world.driver(query_id=spark.query_id, staged=not staged)
    outcome = restarted.batch(0, *NOW)
    assert isinstance(outcome, Written)
    assert restarted.sink.outcome() == restarted.sink.outcome(0) == outcome
    counts = outcome.counts
    assert (counts.rows, counts.entries, counts.duplicates) == (6, 2, 2)
    assert (counts.differing, counts.suppressed, counts.quarantined) == (1, 0, 2)
    assert _kept(world.db) > before
    assert [sequences(world.db, f"m_{n}") for n in (1, 2, 3, 4)] == [[1, 2], [1], [1], [1]]

    for rows, batch_no in ((THEN, first.batch_no), (NOW, outcome.batch_no)):
        again = restarted.batch(0, *rows)
        assert isinstance(again, Replayed)
        assert again.batch_no == batch_no
    assert isinstance(restarted.batch(1, decision("m_1", 3)), Written)
    world.holdfast("check", code=ExitCode.OK)


@BOTH
def test_only_the_accepted_content_is_written(world: World, *, staged: bool) -> None:
    spark = world.driver(staged=staged)
    spark.batch(0, *THEN)
    _diverge(spark, 0, NOW)
    _accept(world)
    other = [*NOW, decision("m_5")]
    assert _diverge(spark, 0, other).divergence.only_in_replay.count == 3
    assert isinstance(spark.batch(0, *NOW), Written)
    # What is written in the meantime is no longer missing.
    later = _diverge(spark, 0, [*other, decision("m_6")]).divergence
    assert later.only_in_replay.count == 2
    assert later.changed.count == 1

    _accept(world, "--divergence", "2")
    added = spark.batch(0, *other)
    assert isinstance(added, Written)
    assert added.counts.entries == 1
    for rows in (THEN, NOW, other):
        assert isinstance(spark.batch(0, *rows), Replayed)
    world.holdfast("check", code=ExitCode.OK)


def test_accepted_replay_of_no_new_key_completes_the_batch(world: World) -> None:
    spark = world.driver()
    spark.batch(0, decision("m_1"), decision("m_2"))
    _diverge(spark, 0, [decision("m_2")])
    _accept(world)
    outcome = spark.batch(0, decision("m_2"))
    assert isinstance(outcome, Written)
    assert (outcome.counts.entries, outcome.counts.duplicates) == (0, 1)
    assert spark.batch(1, decision("m_2", 2, RELEASE)).counts.entries == 1


def test_new_key_that_changes_nothing_or_is_older_is_suppressed(world: World) -> None:
    spark = world.driver()
    spark.batch(0, decision("m_1", 5), decision("m_2", 5))
    rows = [decision("m_1", 6), decision("m_2", 4, RELEASE), decision("m_3")]
    _diverge(spark, 0, rows)
    words = ("batch", "accept", "payouts", "0", *WHY)
    proposed = world.holdfast(*words, "--json", code=ExitCode.DEGRADED).json
    assert (proposed["accepted"], proposed["overtaking"]) == (False, 1)
    _diverge(spark, 0, rows)
    short = proposed["proposal"][:8]
    world.holdfast(*words, "--proposal", short, code=ExitCode.FAILED)
    with acting_as("second"):
        world.holdfast("proposal", "approve", short, "--reason", "agreed", code=ExitCode.OK)
    assert "accepted" in world.holdfast(*words, "--proposal", short, code=ExitCode.OK).stdout
    counts = spark.batch(0, *rows).counts
    assert (counts.entries, counts.suppressed) == (1, 2)
    causes = "SELECT cause::text FROM holdfast.suppressed ORDER BY 1"
    assert world.db.execute(causes).fetchall() == [("overtaken",), ("repeated",)]
    assert sequences(world.db, "m_2") == [1]
    world.holdfast("check", code=ExitCode.OK)


def test_also_gets_the_accepted_replay_once_with_its_own_number(world: World) -> None:
    called: list[tuple[Any, ...]] = []
    revision = 1

    def also(_connection: psycopg.Connection, rows: pa.Table, batch: Any) -> None:
        called.append((rows.num_rows, batch.query_id, batch.batch_id, batch.batch_no))

    def select(rows: pa.Table) -> BatchInput:
        refused = pa.Table.from_pylist([{"reason": "malformed", "detail": "", "row": "{"}], REFUSED)
        return BatchInput(rows, refused, {"windows": pa.table({"revision": [revision]})})

    spark = world.driver(also=also, select=select)
    first = spark.batch(0, decision())
    revision = 2
    _diverge(spark, 0, [decision()])
    _accept(world)
    added = spark.batch(0, decision())
    spark.batch(0, decision())
    here = (1, spark.query_id, 0)
    assert called == [(*here, first.batch_no), (*here, added.batch_no)]
    quarantined = "SELECT batch_no FROM holdfast.quarantine ORDER BY 1"
    assert world.db.execute(quarantined).fetchall() == [(first.batch_no,), (added.batch_no,)]


def test_acceptance_outlives_the_run_but_not_its_query(world: World) -> None:
    spark = world.driver()
    spark.batch(0, *THEN)
    _diverge(spark, 0, NOW)
    _accept(world)
    other = world.driver()
    world.db.execute("UPDATE holdfast.stream SET query_id = %s", [other.query_id])
    # A checkpoint of its own begins its own ledger.
    assert isinstance(other.batch(0, *THEN), Written)
    _diverge(other, 0, NOW)


POINTS = ["S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9"]
PROGRAM = """
import sys
from uuid import UUID
from tests.integration.sink.test_acceptance import NOW
from tests.support.job.driver import Driver
Driver(sys.argv[1], query_id=UUID(sys.argv[2]), staged=sys.argv[3] == "True").batch(0, *NOW)
"""


@pytest.mark.parametrize(
    ("point", "staged"),
    [
        pytest.param(p, s, marks=() if (p, s) == ("S7", False) else pytest.mark.rest)
        for p in POINTS
        for s in (False, True)
    ],
)
def test_kill_at_a_point_leaves_an_accepted_replay_as_a_whole(
    world: World, point: str, *, staged: bool
) -> None:
    spark = world.driver(staged=staged)
    spark.batch(0, *THEN)
    _diverge(spark, 0, NOW)
    _accept(world)
    before = _kept(world.db)
    killed = subprocess.run(
        [sys.executable, "-c", PROGRAM, world.dsn, str(spark.query_id), str(staged)],
        env={**os.environ, ENVIRONMENT: f"{point}=kill"},
        check=False,
        timeout=120,
    )
    assert killed.returncode == -SIGKILL
    committed = point in {"S8", "S9"}
    assert (_kept(world.db) > before) == committed
    restarted = world.driver(query_id=spark.query_id, staged=staged)
    assert isinstance(restarted.batch(0, *NOW), Replayed if committed else Written)
    assert _kept(world.db) > before
    assert sequences(world.db, "m_1") == [1, 2]
    assert len(contents(world.db)["entry_key"]) == 5
    world.holdfast("check", code=ExitCode.OK)


def _refused(world: World, code: ExitCode, *more: str) -> str:
    done = world.holdfast("batch", "accept", "payouts", *more, *WHY, code=code)
    assert "Nothing was changed" in done.stderr
    return done.stderr


def test_only_a_recorded_replay_that_can_come_again_is_accepted(world: World) -> None:
    spark = world.driver()
    spark.batch(0, decision("m_1"))
    assert "nothing diverged" in _refused(world, ExitCode.NOTHING_MATCHED, "0")
    for subject in ("m_2", "m_3"):
        _diverge(spark, 0, [decision(subject)])
    assert "--divergence 1 or 2" in _refused(world, ExitCode.USAGE, "0")
    _accept(world, "--divergence", "1")
    assert "accepted already" in _refused(world, ExitCode.FAILED, "0", "--divergence", "1")
    spark.batch(1, decision("m_1", 2, RELEASE))
    assert "wrote batch 1 after" in _refused(world, ExitCode.FAILED, "0", "--divergence", "2")


def test_difference_is_shown_before_anything_is_changed(world: World) -> None:
    spark = world.driver()
    spark.batch(0, *THEN)
    _diverge(spark, 0, NOW)
    before = world.db.execute("SELECT * FROM holdfast.divergence").fetchall()
    words = ("batch", "accept", "payouts", "0", "--reason", "the rule is new")
    shown = world.holdfast(*words, "--dry-run", code=ExitCode.OK).stdout
    assert "only now: " in shown
    assert "accepted, the job writes 2 new decisions" in shown
    preview = world.holdfast(*words, "--dry-run", "--json", code=ExitCode.OK).json
    assert (preview["divergence"]["new_count"], preview["needs_approval"]) == (2, False)
    asked = world.holdfast(*words, code=ExitCode.USAGE)
    assert "pass --yes" in asked.stderr
    assert world.db.execute("SELECT * FROM holdfast.divergence").fetchall() == before
    with pytest.raises(ReplayDiverged):
        spark.batch(0, *NOW)


def test_only_what_was_shown_is_accepted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    spark = world.driver()
    spark.batch(0, *THEN)
    _diverge(spark, 0, NOW)

    def meanwhile(*_: object, **__: object) -> None:
        """Another person accepts what was shown, and the job brings something else."""
        monkeypatch.undo()
        _accept(world)
        _diverge(spark, 0, [decision("m_5")])

    monkeypatch.setattr("holdfast.dispatcher.cli.verbs.confirm", meanwhile)
    assert "accepted already" in _refused(world, ExitCode.FAILED, "0")
    accepted = "SELECT id FROM holdfast.divergence WHERE accepted_at IS NOT NULL"
    assert world.db.execute(accepted).fetchall() == [(1,)]


def test_commands_of_the_page_show_and_accept_a_replay(world: World) -> None:
    spark = world.driver()
    for batch_id in range(42):
        spark.batch(batch_id, *(THEN if batch_id == 41 else ()))
    for number in range(7):
        _diverge(spark, 41, [*NOW, decision(f"m_1{number}")])
    block = blocks_of("docs/spark/deploying.md", "sh")[0]
    shows, accepts = (shlex.split(line)[1:] for line in block.splitlines())
    assert "accepted, the job writes 3 new" in world.holdfast(*shows, code=ExitCode.OK).stdout
    world.holdfast(*accepts, "--yes", code=ExitCode.OK)
    assert isinstance(spark.batch(41, *NOW, decision("m_16")), Written)


def test_older_schema_is_named_with_the_command_that_upgrades_it(world: World) -> None:
    spark = world.driver()
    spark.batch(0, *THEN)
    _diverge(spark, 0, NOW)
    world.holdfast("db", "downgrade", "0034", "--reason", "a test", "--yes", code=ExitCode.OK)
    assert "`holdfast db upgrade`" in _refused(world, ExitCode.FAILED, "0")
    _diverge(spark, 0, NOW)
    world.holdfast("db", "upgrade", code=ExitCode.OK)
    assert _accept(world)["accepted"]


def test_new_keys_of_a_day_need_a_second_person_above_the_limit(world: World) -> None:
    spark = world.driver()
    spark.batch(0)
    for count in (6, 7):
        _diverge(spark, 0, [decision(f"m_{count}_{n}") for n in range(count)])
    _accept(world, "--divergence", "1")
    words = ("batch", "accept", "payouts", "0", *WHY, "--divergence", "2", "--json")
    proposed = world.holdfast(*words, "--limit", "1000", code=ExitCode.DEGRADED).json
    assert (proposed["accepted"], proposed["overtaking"]) == (False, 0)
    audited = "SELECT action, target FROM holdfast.operator_action ORDER BY id"
    assert world.db.execute(audited).fetchall() == [
        ("batch.accept", "batch payouts 0"),
        ("proposal.add", "batch payouts 0"),
    ]


COMMAND = re.compile(r"`(holdfast [^`]+)`")


def _run_as_printed(world: World, message: str, *more: str) -> str:
    [command] = COMMAND.findall(message)
    return str(world.holdfast(*shlex.split(command)[1:], *more, code=ExitCode.OK).stdout)


def test_command_in_the_error_of_a_diverged_replay_accepts_it(world: World) -> None:
    spark = world.driver()
    spark.batch(0, *THEN)
    _run_as_printed(world, str(_diverge(spark, 0, NOW)), "--yes")
    assert isinstance(spark.batch(0, *NOW), Written)


def test_command_in_the_error_of_a_fenced_run_names_the_newer(world: World) -> None:
    spark = world.driver()
    spark.batch(0)
    newer = world.driver(query_id=spark.query_id)
    newer.batch(1)
    with pytest.raises(Fenced) as raised:
        spark.batch(1)
    assert str(newer.run_id) in _run_as_printed(world, str(raised.value))


def test_command_in_the_error_of_another_checkpoint_adopts_it(world: World) -> None:
    world.driver().batch(0, *THEN)
    other = world.driver()
    with pytest.raises(UnadoptedCheckpoint) as raised:
        other.batch(0, *NOW)
    _run_as_printed(world, str(raised.value), "--force")
    assert other.batch(0, *NOW).counts.entries == 2

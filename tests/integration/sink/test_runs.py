"""Who may write a stream: one checkpoint, and of its runs the newest."""

import shlex
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest

from holdfast.sink import Fenced, Repeated, Replayed, UnadoptedCheckpoint, Written
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.errors import CheckpointBehind, LedgerBehind, ReplayDiverged, SinkUnavailable
from holdfast.sink.transaction import lineage
from holdfast.sink.transaction.continuation import Continuation
from holdfast.sink.transaction.lineage import Files
from tests.support.dispatch.sender import BLOCK, RELEASE, alternating, decision
from tests.support.job.driver import PATIENT, Driver, MakeDriver, checkpoint_files
from tests.support.job.job_stream import contents, sequences
from tests.support.world import World


def _stream(db: psycopg.Connection) -> tuple[UUID, int, UUID]:
    row = db.execute("SELECT query_id, epoch, run_id FROM holdfast.stream").fetchone()
    assert row is not None
    return row


def _adopt(db: psycopg.Connection, query_id: UUID) -> None:
    db.execute("UPDATE holdfast.stream SET query_id = %s, adopted_at = now()", [query_id])


def test_first_query_id_of_a_stream_is_adopted_and_each_run_takes_an_epoch(world: World) -> None:
    first = world.driver()
    first.batch(0)
    first.batch(1)
    assert _stream(world.db) == (first.query_id, 1, first.run_id)
    second = world.driver(query_id=first.query_id)
    second.batch(2)
    assert _stream(world.db) == (first.query_id, 2, second.run_id)
    epochs = world.db.execute("SELECT batch_id, epoch FROM holdfast.batch ORDER BY 1").fetchall()
    assert epochs == [(0, 1), (1, 1), (2, 2)]


def test_restart_within_one_process_begins_a_new_run(world: World) -> None:
    spark = world.driver()
    spark.batch(0)
    spark.run_id = uuid4()
    spark.batch(1)
    assert _stream(world.db) == (spark.query_id, 2, spark.run_id)


@pytest.mark.guarantee(3)
def test_new_checkpoint_is_refused_before_the_epoch_moves(world: World) -> None:
    owner = world.driver()
    owner.batch(0, decision())
    before = contents(world.db), _stream(world.db)
    stranger = world.driver()
    with pytest.raises(UnadoptedCheckpoint) as raised:
        stranger.batch(0, decision("m_9"))
    command = f"holdfast stream adopt payouts --query-id {stranger.query_id} --force --reason TEXT"
    assert str(raised.value).endswith(f"`{command}`.")
    assert str(owner.query_id) in str(raised.value)
    assert (contents(world.db), _stream(world.db)) == before
    assert isinstance(owner.batch(1, decision("m_8")), Written)


def test_adopted_checkpoint_repeats_nothing_whatever_its_batches(world: World) -> None:
    rows = [*alternating("m_1", range(6)), *alternating("m_2", range(6))]
    first = world.driver()
    for window in range(6):
        first.batch(window, *rows[window::6])
    entries = contents(world.db)["entry"], contents(world.db)["subject"]

    lost = world.driver()
    _adopt(world.db, lost.query_id)
    outcomes = [lost.batch(n, *rows[5 * n : 5 * n + 5]) for n in range(3)]
    assert [outcome.counts.duplicates for outcome in outcomes] == [5, 5, 2]
    assert (contents(world.db)["entry"], contents(world.db)["subject"]) == entries

    # m_1's last decision was a block: to block it again would change nothing.
    repeat = lost.batch(3, decision("m_1", 6, BLOCK), decision("m_1", 7, RELEASE))
    assert (repeat.counts.suppressed, repeat.counts.entries) == (1, 1)
    assert sequences(world.db, "m_1") == [1, 2, 3, 4, 5, 6, 7]


def test_recomputed_decision_keeps_newest(world: World, caplog: pytest.LogCaptureFixture) -> None:
    first = world.driver()
    for batch_id, (window, type_) in enumerate([(1, BLOCK), (4, RELEASE), (5, BLOCK)]):
        first.batch(batch_id, decision("m_1", window, type_))
    entries = contents(world.db)["entry"], contents(world.db)["subject"]

    recomputed = world.driver()
    _adopt(world.db, recomputed.query_id)
    rows = [decision("m_1", 1), decision("m_1", 2, RELEASE), decision("m_1", 5)]
    outcome = recomputed.batch(0, *rows)
    assert (outcome.counts.duplicates, outcome.counts.suppressed) == (2, 1)
    assert "stream=payouts batch=0 overtaken=1" in caplog.text
    assert (contents(world.db)["entry"], contents(world.db)["subject"]) == entries
    assert entries[1] == [("m_1", 3, BLOCK)]
    # Its key is recorded, so it cannot come back after the next decision either.
    assert recomputed.batch(1, rows[1]).counts.duplicates == 1


def test_known_key_otherwise_is_reported(world: World, caplog: pytest.LogCaptureFixture) -> None:
    first = world.driver()
    first.batch(0, decision("m_1"))
    first.batch(1, decision("m_1"))
    assert "differing" not in caplog.text
    recomputed = world.driver()
    _adopt(world.db, recomputed.query_id)
    assert recomputed.batch(0, decision("m_1", minor=9_000_000)).counts.differing == 1
    assert "stream=payouts batch=0 differing=1" in caplog.text


def test_overtaken_decision_takes_no_part_in_what_repeats_what(world: World) -> None:
    spark = world.driver()
    spark.batch(0, decision("m_1", 4), decision("m_2", 4, RELEASE))
    overtaken = [decision("m_1", 2, RELEASE), decision("m_2", 3, BLOCK)]
    outcome = spark.batch(1, *overtaken, decision("m_1", 5), decision("m_2", 5, BLOCK))
    # m_1 is blocked already; the block of m_2 is news, whatever was overtaken before it.
    assert (outcome.counts.entries, outcome.counts.suppressed) == (1, 3)
    assert contents(world.db)["subject"] == [("m_1", 1, BLOCK), ("m_2", 2, BLOCK)]


def test_older_decision_is_written_on_demand(driver: MakeDriver, db: psycopg.Connection) -> None:
    spark = driver(suppress_repeats=False)
    spark.batch(0, decision("m_1", 4))
    assert spark.batch(1, decision("m_1", 2, RELEASE)).counts.entries == 1
    newest = db.execute("SELECT last_type, last_occurred_at FROM holdfast.transition").fetchone()
    assert newest == (RELEASE, decision("m_1", 4)["occurred_at"])


def test_run_of_a_query_id_adopted_no_more_is_refused(world: World) -> None:
    spark = world.driver(checkpoint="hdfs://namenode/checkpoint")
    spark.batch(0)
    _adopt(world.db, uuid4())
    message = f"the checkpoint hdfs://namenode/checkpoint is query {spark.query_id}"
    with pytest.raises(UnadoptedCheckpoint, match=f"{message}.* --force --reason"):
        spark.batch(1)


@pytest.mark.guarantee(4)
def test_older_run_is_fenced_once_a_newer_one_started(world: World) -> None:
    older = world.driver()
    older.batch(0, decision("m_1"))
    newer = world.driver(query_id=older.query_id)
    assert isinstance(newer.batch(0, decision("m_1")), Replayed)
    before = contents(world.db)
    with pytest.raises(Fenced) as raised:
        older.batch(1, decision("m_2"))
    assert f"run {newer.run_id} took epoch 2" in str(raised.value)
    # Not even a batch that is written already is answered to a run that lost the stream.
    with pytest.raises(Fenced):
        older.batch(0, decision("m_1"))
    assert contents(world.db) == before
    assert isinstance(newer.batch(1, decision("m_2")), Written)


def test_run_is_ended_only_while_it_has_the_stream(world: World) -> None:
    older = world.driver()
    older.batch(0)
    newer = world.driver(query_id=older.query_id)
    newer.batch(1)
    older.sink._writer.end_run(older.run_id)
    assert isinstance(newer.batch(2), Written)
    older.sink._writer.end_run(newer.run_id)
    before = contents(world.db)
    with pytest.raises(Fenced):
        newer.batch(3)
    assert contents(world.db) == before


@pytest.mark.guarantee(4)
@pytest.mark.parametrize("staged", [False, True])
def test_run_whose_epoch_a_failover_gave_out_twice_is_fenced(world: World, staged: bool) -> None:
    """A failover that lost the start of a run: the next one takes the same epoch."""
    before = world.driver(staged=staged)
    before.batch(0, decision("m_1"))
    row = world.db.execute("SELECT epoch, run_id, started_at FROM holdfast.stream").fetchone()
    assert row is not None
    lost, newer = (world.driver(query_id=before.query_id, staged=staged) for _ in range(2))
    lost.sink.start(lost.query_id, lost.run_id)
    world.db.execute("UPDATE holdfast.stream SET (epoch, run_id, started_at) = (%s, %s, %s)", row)
    newer.sink.start(newer.query_id, newer.run_id)
    assert _stream(world.db) == (before.query_id, 2, newer.run_id)
    with pytest.raises(Fenced, match=f"run {newer.run_id} took epoch 2"):
        lost.batch(1, decision("m_9"))
    assert isinstance(newer.batch(1, decision("m_2")), Written)


def test_run_writes_under_no_epoch_that_a_failover_lost(world: World) -> None:
    """A start without an answer is repeated, and takes a second epoch, which a standby has not."""
    spark = world.driver()
    spark.batch(0, decision("m_1"))
    world.db.execute("UPDATE holdfast.stream SET epoch = epoch - 1")
    with pytest.raises(Fenced, match="epoch 1"):
        spark.batch(1, decision("m_2"))
    newer = world.driver(query_id=spark.query_id)
    assert isinstance(newer.batch(1, decision("m_2")), Written)


def test_start_order_of_runs_decides_not_write_order(world: World) -> None:
    older = world.driver()
    newer = world.driver(query_id=older.query_id)
    for spark in (older, newer):
        spark.sink.start(spark.query_id, spark.run_id)
        spark.sink.start(spark.query_id, spark.run_id)
    with pytest.raises(Fenced, match=f"run {newer.run_id} took epoch 2"):
        older.batch(0, decision("m_1"))
    assert isinstance(newer.batch(0, decision("m_1")), Written)
    assert _stream(world.db) == (newer.query_id, 2, newer.run_id)


def test_runs_that_start_at_once_get_one_stream_and_different_epochs(world: World) -> None:
    query_id = uuid4()
    drivers = [world.driver(query_id=query_id) for _ in range(4)]

    def start(spark: Driver) -> int:
        return spark.sink._writer.begin_run(spark.query_id, spark.run_id).epoch

    with ThreadPoolExecutor(len(drivers)) as threads:
        epochs = list(threads.map(start, drivers))
    assert sorted(epochs) == [1, 2, 3, 4]
    newest = drivers[epochs.index(4)]
    assert _stream(world.db) == (query_id, 4, newest.run_id)


def test_refused_checkpoints_command_adopts_it(world: World, tmp_path: Path) -> None:
    folders = tmp_path / "lost", tmp_path / "new one"
    lost, new = (world.driver(checkpoint=str(folder)) for folder in folders)
    for folder, each in zip(folders, (lost, new), strict=True):
        folder.mkdir()
        checkpoint_files(folder, each.query_id, planned=0, committed=-1)
    lost.batch(0, decision())
    with pytest.raises(UnadoptedCheckpoint) as raised:
        new.batch(0, decision())
    _, command, _ = str(raised.value).split("`", 2)
    assert world.holdfast(*shlex.split(command)[1:]).returncode == ExitCode.OK
    new.batch(0, decision())


@pytest.mark.guarantee(3)
def test_older_copy_of_a_checkpoint_moves_no_epoch(world: World, tmp_path: Path) -> None:
    spark = world.driver(checkpoint=str(tmp_path))
    for n in range(3):
        spark.batch(n, decision(f"m_{n}"))
    before = contents(world.db), _stream(world.db)
    checkpoint_files(tmp_path, spark.query_id, planned=1, committed=0)
    restored = world.driver(query_id=spark.query_id, checkpoint=str(tmp_path))
    with pytest.raises(CheckpointBehind, match=r"ledger has batch 2 .* batch 1 is the newest"):
        restored.sink.claim(restored.query_id)
    with pytest.raises(CheckpointBehind, match=r"ledger has batch 2 .* batch 1 is the newest"):
        restored.batch(2, decision("m_9"))
    assert (contents(world.db), _stream(world.db)) == before

    checkpoint_files(tmp_path, spark.query_id, planned=2, committed=1)
    assert isinstance(restored.batch(2, decision("m_2")), Replayed)


def test_checkpoint_that_grows_meanwhile_is_no_older_copy(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another driver plans a batch and writes it after the checkpoint was read."""
    first = world.driver(checkpoint=str(tmp_path))
    first.batch(0, decision("m_1"))
    checkpoint_files(tmp_path, first.query_id, planned=0, committed=0)
    read, written = lineage.read_checkpoint, list[Written | Replayed]()

    def read_before_it_grows(files: Files | None, query_id: UUID) -> lineage.Checkpoint | None:
        checkpoint = read(files, query_id)
        if not written:
            checkpoint_files(tmp_path, first.query_id, planned=1, committed=0)
            written.append(first.batch(1, decision("m_2")))
        return checkpoint

    monkeypatch.setattr(lineage, "read_checkpoint", read_before_it_grows)
    second = world.driver(query_id=first.query_id, checkpoint=str(tmp_path))
    second.sink.start(second.query_id, second.run_id)
    assert _stream(world.db) == (first.query_id, 2, second.run_id)


def test_repeating_checkpoint_may_be_behind(world: World, tmp_path: Path) -> None:
    spark = world.driver(checkpoint=str(tmp_path))
    for n in range(3):
        spark.batch(n, decision(f"m_{n}"))
    before = contents(world.db)
    checkpoint_files(tmp_path, spark.query_id, planned=1, committed=0)
    behind = world.driver(query_id=spark.query_id, checkpoint=str(tmp_path))
    with pytest.raises(CheckpointBehind):
        behind.sink.start(behind.query_id, behind.run_id, repeated=Repeated(until=1))
    behind.sink.start(behind.query_id, behind.run_id, repeated=Repeated(until=2))
    assert isinstance(behind.batch(1, decision("m_1")), Replayed)
    assert contents(world.db) == before
    with pytest.raises(ReplayDiverged):
        behind.batch(2, decision("m_9"))


@pytest.mark.guarantee(3)
def test_older_database_is_refused_before_the_epoch_moves(world: World, tmp_path: Path) -> None:
    spark = world.driver(checkpoint=str(tmp_path))
    spark.batch(0, decision())
    before = contents(world.db), _stream(world.db)
    checkpoint_files(tmp_path, spark.query_id, planned=3, committed=2)
    restarted = world.driver(query_id=spark.query_id, checkpoint=str(tmp_path))
    with pytest.raises(LedgerBehind, match=r"has finished batch 2, but .* in the ledger is 0"):
        restarted.batch(3, decision("m_9"))
    assert (contents(world.db), _stream(world.db)) == before


def test_next_batch_misses_one_that_the_database_lost(world: World) -> None:
    """As by a failover to a standby that was behind: Spark does not run that batch again."""
    spark = world.driver()
    spark.batch(0, decision("m_1"))
    spark.batch(1, decision("m_2"))
    for table in ("entry", "entry_key", "batch"):
        world.db.execute(f"DELETE FROM holdfast.{table} WHERE batch_no = 2")
    before = contents(world.db)
    with pytest.raises(LedgerBehind, match=r"has written batch 1, .* Batch 2 was not written"):
        spark.batch(2, decision("m_3"))
    assert contents(world.db) == before
    # The lost batch itself may come again.
    assert isinstance(spark.batch(1, decision("m_2")), Written)
    assert isinstance(spark.batch(2, decision("m_3")), Written)


@pytest.mark.parametrize("with_checkpoint", [True, False])
def test_new_run_misses_a_batch_that_the_database_lost(world: World, with_checkpoint: bool) -> None:
    """Its checkpoint was compared before the driver before committed that batch, or never."""
    checkpoint = str(world.tmp_path) if with_checkpoint else None
    older = world.driver(checkpoint=checkpoint)
    older.batch(0, decision("m_1"))
    checkpoint_files(world.tmp_path, older.query_id, planned=0, committed=0)
    newer = world.driver(query_id=older.query_id, checkpoint=checkpoint)
    newer.sink.start(newer.query_id, newer.run_id)
    checkpoint_files(world.tmp_path, older.query_id, planned=2, committed=1)
    before = contents(world.db)
    with pytest.raises(LedgerBehind, match=r"batch 2 would be .* in the ledger is 0"):
        newer.batch(2, decision("m_3"))
    assert contents(world.db) == before
    # The lost batch itself may come again.
    assert isinstance(newer.batch(1, decision("m_2")), Written)
    assert isinstance(newer.batch(2, decision("m_3")), Written)


@pytest.mark.guarantee(3)
@pytest.mark.parametrize("lost", ["batches", "everything"])
@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("with_checkpoint", [True, False])
def test_database_put_back_before_the_first_batch_of_a_query_is_refused(
    world: World, lost: str, staged: bool, with_checkpoint: bool
) -> None:
    """To a moment between the run's start and its batch 0, or an empty database."""
    settings = {"staged": staged, "checkpoint": str(world.tmp_path) if with_checkpoint else None}
    spark = world.driver(**settings)
    if lost == "batches":
        spark.sink.start(spark.query_id, spark.run_id)
    before = contents(world.db)
    checkpoint_files(world.tmp_path, spark.query_id, planned=4, committed=3)
    restarted = world.driver(query_id=spark.query_id, **settings)
    with pytest.raises(LedgerBehind, match=r"first_batch=4"):
        restarted.batch(4, decision("m_5"))
    assert contents(world.db) | {"stream": None} == before | {"stream": None}
    # As printed: the person says that the query begins with this batch.
    explicit = world.driver(query_id=spark.query_id, first_batch=4, **settings)
    assert isinstance(explicit.batch(4, decision("m_5")), Written)
    assert isinstance(world.driver(query_id=spark.query_id).batch(5, decision("m_6")), Written)


def test_first_batch_that_is_not_the_declared_one_is_refused(world: World, tmp_path: Path) -> None:
    spark = world.driver(checkpoint=str(tmp_path), first_batch=7)
    checkpoint_files(tmp_path, spark.query_id, planned=9, committed=8)
    with pytest.raises(LedgerBehind):
        spark.batch(9, decision())
    with pytest.raises(LedgerBehind):
        world.driver(first_batch=7).batch(9, decision())
    assert contents(world.db)["batch"] == []
    # A later checkpoint of the same code begins at 0, as each does.
    assert isinstance(world.driver(stream="other", first_batch=7).batch(0, decision()), Written)


def test_adopted_new_checkpoint_begins_at_batch_0(world: World, tmp_path: Path) -> None:
    world.driver().batch(0, decision("m_1"))
    new = world.driver(checkpoint=str(tmp_path))
    _adopt(world.db, new.query_id)
    checkpoint_files(tmp_path, new.query_id, planned=0, committed=-1)
    assert isinstance(new.batch(0, decision("m_2")), Written)


def test_old_query_begins_at_the_declared_batch(world: World, tmp_path: Path) -> None:
    spark = world.driver(checkpoint=str(tmp_path), first_batch=7)
    checkpoint_files(tmp_path, spark.query_id, planned=7, committed=6)
    assert isinstance(spark.batch(7, decision()), Written)


@pytest.mark.guarantee(3)
@pytest.mark.parametrize("with_checkpoint", [True, False])
@pytest.mark.parametrize("batch_id", [0, 1])
def test_renamed_stream_is_refused(world: World, batch_id: int, with_checkpoint: bool) -> None:
    """Under another name, the block that repeats the subject's state would be news."""
    checkpoint = str(world.tmp_path) if with_checkpoint else None
    old = world.driver(stream="old", checkpoint=checkpoint)
    old.batch(0, decision("m_1", 0, BLOCK))
    checkpoint_files(world.tmp_path, old.query_id, planned=batch_id, committed=batch_id - 1)
    before = contents(world.db)
    new = world.driver(stream="new", query_id=old.query_id, checkpoint=checkpoint)
    rows = [decision("m_1", window, BLOCK) for window in range(batch_id + 1)]
    number = batch_id if with_checkpoint else "N"
    with pytest.raises(UnadoptedCheckpoint, match=rf"'old'.*first_batch={number}"):
        new.batch(batch_id, *rows)
    assert contents(world.db) == before
    back = world.driver(stream="old", query_id=old.query_id, checkpoint=checkpoint)
    assert back.batch(batch_id, *rows).counts.entries == 1 - batch_id
    declared = world.driver(
        stream="new", query_id=old.query_id, checkpoint=checkpoint, first_batch=batch_id
    )
    assert isinstance(declared.batch(batch_id, *rows), Written)


def test_one_query_may_write_two_streams(driver: MakeDriver) -> None:
    """Two sinks in one `foreachBatch`: the other stream's batches are of the same start."""
    one, two = driver(stream="one"), driver(stream="two")
    two.query_id, two.run_id = one.query_id, one.run_id
    for batch_id in range(2):
        assert isinstance(one.batch(batch_id, decision("m_1", batch_id)), Written)
        assert isinstance(two.batch(batch_id, decision("m_2", batch_id)), Written)
    one.run_id = two.run_id = uuid4()
    assert isinstance(two.batch(2, decision("m_2", 2)), Written)
    assert isinstance(one.batch(2, decision("m_1", 2)), Written)


def test_claim_fences_the_run_before_and_the_next_run_keeps_its_epoch(world: World) -> None:
    older = world.driver()
    assert older.sink.claim(older.query_id) is False
    assert world.db.execute("SELECT count(*) FROM holdfast.stream").fetchone() == (0,)
    older.batch(0, decision())
    newer = world.driver(query_id=older.query_id)
    assert newer.sink.claim(newer.query_id) is True
    with pytest.raises(Fenced):
        older.batch(1, decision("m_2"))
    newer.batch(1, decision("m_2"))
    assert _stream(world.db) == (newer.query_id, 2, newer.run_id)
    stranger = world.driver()
    with pytest.raises(UnadoptedCheckpoint):
        stranger.sink.claim(stranger.query_id)
    assert _stream(world.db) == (newer.query_id, 2, newer.run_id)
    # The claim was for one run: a restart of the same driver takes an epoch of its own.
    newer.run_id = uuid4()
    newer.batch(2, decision("m_3"))
    assert _stream(world.db) == (newer.query_id, 3, newer.run_id)


def test_claimed_stream_is_not_taken_back_from_a_newer_driver(world: World) -> None:
    first = world.driver()
    first.batch(0, decision())
    ours, theirs = world.driver(query_id=first.query_id), world.driver(query_id=first.query_id)
    ours.sink.claim(ours.query_id)
    ours.batch(1, decision("m_2"))
    theirs.sink.claim(theirs.query_id)
    taken, called = _stream(world.db), []
    for attempt in (
        lambda: ours.sink.claim(ours.query_id),
        lambda: ours.sink.start(ours.query_id, uuid4()),
        lambda: ours.sink.owned(lambda: called.append("work"), take_free=True),
        lambda: ours.sink.continue_from(_proof(ours, 1), uuid4(), 0),
    ):
        with pytest.raises(Fenced):
            attempt()
    assert (called, _stream(world.db)) == ([], taken)


def _proof(driver: Driver, batch_id: int) -> Continuation:
    proof = driver.sink.proof(driver.query_id, batch_id)
    assert proof is not None
    return proof


@pytest.mark.parametrize("takes", ["work that removes", "batch"])
def test_of_two_claims_of_a_free_stream_one_gets_it(world: World, takes: str) -> None:
    ours = world.driver()
    theirs = world.driver(query_id=ours.query_id)
    for each in (ours, theirs):
        assert each.sink.claim(each.query_id) is False
        assert each.sink.owned(lambda: "kept") == "kept"
    assert world.db.execute("SELECT count(*) FROM holdfast.stream").fetchone() == (0,)
    if takes == "batch":
        theirs.batch(0, decision())
    else:
        assert theirs.sink.owned(lambda: "removed", take_free=True) == "removed"
        assert world.db.execute("SELECT query_id FROM holdfast.stream").fetchone() == (None,)
    with pytest.raises(Fenced):
        ours.batch(0, decision("m_2"))
    theirs.batch(int(takes == "batch"), decision("m_3"))


def test_stream_is_not_taken_while_its_owner_works(driver: MakeDriver) -> None:
    owner = driver()
    owner.batch(0, decision())
    owner.sink.claim(owner.query_id)
    hasty = replace(PATIENT, lock_seconds=0.1, deadline_seconds=0)
    other = driver(query_id=owner.query_id, timeouts=hasty)

    def work() -> None:
        with pytest.raises(SinkUnavailable):
            other.sink.claim(other.query_id)

    owner.sink.owned(work)
    other.sink.claim(other.query_id)
    with pytest.raises(Fenced):
        owner.sink.owned(work)

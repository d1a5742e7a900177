"""Every error that stops the sink, and how its job continues: by the command that ends the message.

Each case brings about the error for real, and its command runs as it is printed. Where only the
user's code, settings or servers help, `cure` is what a person does, and the message has no command
or one that shows what stops the job. `CheckpointReplaced` and `UnsafeCheckpoint` need Spark:
`tests/spark`.
"""

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast import sink
from holdfast.migrations.upgrade import downgrade
from holdfast.sink import (
    AccessDenied,
    BatchTooLarge,
    CheckpointBehind,
    CheckpointReplaced,
    CheckpointUnreadable,
    CompanionFailed,
    Continuation,
    Fenced,
    LedgerBehind,
    NotPrimary,
    NotStreaming,
    Permanent,
    QuarantineLimit,
    Repeated,
    ReplayDiverged,
    SchemaMismatch,
    SinkError,
    SinkUnavailable,
    StageLost,
    TooManyRefused,
    Transient,
    UnadoptedCheckpoint,
    UnsafeCheckpoint,
    Written,
)
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.session import Identity
from holdfast.sink.transaction.staging import Stage, Summary, stage_rows
from tests.support.dispatch.sender import decision, table
from tests.support.job.driver import PATIENT, Driver, checkpoint_files
from tests.support.world import World

NO_CASE = {SinkError, Permanent, Transient, CheckpointReplaced, UnsafeCheckpoint}
"""Three base classes, and the one that needs Spark."""

SHOWN = re.compile(r"`((?:holdfast|GRANT) [^`]*)`")
HASTY = replace(PATIENT, deadline_seconds=0)


@dataclass(frozen=True)
class Stop:
    """Work that must end with the case's error."""

    work: Callable[[], object]
    cure: str | None = None
    """Words of the message about what a person changes; None: its command is enough."""

    error: type[SinkError] | None = None
    """Another error than the case's."""


Case = Callable[[World], Iterator[Stop]]
CASES: dict[str, tuple[type[SinkError], Case]] = {}


def stops_with(error: type[SinkError]) -> Callable[[Case], Case]:
    def register(case: Case) -> Case:
        CASES[case.__name__] = error, case
        return case

    return register


@stops_with(ReplayDiverged)
def replay_diverged(world: World) -> Iterator[Stop]:
    spark = world.driver()
    spark.batch(0, decision("m_1"))
    now = decision("m_1"), decision("m_2")
    yield Stop(lambda: spark.batch(0, *now))
    assert isinstance(spark.batch(0, *now), Written)


@stops_with(UnadoptedCheckpoint)
def other_checkpoint(world: World) -> Iterator[Stop]:
    world.driver().batch(0, decision("m_1"))
    yield from _continues_with(world.driver())


@stops_with(UnadoptedCheckpoint)
def other_checkpoint_at_a_known_place(world: World) -> Iterator[Stop]:
    world.driver().batch(0, decision("m_1"))
    folder = world.tmp_path / "a new one"
    new = world.driver(checkpoint=str(folder))
    checkpoint_files(folder, new.query_id, planned=0, committed=-1)
    yield from _continues_with(new)


@stops_with(UnadoptedCheckpoint)
def run_of_a_query_adopted_no_more(world: World) -> Iterator[Stop]:
    old, new = world.driver(), world.driver()
    old.batch(0, decision("m_1"))
    world.db.execute("UPDATE holdfast.stream SET query_id = %s", [new.query_id])
    yield Stop(lambda: old.batch(1, decision("m_2")))
    assert isinstance(old.batch(1, decision("m_2")), Written)


@stops_with(CheckpointBehind)
def older_copy_of_the_checkpoint(world: World) -> Iterator[Stop]:
    spark = world.driver(checkpoint=str(world.tmp_path))
    for batch_id in range(3):
        spark.batch(batch_id, decision(f"m_{batch_id}"))
    checkpoint_files(world.tmp_path, spark.query_id, planned=1, committed=0)
    restored = world.driver(query_id=spark.query_id, checkpoint=str(world.tmp_path))
    yield Stop(lambda: restored.batch(2), "a new checkpointLocation")
    yield from _continues_with(world.driver())


@stops_with(LedgerBehind)
def older_copy_of_the_database(world: World) -> Iterator[Stop]:
    spark = world.driver(checkpoint=str(world.tmp_path))
    spark.batch(0, decision("m_1"))
    checkpoint_files(world.tmp_path, spark.query_id, planned=3, committed=2)
    restarted = world.driver(query_id=spark.query_id, checkpoint=str(world.tmp_path))
    yield Stop(lambda: restarted.batch(3), "a new checkpointLocation")
    yield from _continues_with(world.driver())


@stops_with(LedgerBehind)
def batch_that_the_database_lost_during_a_run(world: World) -> Iterator[Stop]:
    spark = world.driver()
    spark.batch(0, decision("m_1"))
    spark.batch(1, decision("m_2"))
    for name in ("entry", "entry_key", "batch"):
        world.db.execute(f"DELETE FROM holdfast.{name} WHERE batch_no = 2".encode())
    yield Stop(lambda: spark.batch(2), "a new checkpointLocation")
    yield from _continues_with(world.driver())


@stops_with(LedgerBehind)
def batch_that_the_database_lost_before_a_run(world: World) -> Iterator[Stop]:
    spark = world.driver()
    spark.batch(0, decision("m_1"))
    restarted = world.driver(query_id=spark.query_id)
    yield Stop(lambda: restarted.batch(2), "a new checkpointLocation")
    yield from _continues_with(world.driver())


@stops_with(LedgerBehind)
def query_that_begins_in_the_middle(world: World) -> Iterator[Stop]:
    spark = world.driver()
    yield Stop(lambda: spark.batch(4, decision("m_1")), "first_batch=4")
    declared = world.driver(query_id=spark.query_id, first_batch=4)
    assert isinstance(declared.batch(4, decision("m_1")), Written)


@stops_with(LedgerBehind)
def repeated_batch_that_the_database_lost(world: World) -> Iterator[Stop]:
    old, new = world.driver(), world.driver()
    old.batch(0, decision("m_1"))
    new.sink.continue_from(_proof(old, 0), new.query_id, 0)
    lost = Continuation(old.query_id, 1, bytes(32))
    new.sink.start(new.query_id, new.run_id, repeated=Repeated(until=1, source=lost))
    yield Stop(lambda: new.batch(1), "a new checkpointLocation")
    yield from _continues_with(world.driver())


@stops_with(Fenced)
def newer_run(world: World) -> Iterator[Stop]:
    older = world.driver()
    older.batch(0, decision("m_1"))
    world.driver(query_id=older.query_id).batch(1, decision("m_2"))
    yield Stop(lambda: older.batch(2, decision("m_3")), "stop the other and restart")
    restarted = world.driver(query_id=older.query_id)
    assert isinstance(restarted.batch(2, decision("m_3")), Written)


@stops_with(Fenced)
def newer_claim(world: World) -> Iterator[Stop]:
    ours = world.driver()
    ours.batch(0, decision("m_1"))
    ours.sink.claim(ours.query_id)
    world.driver(query_id=ours.query_id).sink.claim(ours.query_id)
    yield Stop(lambda: ours.sink.start(ours.query_id, uuid4()), "stop the other and start")
    restarted = world.driver(query_id=ours.query_id)
    assert isinstance(restarted.batch(1, decision("m_2")), Written)


@stops_with(UnadoptedCheckpoint)
def stream_under_another_name(world: World) -> Iterator[Stop]:
    old = world.driver(stream="old")
    old.batch(0, decision("m_1"))
    old.sink.close()
    new = world.driver(stream="new", query_id=old.query_id)
    yield Stop(lambda: new.batch(1, decision("m_2")))
    assert isinstance(new.batch(1, decision("m_2")), Written)


@stops_with(UnadoptedCheckpoint)
def former_name_of_a_stream(world: World) -> Iterator[Stop]:
    old = world.driver()
    old.batch(0, decision("m_1"))
    old.sink.close()
    world.closed()
    _run(world, "holdfast stream rename payouts holds --reason TEXT", is_enough=True)
    yield Stop(lambda: old.batch(1, decision("m_2")), "stop the other", error=Fenced)
    restarted = world.driver(query_id=old.query_id)
    yield Stop(lambda: restarted.batch(1, decision("m_2")))
    assert isinstance(restarted.batch(1, decision("m_2")), Written)


@stops_with(UnadoptedCheckpoint)
def proof_of_a_batch_that_the_ledger_has_not(world: World) -> Iterator[Stop]:
    old, new = world.driver(), world.driver()
    old.batch(0, decision("m_1"))
    proof = _proof(old, 0)
    missing = replace(proof, batch_id=9)
    yield Stop(
        lambda: new.sink.continue_from(missing, new.query_id, 9),
        "continue from a batch that it has",
    )
    new.sink.continue_from(proof, new.query_id, 0)
    assert isinstance(new.batch(1, decision("m_2")), Written)


@stops_with(UnadoptedCheckpoint)
def proof_with_another_digest(world: World) -> Iterator[Stop]:
    old, new = world.driver(), world.driver()
    old.batch(0, decision("m_1"))
    wrong = replace(_proof(old, 0), digest=bytes(32))
    continue_from = new.sink.continue_from
    yield Stop(
        lambda: continue_from(wrong, new.query_id, 0),
        "was made from another stream or another database",
    )
    continue_from(_proof(old, 0), new.query_id, 0)
    assert isinstance(new.batch(1, decision("m_2")), Written)


@stops_with(UnadoptedCheckpoint)
def proof_of_a_query_adopted_no_more(world: World) -> Iterator[Stop]:
    old, new, late = world.driver(), world.driver(), world.driver()
    old.batch(0, decision("m_1"))
    proof = _proof(old, 0)
    new.sink.continue_from(proof, new.query_id, 0)
    continue_from = late.sink.continue_from
    yield Stop(
        lambda: continue_from(proof, late.query_id, 0),
        "Continue from a batch of that query",
    )
    continue_from(_proof(new, 0), late.query_id, 0)
    assert isinstance(late.batch(1, decision("m_2")), Written)


@stops_with(UnadoptedCheckpoint)
def proof_for_an_unknown_stream(world: World) -> Iterator[Stop]:
    old = world.driver()
    old.batch(0, decision("m_1"))
    proof, wrong, new = _proof(old, 0), world.driver(stream="pay"), world.driver()
    yield Stop(
        lambda: wrong.sink.continue_from(proof, new.query_id, 0),
        "Check the stream's name",
    )
    new.sink.continue_from(proof, new.query_id, 0)
    assert isinstance(new.batch(1, decision("m_2")), Written)


@stops_with(SchemaMismatch)
def database_without_the_schema(world: World) -> Iterator[Stop]:
    world.dsn = world.make_database(None)
    spark = world.driver(world.dsn)
    yield Stop(lambda: spark.batch(0, decision()))
    assert isinstance(spark.batch(0, decision()), Written)


@stops_with(SchemaMismatch)
def database_of_an_older_version(world: World) -> Iterator[Stop]:
    downgrade(world.dsn, "0030")
    spark = world.driver()
    yield Stop(lambda: spark.batch(0, decision()))
    assert isinstance(spark.batch(0, decision()), Written)


@stops_with(SchemaMismatch)
def user_without_the_role(world: World) -> Iterator[Stop]:
    user = conninfo_to_dict(world.app_dsn)["user"]
    world.db.execute(f'REVOKE holdfast_sink FROM "{user}"'.encode())
    spark = world.driver(world.app_dsn)
    yield Stop(lambda: spark.batch(0, decision()))
    assert isinstance(spark.batch(0, decision()), Written)
    spark.sink.close()


@stops_with(SchemaMismatch)
def privilege_that_was_revoked(world: World) -> Iterator[Stop]:
    spark = world.driver()
    world.db.execute("REVOKE INSERT ON holdfast.entry FROM holdfast_sink")
    yield Stop(lambda: spark.batch(0, decision()), "Restore what was revoked")
    world.db.execute("GRANT INSERT ON holdfast.entry TO holdfast_sink")
    assert isinstance(spark.batch(0, decision()), Written)


@stops_with(SchemaMismatch)
def column_that_is_missing(world: World) -> Iterator[Stop]:
    spark = world.driver()
    rows = table(decision())
    without = rows.drop_columns(["key"])
    yield Stop(lambda: spark.tables(0, without), "column 'key'")
    assert isinstance(spark.tables(0, rows), Written)


@stops_with(NotPrimary)
def server_that_is_read_only(world: World) -> Iterator[Stop]:
    standby = f"{world.dsn} options='-c default_transaction_read_only=on'"
    spark = world.driver(standby, timeouts=HASTY)
    yield Stop(lambda: spark.batch(0, decision()), "let the DSN name the primary")
    assert isinstance(world.driver(query_id=spark.query_id).batch(0, decision()), Written)


@stops_with(AccessDenied)
def database_that_nobody_has(world: World) -> Iterator[Stop]:
    spark = world.driver(make_conninfo(world.dsn, dbname="nowhere"))
    yield Stop(lambda: spark.batch(0, decision()), "Correct user, password or")
    assert isinstance(world.driver(query_id=spark.query_id).batch(0, decision()), Written)


@stops_with(SinkUnavailable)
def server_that_is_away(world: World) -> Iterator[Stop]:
    spark = world.driver(f"host={world.tmp_path} dbname=outbox", timeouts=HASTY)
    yield Stop(lambda: spark.batch(0, decision()), "restart the query")
    assert isinstance(world.driver(query_id=spark.query_id).batch(0, decision()), Written)


@stops_with(CheckpointUnreadable)
def checkpoint_that_cannot_be_read(world: World) -> Iterator[Stop]:
    spark = world.driver(checkpoint=str(world.tmp_path))
    (world.tmp_path / "metadata").mkdir()
    cure = "start again when its file system answers"
    yield Stop(lambda: spark.batch(0, decision()), cure)
    (world.tmp_path / "metadata").rmdir()
    checkpoint_files(world.tmp_path, spark.query_id, planned=0, committed=-1)
    assert isinstance(spark.batch(0, decision()), Written)


@stops_with(StageLost)
def stage_that_the_server_lost(world: World) -> Iterator[Stop]:
    spark = world.driver(staged=True)
    rows = table(decision())

    def run_all(stage: Stage) -> list[Summary]:
        summary = stage_rows(stage, 1, [rows])
        world.db.execute(f"TRUNCATE holdfast.stage_{stage.number}".encode())
        return [summary]

    lossy = partial(spark.sink.apply_staged, rows.schema, run_all)
    identity = Identity(spark.query_id, spark.run_id, 0)
    yield Stop(lambda: lossy(identity), "replays it when the query restarts")
    assert isinstance(spark.tables(0, rows), Written)


@stops_with(BatchTooLarge)
def batch_too_large_for_the_driver(world: World) -> Iterator[Stop]:
    spark = world.driver(path="driver")
    rows = table(decision())
    large = rows.take([0] * 1_000_001)
    yield Stop(lambda: spark.tables(0, large), "limit what the source reads")
    assert isinstance(spark.tables(0, rows), Written)


@stops_with(TooManyRefused)
def too_many_refused_rows(world: World) -> Iterator[Stop]:
    limited = world.driver(quarantine_limit=QuarantineLimit(rows=0))
    yield Stop(lambda: limited.batch(0, decision("")), "larger `quarantine_limit`")
    spark = world.driver(query_id=limited.query_id)
    assert isinstance(spark.batch(0, decision("")), Written)


@stops_with(CompanionFailed)
def companion_that_ends_the_transaction(world: World) -> Iterator[Stop]:
    wrong = world.driver(also=lambda connection, _rows: connection.rollback())
    yield Stop(lambda: wrong.batch(0, decision()), "leave COMMIT and ROLLBACK to")
    right = world.driver(query_id=wrong.query_id, also=lambda _connection, _rows: None)
    assert isinstance(right.batch(0, decision()), Written)


@stops_with(NotStreaming)
def call_outside_a_query(world: World) -> Iterator[Stop]:
    spark = world.driver()
    rows: Any = table(decision())
    yield Stop(lambda: spark.sink(rows, 0), "pass the sink to writeStream")
    assert isinstance(spark.tables(0, rows), Written)


@pytest.mark.parametrize("name", CASES)
def test_each_stop_ends_with_its_command_and_the_job_continues(world: World, name: str) -> None:
    error, case = CASES[name]
    for stop in case(world):
        with pytest.raises(SinkError) as raised:
            stop.work()
        assert type(raised.value) is (stop.error or error)
        message = str(raised.value)
        assert (stop.cure or "") in message
        commands = SHOWN.findall(message)
        assert len(commands) <= 1
        assert commands or stop.cure
        for command in commands:
            assert message.endswith(f"`{command}`.")
            _run(world, command, is_enough=stop.cure is None)


def test_every_error_of_the_sink_has_a_case() -> None:
    public = {value for name in sink.__all__ if isinstance(value := getattr(sink, name), type)}
    errors = {each for each in public if issubclass(each, SinkError)}
    assert {error for error, _ in CASES.values()} == errors - NO_CASE


def _run(world: World, command: str, *, is_enough: bool) -> None:
    if command.startswith("GRANT"):
        world.db.execute(command.encode())
        return
    words = shlex.split(command)[1:]
    answer = ["--yes"] if words[:2] in (["batch", "accept"], ["stream", "rename"]) else []
    done = world.holdfast(*words, *answer)
    # `db doctor` warns about the server of the tests.
    codes = (ExitCode.OK,) if is_enough else (ExitCode.OK, ExitCode.DEGRADED)
    assert done.returncode in codes, (command, done.stdout, done.stderr)


def _continues_with(new: Driver) -> Iterator[Stop]:
    yield Stop(lambda: new.batch(0, decision("m_9")), error=UnadoptedCheckpoint)
    assert isinstance(new.batch(0, decision("m_9")), Written)


def _proof(driver: Driver, batch_id: int) -> Continuation:
    proof = driver.sink.proof(driver.query_id, batch_id)
    assert proof is not None
    return proof

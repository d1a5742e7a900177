"""The job with its events and its checkpoint on a real HDFS: what a local path has, too.

One that moves from there, or from S3, to a local disk and back.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import psycopg
import pytest

from holdfast.sink import CheckpointBehind, CheckpointUnreadable, LedgerBehind, OutboxSink
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.source_offsets import without_files
from holdfast.spark_app.checkpoint_manager.folder import Folder
from holdfast.spark_app.checkpoint_manager.prune import pruned
from holdfast.spark_app.checkpoint_manager.restore import restored
from holdfast.spark_app.checkpoint_manager.trees import RemoteTree
from holdfast.spark_app.checkpoint_manager.verify import verified
from tests.support.command import holdfast
from tests.support.dispatch.sender import decision
from tests.support.job.driver import Driver
from tests.support.job.job_stream import lasting, published
from tests.support.job.jobs import Play, event
from tests.support.servers.hdfs import Hdfs, hdfs
from tests.support.servers.places import place
from tests.support.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.rest

FILES = [
    [event("e1", "12:02", 6_000_000), event("e2", "12:14", 100, "m_2")],
    [event("e3", "12:16:30", 1_000_000)],
    [event("e4", "12:40", -2_000_000)],
]
NEWEST = 3
"""The batch without rows that closes the last windows."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with hdfs(tmp_path_factory.mktemp("hdfs")) as started:
        yield started


@pytest.fixture(scope="module")
def made(cluster: Hdfs, shared_play: Play) -> Play:
    """A stream on HDFS that has read all files."""
    for number, lines in enumerate(FILES):
        content = b"".join(line + b"\n" for line in lines)
        cluster.put(f"/events/{number:03}.json", content, 1_700_000_000 + number)
    places = {"paths": (f"{cluster.uri}/events",), "checkpoint": f"{cluster.uri}/checkpoint"}
    play = replace(shared_play, options=places)
    play.command()
    return play


def test_job_on_hdfs_publishes_what_one_on_local_files_does(made: Play, play: Play) -> None:
    play.put(*FILES)
    play.command()
    decisions, windows, _ = published(made.dsn)
    assert [(merchant, type_) for merchant, type_, _ in decisions] == [
        ("m_1", "payout_hold.block"),
        ("m_1", "payout_hold.release"),
    ]
    assert windows
    assert published(made.dsn) == published(play.dsn)


def test_ledger_has_the_source_offsets_of_every_batch_and_the_checkpoint(
    made: Play, cluster: Hdfs
) -> None:
    with psycopg.connect(made.dsn) as db:
        batches = db.execute(
            "SELECT batch_id, source_offsets FROM holdfast.batch ORDER BY 1"
        ).fetchall()
        (checkpoint,) = db.execute("SELECT checkpoint FROM holdfast.stream").fetchone() or ("",)
    assert [batch_id for batch_id, _ in batches] == list(range(NEWEST + 1))
    for batch_id, offsets in batches:
        plan, files = without_files(offsets)
        assert plan == cluster.read(f"/checkpoint/offsets/{batch_id}").decode()
        names = [Path(row["path"]).name for row in files.get(0, [])]
        assert names == ([f"{batch_id:03}.json"] if batch_id < NEWEST else [])
    assert checkpoint == f"{cluster.uri}/checkpoint"


def _query_id(cluster: Hdfs) -> UUID:
    return UUID(json.loads(cluster.read("/checkpoint/metadata"))["id"])


def _start(spark: "SparkSession", dsn: str, checkpoint: str, query_id: UUID) -> None:
    with closing(OutboxSink(dsn, stream="payouts", checkpoint=checkpoint)) as sink:
        sink.use_session(spark)
        sink.start(query_id, uuid4())


@pytest.mark.usefixtures("made")
def test_database_and_checkpoint_of_different_moments_are_noticed(
    cluster: Hdfs, spark: "SparkSession", dsn: str
) -> None:
    query_id, checkpoint = _query_id(cluster), f"{cluster.uri}/checkpoint"
    driver = Driver(dsn, query_id=query_id, first_batch=NEWEST - 1)
    with closing(driver.sink):
        driver.batch(NEWEST - 1, decision("m_1"))
        with pytest.raises(LedgerBehind, match=f"{checkpoint} has finished batch {NEWEST}, but"):
            _start(spark, dsn, checkpoint, query_id)
        driver.batch(NEWEST, decision("m_2"))
        _start(spark, dsn, checkpoint, query_id)
        driver = Driver(dsn, query_id=query_id)
    with closing(driver.sink):
        driver.batch(NEWEST + 1, decision("m_3"))
        with pytest.raises(CheckpointBehind, match=f"{checkpoint} batch {NEWEST} is the newest"):
            _start(spark, dsn, checkpoint, query_id)


@pytest.mark.long
@pytest.mark.usefixtures("made")
def test_path_without_a_scheme_is_where_spark_finds_it(
    cluster: Hdfs, spark: "SparkSession"
) -> None:
    from holdfast.sink.session import files_of

    settings = spark.sparkContext._jsc.hadoopConfiguration()
    before = settings.get("fs.defaultFS")
    assert files_of(spark, "/checkpoint").location == "/checkpoint"
    settings.set("fs.defaultFS", cluster.uri)
    try:
        files = files_of(spark, "/checkpoint")
        assert files.location == f"{cluster.uri}/checkpoint"
        assert str(_query_id(cluster)) in (files.read("metadata") or "")
        assert {name for name in files.names("commits") if name.isdigit()} == {*"0123"}
        assert (files.read("gone"), files.names("gone")) == (None, [])
        assert files_of(spark, "file:/checkpoint").location == "/checkpoint"
    finally:
        settings.set("fs.defaultFS", before)


def test_unreadable_checkpoint_is_refused_before_the_epoch_moves(
    world: World, spark: "SparkSession"
) -> None:
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    settings.set("ipc.client.connect.max.retries", "0")
    try:
        with pytest.raises(CheckpointUnreadable) as raised:
            _start(spark, world.dsn, "hdfs://127.0.0.1:1/checkpoint", uuid4())
    finally:
        settings.unset("ipc.client.connect.max.retries")
    message = str(raised.value)
    assert message.startswith("the checkpoint hdfs://127.0.0.1:1/checkpoint cannot be compared")
    assert "Connection refused). Nothing was written" in message
    assert world.db.execute("SELECT name FROM holdfast.stream").fetchall() == []
    with pytest.raises(CheckpointUnreadable, match='No FileSystem for scheme "nowhere"'):
        _start(spark, world.dsn, "nowhere://host/checkpoint", uuid4())


@pytest.mark.long
def test_file_system_whose_jar_is_missing_ends_the_job_at_once(made: Play) -> None:
    from holdfast.spark_app.lifecycle.failure import QueryFailed

    with pytest.raises(QueryFailed) as raised:
        made.command(checkpoint="abfss://box@account.dfs.core.windows.net/checkpoint")
    assert raised.value.failure.permanent
    message = str(raised.value)
    assert "Class org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem not found" in message
    assert "Nothing is lost" in message
    assert "spark.jars" in message


@pytest.mark.long
@pytest.mark.usefixtures("made")
def test_copy_of_a_checkpoint_on_hdfs_is_verified_and_listed(cluster: Hdfs, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    cluster.copy("/checkpoint", copy)
    where = ("job", "checkpoints")
    verified = holdfast(*where, "verify", "--checkpoint", str(copy), "--json", process=False)
    assert verified.returncode == 0, verified.stdout
    listed = holdfast(*where, "list", "--checkpoint", str(copy), "--json", process=False)
    batches = [each["batch_id"] for each in json.loads(listed.stdout)["batches"]]
    assert sorted(batches) == list(range(NEWEST + 1))
    remote = ("--checkpoint", f"{cluster.uri}/checkpoint", "--json")
    option = ("--conf", "spark.hadoop.dfs.client.use.datanode.hostname=false")
    there = json.loads(holdfast(*where, "list", *remote, *option).stdout)
    assert there["batches"][0].keys() == json.loads(listed.stdout)["batches"][0].keys()
    assert [each["batch_id"] for each in there["batches"]] == batches
    assert there["query_id"] == json.loads(listed.stdout)["query_id"]


@pytest.mark.long
def test_checkpoint_on_hdfs_goes_back_and_is_pruned_there(made: Play, cluster: Hdfs) -> None:
    before = published(made.dsn)

    def opened() -> Folder:
        return Folder(RemoteTree(made.spark, f"{cluster.uri}/checkpoint"))

    back = restored(opened(), 1, made.dsn, dry_run=False)
    assert back["repeated"]["last_batch_id"] == NEWEST
    assert "holdfast-restore.json" in cluster.names("/checkpoint/removed-1")
    made.command()
    assert published(made.dsn) == before
    answer, code = verified(opened())
    assert code == ExitCode.OK, answer
    assert pruned(opened(), 1, 0, dry_run=False)["removed_folders"] == ["removed-1"]
    assert verified(opened())[1] == ExitCode.OK
    assert cluster.names("/checkpoint/removed-1") == []


@pytest.mark.long
def test_state_is_read_saved_and_continued_on_hdfs(made: Play, cluster: Hdfs) -> None:
    from holdfast.spark_app.inspection.answer import Question, ask
    from holdfast.spark_app.runtime import session

    saved = f"{cluster.uri}/savepoint"
    spark = session.fix(made.spark.newSession())
    answer = ask(spark, Question(f"{cluster.uri}/checkpoint", "m_1"))
    assert (answer.document["batch_id"], answer.document["held"]) == (NEWEST, False)
    made.save(f"{cluster.uri}/checkpoint", saved)
    assert "manifest.json" in cluster.names("/savepoint")
    line = event("e5", "12:50", 9_000_000)
    cluster.put("/events/003.json", line + b"\n", 1_700_000_003)
    cluster.put("/events/004.json", event("e6", "13:20", 1) + b"\n", 1_700_000_004)
    made.command(checkpoint=f"{cluster.uri}/next", savepoint=saved)
    decisions = [(type_, data["window_end"]) for _, type_, data in published(made.dsn)[0]]
    assert decisions[2:] == [
        ("payout_hold.block", "2024-11-04T13:00:00Z"),
        ("payout_hold.release", "2024-11-04T13:15:00Z"),
    ]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["hdfs", "s3"])
def test_stream_moves_from_a_store_to_a_disk_and_back(
    spark: "SparkSession",
    make_database: Callable[[str | None], str],
    template_database: str,
    tmp_path: Path,
    kind: str,
) -> None:
    """By savepoints on both; and its checkpoint goes back by a batch on the store."""
    unmoved, moved = (
        Play(spark, make_database(template_database), tmp_path / name)
        for name in ("unmoved", "moved")
    )
    files = [*FILES, [event("e5", "12:50", 9_000_000), event("e6", "13:20", 1, "m_2")]]

    def read(number: int, checkpoint: str, savepoint: str | None = None) -> None:
        for each in (unmoved, moved):
            each.folder.mkdir(exist_ok=True)
            each.put(files[number], first=number)
        unmoved.command()
        moved.command(checkpoint=checkpoint, savepoint=savepoint)

    with place(kind, tmp_path, spark) as uri:
        first, again = f"{uri}/first", f"{uri}/again"
        on_disk = str(tmp_path / "on-disk")
        read(0, first)
        read(1, first)
        moved.save(first, f"{uri}/saved")
        read(2, on_disk, f"{uri}/saved")
        moved.save(on_disk, str(tmp_path / "saved"))
        read(3, again, str(tmp_path / "saved"))

        def opened() -> Folder:
            return Folder(RemoteTree(spark, again))

        assert verified(opened())[1] == ExitCode.OK
        assert restored(opened(), 0, moved.dsn, dry_run=False)["repeated"]["last_batch_id"] > 0
        moved.command(checkpoint=again)
        assert verified(opened())[1] == ExitCode.OK
        assert lasting(moved.dsn) == lasting(unmoved.dsn)
    assert len(published(moved.dsn)[0]) == 4

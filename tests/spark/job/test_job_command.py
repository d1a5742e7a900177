"""`holdfast job run` as a process: its options, its end and its metrics."""

import os
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import psycopg
import pyspark
import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast import spark_app
from holdfast.deploy.local.ports import free_port
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.failpoints import ENVIRONMENT
from tests.support.command import holdfast
from tests.support.job.job_process import (
    QUICK,
    JobProcess,
    check_ledger,
    check_stopped,
    command,
    job_process,
)
from tests.support.job.jobs import Play, at, event, forget_commit, patiently, put
from tests.support.processes import matching
from tests.support.world import World

LINES = [event("e1", "12:01", 6_000_000)]
NEXT = [event("e2", "12:20", 1)]

MISTAKES = {
    "no such directory": (["--path", "/nowhere"], 2, "there is no directory /nowhere"),
    "no checkpoint": (["--checkpoint", ""], 2, "--checkpoint '' names no directory"),
    "no policy": (["--policy", "/nowhere.toml"], 2, "/nowhere.toml"),
    "a stream of another shape": (["--stream", "Pay outs"], 2, "is not a stream name"),
    "a duration in words": (["--late-cutoff", "soon"], 2, "'soon' is not a duration"),
    "an impatient idle clock": (["--idle-timeout", "300ms"], 2, "two times the --trigger-interval"),
    "ticks that Spark would not find": (
        ["--idle-timeout", "1m", "--checkpoint", "{folder}/checkpoint[1]"],
        2,
        "as a pattern",
    ),
    "the same directory twice": (["--path", "{folder}/events/"], 2, "would be read twice"),
    "a size in words": (["--state-memory", "plenty"], 2, "'plenty' is not a size"),
    "an address of another machine": (
        ["--metrics-port", "9464", "--metrics-host", "192.0.2.1"],
        2,
        "the metrics cannot be served on 192.0.2.1:9464",
    ),
    "a setting that is fixed": (
        ["--conf", "spark.sql.session.timeZone=CET"],
        2,
        "--conf spark.sql.session.timeZone is fixed at UTC",
    ),
    "nobody listens": (["--dsn", "postgresql://me:pw@127.0.0.1:1/x"], 1, "SinkUnavailable"),
    "an object store": (["--checkpoint", "oss://bucket/payouts"], 2, "(oss), which is refused"),
    "no DSN": (["--dsn", "what?"], 2, "the DSN cannot be read"),
}


SET_UP = {"an address of another machine", "nobody listens"}
"""What the process is told once it has set up its log."""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_wrong_option_is_one_line_before_the_start(world: World, mistake: str) -> None:
    options, exit_code, message = MISTAKES[mistake]
    put(world.tmp_path / "events", 0, LINES)
    options = [option.format(folder=world.tmp_path) for option in options]
    done = holdfast(
        "job", *command(world.tmp_path, *options), dsn=world.dsn, process=mistake in SET_UP
    )
    assert done.returncode == exit_code, done.stderr
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert ":pw@" not in done.stderr
    assert not (world.tmp_path / "checkpoint").exists()


@pytest.mark.rest
def test_file_is_read_whatever_the_locale_of_the_job(world: World) -> None:
    """Cron, systemd and small containers have no locale; Java would not see the file."""
    put(world.tmp_path / "events", 0, LINES)
    (world.tmp_path / "events" / "000.json").rename(world.tmp_path / "events" / "zürich-0001.jsonl")
    put(world.tmp_path / "events", 1, NEXT)
    options = (*QUICK, "--available-now", "--max-files-per-trigger", "9")
    with job_process(world.tmp_path, world.dsn, *options, environment={"LC_ALL": "POSIX"}) as job:
        assert job.wait() == 0, job.said
    windows = world.db.execute("SELECT exposure_minor FROM holdfast.exposure_window").fetchall()
    assert windows == [(6_000_000,)]


def test_an_old_schema_and_a_machine_without_java_are_one_line(
    world: World, make_database: Callable[[str | None], str]
) -> None:
    put(world.tmp_path / "events", 0, LINES)
    empty = holdfast("job", *command(world.tmp_path), dsn=make_database(None))
    assert (empty.returncode, len(empty.stderr.strip().splitlines())) == (1, 1)
    assert "holdfast db upgrade" in empty.stderr
    bare = holdfast(
        "job",
        *command(world.tmp_path),
        dsn=world.dsn,
        environment={"JAVA_HOME": str(world.tmp_path), "PATH": ""},
    )
    assert (bare.returncode, len(bare.stderr.strip().splitlines())) == (1, 1)
    assert "holdfast local env" in bare.stderr


JAVA = """#!/bin/sh
case "$*" in
    {answered}) echo 'openjdk version "17.0.1"' >&2 ;;
    *) touch "$0.waits"; exec sleep 600 ;;
esac
"""


@pytest.mark.parametrize("answered", ["-version", "nothing"])
def test_stop_while_spark_starts_is_no_java_failure(world: World, answered: str) -> None:
    """On a Java that is asked for its version, or to begin, and takes its time."""
    put(world.tmp_path / "events", 0, LINES)
    java = world.tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(JAVA.format(answered=answered))
    java.chmod(0o755)
    with job_process(
        world.tmp_path, world.dsn, environment={"JAVA_HOME": str(world.tmp_path)}
    ) as job:
        job.until(java.with_name("java.waits").exists)
        job.kill(signal.SIGTERM)
        assert job.wait() == 0, job.said
        check_stopped(job, "SIGTERM")
    assert "stopped while Spark was starting" in job.said
    assert "holdfast local env" not in job.said
    assert not (world.tmp_path / "checkpoint").exists()


def test_ctrl_c_ends_the_job_after_the_running_batch(world: World) -> None:
    """SIGTERM: see `test_running_job_is_read_and_continues`.

    With Spark's default file manager, Hadoop starts `readlink` as a program for each file of the
    checkpoint, which takes longer than a small batch.
    """
    put(world.tmp_path / "events", 0, LINES)
    put(world.tmp_path / "events", 1, NEXT)
    looks = world.tmp_path / "looks.txt"
    path = {"PATH": f"{_counting('readlink', looks)}:{os.environ['PATH']}"}
    with job_process(world.tmp_path, world.dsn, *QUICK, environment=path) as job:
        job.until(lambda: "batch=0 " in job.said)
        job.kill(signal.SIGINT)  # Ctrl-C reaches everything that the terminal started
        assert job.wait() == 0, job.said
        check_stopped(job, "SIGINT")
    check_ledger(world.db, world.tmp_path / "checkpoint")
    assert not looks.exists() or "/checkpoint/offsets/" not in looks.read_text()


def _counting(program: str, log: Path) -> Path:
    """Return a directory with a program that notes its arguments before it does its work."""
    counting = log.parent / "programs" / program
    counting.parent.mkdir()
    counting.write_text(
        f'#!/bin/sh\necho "$@" >>{log}\nPATH={os.environ["PATH"]} exec {program} "$@"\n'
    )
    counting.chmod(0o755)
    return counting.parent


SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
MAIN = str(Path(spark_app.__file__).parent / "__main__.py")
STANDING = "S7=stop@1"
"""The process of the job stops itself within the transaction of its first batch."""


@pytest.mark.rest
def test_sigterm_to_spark_submit_ends_the_same_job_after_the_running_batch(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the JVM gets the signal, in the middle of a batch, as the first process of a pod."""
    monkeypatch.delenv("JAVA_HOME", raising=False)  # the Java of the machine, if it has one
    put(world.tmp_path / "events", 0, LINES)
    put(world.tmp_path / "events", 1, NEXT)
    with job_process(
        world.tmp_path,
        world.dsn,
        *("--trigger-interval", "100ms"),
        program=(SUBMIT, "--master", "local[2]", MAIN),
        environment={ENVIRONMENT: STANDING},
    ) as job:
        job.until(lambda: _standing(job))
        job.process.terminate()
        for python in _standing(job):
            python.resume()
        job.wait()
        # spark-submit hands on what the program says on either stream as its own stdout.
        assert job.process.stdout
        output = job.process.stdout.read().decode()
    assert "Spark's JVM got a signal: stopping after the running batch" in output
    assert "batch=0 outcome=written rows=1 " in output
    assert "Traceback" not in output + job.said
    # Of Spark's own log nothing but its start.
    assert "MicroBatchExecution" not in job.said
    check_ledger(world.db, world.tmp_path / "checkpoint")


def _standing(job: JobProcess) -> list[psutil.Process]:
    children = psutil.Process(job.process.pid).children()
    return matching(children, lambda each: each.status() == psutil.STATUS_STOPPED)


PHASES = ("plan", "load", "state", "upload", "commit", "total")
"""Of a checkpoint."""

Samples = dict[str, float]
"""By name and labels but the stream: `late_rows_total late`."""


def _scrape(port: int) -> Samples:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels["stream"] == "payouts"
            labels = [sample.labels[name] for name in sorted(sample.labels) if name != "stream"]
            found[" ".join([sample.name.removeprefix("holdfast_job_"), *labels])] = sample.value
    return found


def _measured(play: Play) -> Samples:
    """Run the job once as the command does, and scrape it before the process would end."""
    from holdfast.spark_app.reporting.batch_counts import BatchCounter
    from holdfast.spark_app.reporting.metrics import Metrics, served

    metrics, port = Metrics("payouts"), free_port()
    counter = BatchCounter(metrics.done)
    with (
        play.attempt(sink={"select": counter.select}, state_memory_mb=77) as run,
        served(metrics, "127.0.0.1", port),
    ):
        patiently(lambda: run(counter=counter, metrics=metrics))
        return _scrape(port)


def _counted(db: psycopg.Connection, query: str) -> Any:
    return dict(db.execute(query).fetchall())  # type: ignore[arg-type]  # two columns


def test_metrics_say_what_was_written(
    play: Play, db: psycopg.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    events = play.folder / "events"
    put(events, 0, [event("e1", "12:01", 6_000_000), event("e2", "12:02", 1), b"no event"])
    put(events, 1, [event("e1", "12:01", 6_000_000), event("e3", "12:40", 1)])
    put(
        events,
        2,
        [event("e4", "12:03", 1), event("e5", "12:41", 1), event("e6", "12:41", 1, "m_2")],
    )
    put(events, 3, [event("e7", "12:42", 1, occurred_at="2099-01-01T00:00:00Z"), b"", b"{}"])
    contents = _measured(play)

    assert contents["batches_total written"] == 4
    assert contents["rows_total"] == 3 + 2 + 3 + 3
    late = _counted(db, "SELECT reason::text, count(*) FROM holdfast.late_event GROUP BY 1")
    assert late == {"late": 1, "duplicate": 1, "future_dated": 1}
    assert late == {reason: contents[f"late_rows_total {reason}"] for reason in late}
    refused = _counted(db, "SELECT reason::text, count(*) FROM holdfast.quarantine GROUP BY 1")
    assert sum(refused.values()) == 2
    assert refused == {reason: contents[f"quarantined_rows_total {reason}"] for reason in refused}
    [[entries, windows]] = db.execute(
        "SELECT (SELECT count(*) FROM holdfast.entry),"
        " (SELECT sum(revision) FROM holdfast.exposure_window)"
    ).fetchall()
    assert (contents["entries_total"], contents["windows_total"]) == (entries, windows)

    reached = at("12:41") - timedelta(seconds=30)
    assert contents["watermark_timestamp_seconds"] == reached.timestamp()
    began = contents["last_batch_timestamp_seconds"]
    assert contents["watermark_lag_seconds"] == pytest.approx(began - reached.timestamp())
    assert contents["batch_duration_seconds_count triggerExecution"] == 4
    assert contents["state_memory_bytes"] > 0
    assert contents["state_file_bytes"] > 0
    assert 0 < contents["last_commit_age_seconds"] < 60
    name = "checkpoint_duration_seconds"
    counts = {phase: contents[f"{name}_count {phase}"] for phase in PHASES}
    assert counts == dict.fromkeys(PHASES, 4)
    spent = {phase: contents[f"{name}_sum {phase}"] for phase in PHASES}
    assert all(spent.values())
    assert spent["total"] == pytest.approx(spent["plan"] + spent["state"] + spent["commit"])
    assert spent["upload"] <= spent["state"]
    assert spent["total"] < contents["batch_duration_seconds_sum triggerExecution"]
    assert contents["spark_dropped_rows"] == 0
    assert contents["state running"] == 1
    assert "late=1 future_dated=0 repeated=0 settled=0 " in capsys.readouterr().err


@pytest.mark.rest
def test_a_replayed_batch_is_not_counted_a_second_time(play: Play) -> None:
    play.put([event("e1", "12:01", 6_000_000)], [event("e2", "12:20", 1)])
    first = _measured(play)
    assert (first["batches_total written"], first["entries_total"]) == (3, 1)
    forget_commit(play.checkpoint, 2)
    again = _measured(play)
    assert again["batches_total replayed"] == 1
    assert (again["entries_total"], again["windows_total"]) == (0, 0)


@pytest.mark.rest
def test_the_bound_of_the_state_reaches_rocksdb(play: Play) -> None:
    from holdfast.spark_app.runtime import session

    play.put([event("e1", "12:01", 1)])
    assert _measured(play)["state_memory_bytes"] > 0
    jvm: Any = play.spark._jvm
    package = jvm.org.apache.spark.sql.execution.streaming.state
    # What Spark makes of the settings, and that its stores live under that bound.
    spark: Any = session.bound(play.spark.newSession(), 77)
    no_options = getattr(package.StateStoreConf, "$lessinit$greater$default$2")()
    settings = package.StateStoreConf(spark._jsparkSession.sessionState().conf(), no_options)
    read = package.RocksDBConf.apply(settings)
    assert (read.boundedMemoryUsage(), read.totalMemoryUsageMB()) == (True, 77)
    assert package.RocksDBMemoryManager.getNumRocksDBInstances(True) >= 2


@pytest.mark.rest
def test_rows_dropped_by_spark_end_the_job(play: Play) -> None:
    """A query that does what the job avoids: its watermark column reaches a stateful operator."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

    from holdfast.spark_app.reporting.progress import refuse_dropped_rows

    play.put(
        [event("e1", "12:30", 1)],
        [event("e2", "12:30", 1)],
        [event("e3", "12:01", 1), event("e4", "12:01", 1)],
    )
    query = (
        play.spark.readStream.option("maxFilesPerTrigger", 1)
        .schema("event_id string, occurred_at timestamp")
        .json(str(play.folder / "events"))
        .withWatermark("occurred_at", "1 minute")
        .groupBy(F.window("occurred_at", "1 minute"))
        .count()
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(play.checkpoint))
        .foreachBatch(lambda df, _: df.toArrow())
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(240)
    finally:
        query.stop()
    progress = next(each for each in query.recentProgress if each.numInputRows == 2)
    refuse_dropped_rows(query.recentProgress[0])
    with pytest.raises(CommandError, match=r"^Spark dropped 1 row of batch"):
        refuse_dropped_rows(progress)

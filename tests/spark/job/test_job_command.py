"""`holdfast job run` and `spark-submit` as a person starts, stops and mistypes them."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import psycopg
import pyspark
import pytest

from holdfast import spark_app
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
from tests.support.job.jobs import event, put
from tests.support.processes import matching

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
    "an object store": (["--checkpoint", "s3a://bucket/payouts"], 2, "(s3a), which is refused"),
    "no DSN": (["--dsn", "what?"], 2, "the DSN cannot be read"),
}


SET_UP = {"an address of another machine", "nobody listens"}
"""What the process is told once it has set up its log."""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_before_anything_is_started(
    mistake: str, dsn: str, tmp_path: Path
) -> None:
    options, exit_code, message = MISTAKES[mistake]
    put(tmp_path / "events", 0, LINES)
    options = [option.format(folder=tmp_path) for option in options]
    done = holdfast("job", *command(tmp_path, *options), dsn=dsn, process=mistake in SET_UP)
    assert done.returncode == exit_code, done.stderr
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert ":pw@" not in done.stderr
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.rest
def test_file_is_read_whatever_the_locale_of_the_job(
    dsn: str, db: psycopg.Connection, tmp_path: Path
) -> None:
    """Cron, systemd and small containers have no locale; Java would not see the file."""
    put(tmp_path / "events", 0, LINES)
    (tmp_path / "events" / "000.json").rename(tmp_path / "events" / "zürich-0001.jsonl")
    put(tmp_path / "events", 1, NEXT)
    options = (*QUICK, "--available-now", "--max-files-per-trigger", "9")
    with job_process(tmp_path, dsn, *options, environment={"LC_ALL": "POSIX"}) as job:
        assert job.wait() == 0, job.said
    windows = db.execute("SELECT exposure_minor FROM holdfast.exposure_window").fetchall()
    assert windows == [(6_000_000,)]


def test_an_old_schema_and_a_machine_without_java_are_one_line(
    make_database: Callable[[str | None], str], dsn: str, tmp_path: Path
) -> None:
    put(tmp_path / "events", 0, LINES)
    empty = holdfast("job", *command(tmp_path), dsn=make_database(None))
    assert (empty.returncode, len(empty.stderr.strip().splitlines())) == (1, 1)
    assert "holdfast db upgrade" in empty.stderr
    bare = holdfast(
        "job", *command(tmp_path), dsn=dsn, environment={"JAVA_HOME": str(tmp_path), "PATH": ""}
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
def test_stop_while_spark_starts_is_no_java_failure(
    dsn: str, tmp_path: Path, answered: str
) -> None:
    """On a Java that is asked for its version, or to begin, and takes its time."""
    put(tmp_path / "events", 0, LINES)
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(JAVA.format(answered=answered))
    java.chmod(0o755)
    with job_process(tmp_path, dsn, environment={"JAVA_HOME": str(tmp_path)}) as job:
        job.until(java.with_name("java.waits").exists)
        job.kill(signal.SIGTERM)
        assert job.wait() == 0, job.said
        check_stopped(job, "SIGTERM")
    assert "stopped while Spark was starting" in job.said
    assert "holdfast local env" not in job.said
    assert not (tmp_path / "checkpoint").exists()


def test_ctrl_c_ends_the_job_after_the_running_batch(
    dsn: str, db: psycopg.Connection, tmp_path: Path
) -> None:
    """SIGTERM: see `test_running_job_is_read_and_goes_on`.

    With Spark's default file manager, Hadoop starts `readlink` as a program for each file of the
    checkpoint, which takes longer than a small batch.
    """
    put(tmp_path / "events", 0, LINES)
    put(tmp_path / "events", 1, NEXT)
    looks = tmp_path / "looks.txt"
    path = {"PATH": f"{_counting('readlink', looks)}:{os.environ['PATH']}"}
    with job_process(tmp_path, dsn, *QUICK, environment=path) as job:
        job.until(lambda: "batch=0 " in job.said)
        job.kill(signal.SIGINT)  # Ctrl-C reaches everything that the terminal started
        assert job.wait() == 0, job.said
        check_stopped(job, "SIGINT")
    check_ledger(db, tmp_path / "checkpoint")
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
    dsn: str, db: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the JVM gets the signal, in the middle of a batch, as the first process of a pod."""
    monkeypatch.delenv("JAVA_HOME", raising=False)  # the Java of the machine, if it has one
    put(tmp_path / "events", 0, LINES)
    put(tmp_path / "events", 1, NEXT)
    db.execute("LISTEN holdfast_doorbell")
    with job_process(
        tmp_path,
        dsn,
        *("--trigger-interval", "100ms", "--doorbell"),
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
    check_ledger(db, tmp_path / "checkpoint")
    assert [notify.channel for notify in db.notifies(timeout=10, stop_after=1)] != []


def _standing(job: JobProcess) -> list[psutil.Process]:
    children = psutil.Process(job.process.pid).children()
    return matching(children, lambda each: each.status() == psutil.STATUS_STOPPED)

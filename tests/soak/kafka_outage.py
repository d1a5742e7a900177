"""A job on a topic: its driver dies with a planned batch, all fall silent, the broker goes away.

Real: Kafka, Spark, Postgres, each a process of its own.
"""

import re
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.failpoints import ENVIRONMENT
from tests.support.job.jobs import ends, event, newest
from tests.support.kafka.fixtures import staged_or_skip
from tests.support.kafka.job import topic_process
from tests.support.kafka.server import KafkaServer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1500)]

WINDOW = timedelta(minutes=15)
QUICKLY_AWAY = (
    *("--kafka-option", "kafka.default.api.timeout.ms=4000"),
    *("--kafka-option", "kafka.request.timeout.ms=2000"),
)
"""Options with which a broker that is away is noticed within seconds."""

RESTART = re.compile(r"^restart=(\d+) .*", re.MULTILINE)
BATCHES = "SELECT count(*) FROM holdfast.batch"


def _event(event_id: str, occurred_at: datetime, amount: int, merchant: str) -> bytes:
    moment = occurred_at.isoformat().replace("+00:00", "Z")
    return event(event_id, "12:00", amount, merchant, occurred_at=moment)


def _end(checkpoint: Path, topic: str, log: str = "commits") -> dict[int, int]:
    """Where the newest batch ends that Spark has recorded, or planned."""
    return ends(checkpoint, topic, newest(checkpoint, log))


def test_topic_continues_after_kill_silence_and_outage_without_skips(
    kafka: KafkaServer, dsn: str, db: psycopg.Connection, tmp_path: Path
) -> None:
    staged_or_skip("connector")
    topic, checkpoint = kafka.make_topic(2), tmp_path / "payouts"
    # A window that has just ended on the clock, and no event says so.
    now = datetime.now(UTC) - timedelta(seconds=45)
    ended = now - (now - datetime(2026, 1, 1, tzinfo=UTC)) % WINDOW
    before, after = ended - timedelta(seconds=60), ended + timedelta(seconds=5)
    slow = _event("slow", ended - timedelta(hours=1), 1, "m_2")
    kafka.produce(topic, [_event("e1", before, 6_000_000, "m_1"), _event("e2", after, 1, "m_2")])
    kafka.produce(topic, [_event("e3", before, 1, "m_2"), slow], partition=1)

    # Two partitions, two records a batch; the second batch is written and not recorded.
    one_by_one = ("--max-offsets-per-trigger", "2")
    with topic_process(
        *(tmp_path, dsn, kafka.bootstrap_servers, topic, *one_by_one),
        environment={ENVIRONMENT: "S8=kill@2"},
    ) as job:
        assert job.wait() == -signal.SIGKILL, job.said
    assert (newest(checkpoint, "offsets"), newest(checkpoint, "commits")) == (1, 0)
    planned = _end(checkpoint, topic, "offsets")
    assert planned == {0: 2, 1: 2}

    kafka.produce(topic, [_event("e4", after, 1, "m_2")])
    kafka.produce(topic, [slow.replace(b"slow", b"slower")], partition=1)
    clock = ("--idle-timeout", "5s", *QUICKLY_AWAY)
    with topic_process(tmp_path, dsn, kafka.bootstrap_servers, topic, *clock) as job:
        # The batch of the plan again, and then what came meanwhile: one batch, not one by one.
        job.until(lambda: _end(checkpoint, topic) == {0: 3, 1: 3})
        # Both partitions are silent, and the broker says so: a tick closes the window.
        job.until(lambda: db.execute("SELECT FROM holdfast.entry").fetchone() is not None)
        job.until(lambda: " idle=1" in job.said)
        assert "batch=1 outcome=replayed rows=2 " in job.said
        late = db.execute("SELECT event_id, reason::text FROM holdfast.late_event ORDER BY 1")
        # Behind the other partition by more than the delay and the cutoff.
        assert [row for row in late if row[0] == "slower"] == [("slower", "late")]

        kafka.broker.kill()
        job.until(lambda: len(RESTART.findall(job.said)) >= 1)
        written = db.execute(BATCHES).fetchone()
        job.until(lambda: len(RESTART.findall(job.said)) >= 2)
        # A broker that is away is not silent.
        assert db.execute(BATCHES).fetchone() == written
        for restart in RESTART.finditer(job.said):
            assert kafka.bootstrap_servers in restart[0] or "broker" in restart[0].lower()
        kafka.broker.start()
        for partition in (0, 1):
            lines = [_event(f"n{partition}", datetime.now(UTC), 1, f"m_{partition}")]
            kafka.produce(topic, lines, partition=partition)
        job.until(lambda: _end(checkpoint, topic) == {0: 4, 1: 4})
        job.kill(signal.SIGTERM)
        assert job.wait() == ExitCode.OK, job.said
    assert "Traceback" not in job.said
    [(entries, types)] = db.execute("SELECT count(*), min(type) FROM holdfast.entry").fetchall()
    assert (entries, types) == (1, "payout_hold.block")

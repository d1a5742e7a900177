"""What the job does with rows that are wrong, late, dated ahead or sent twice: nothing is lost."""

import os
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.spark_app.input.broker import compiled
from holdfast.spark_app.input.sources import Kafka
from holdfast.spark_app.lifecycle.failure import QueryFailed
from tests.support.job.jobs import Play, event, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BAD = {
    b'{"event_id": "cut off", "merch': "malformed",
    b"not json at all": "malformed",
    b'["event_id", "e1"]': "malformed",
    event("e1", "12:01", 7_000_000) + event("e2", "12:01", 7_000_000): "malformed",
    b'{"event_id": "\xff\xfe"}': "malformed",
    b"\x00": "malformed",
    event("b1", "12:01", 1, merchant=None): "missing_merchant",
    event("", "12:01", 1): "missing_event_id",
    event("b2", "12:01", 1, type=None): "missing_type",
    event("b3", "12:01", None): "missing_amount",
    event("b4", "12:01", 1, occurred_at=None): "missing_time",
    event("b5\x00", "12:01", 1): "bad_text",
    event("b6", "12:01", 1, merchant="m\x07"): "bad_text",
    event("b7", "12:01", float("nan")): "bad_amount",
    event("b8", "12:01", 1.5): "bad_amount",
    event("b9", "12:01", "1"): "bad_amount",
    event("b10", "12:01", 2**63): "amount_out_of_range",
    event("b11", "12:01", 10**15 + 1): "amount_out_of_range",
    event("b12", "12:01", 1, occurred_at="2024-11-04T12:01:00"): "bad_time",
    event("b13", "12:01", 1, occurred_at="9999-12-31T23:59:59Z"): "time_out_of_range",
    event("b14", "12:01", 1, occurred_at="1924-11-04T12:01:00Z"): "time_out_of_range",
    event("b15", "12:01", 1, currency="EUR"): "wrong_currency",
    event("b16", "12:01", 1, merchant="m_eur"): "wrong_currency",
    # Valid in everything but the currency: the one kind that could move the watermark.
    event("b17", "18:00", 1, currency="GBP"): "wrong_currency",
}


def _ahead(**by: int) -> str:
    return f"{datetime.now(UTC) + timedelta(**by):%Y-%m-%dT%H:%M:%SZ}"


@pytest.mark.guarantee(7)
def test_bad_rows_are_quarantined_with_a_reason_and_the_rest_is_written(
    play: Play, db: psycopg.Connection
) -> None:
    good = [event("g1", "12:01", 6_000_000), b"", event("g2", "12:02", 5, merchant="m_2"), b"  "]
    play.put([*good, *BAD], [event("g3", "12:20", 0, merchant="m_3")])
    progress = play.run()

    reasons = db.execute("SELECT reason::text, detail, row FROM holdfast.quarantine").fetchall()
    assert Counter(reason for reason, _, _ in reasons) == Counter(BAD.values())
    assert all(detail and row for _, detail, row in reasons)
    counts = db.execute("""
        SELECT sum(row_count), sum(entry_count), sum(quarantined_count) FROM holdfast.batch
    """).fetchone()
    assert counts == (len(BAD) + 1, 1, len(BAD))
    windows = db.execute("""
        SELECT merchant_id, exposure_minor FROM holdfast.exposure_window ORDER BY 1
    """).fetchall()
    assert windows == [("m_1", 6_000_000), ("m_2", 5)]
    # The wrong-currency row of 18:00 moved nothing: the highest plausible time is 12:20.
    assert progress[-1].eventTime["watermark"] == "2024-11-04T12:19:30.000Z"


@pytest.mark.rest
def test_a_file_is_read_whatever_its_age_and_its_directory(
    play: Play, db: psycopg.Connection
) -> None:
    events = play.folder / "events"
    put(events, 0, [event("e0", "12:00", 1)])
    # Oldest first over all directories: the e1 that counts is the one of 10.
    put(events / "m", 1, [event("e1", "12:01", 10)])
    put(events, 2, [event("e1", "12:01", 900)])
    put(events / ".part", 3, [event("hidden", "12:01", 5_000)])
    put(events / "_part", 3, [event("hidden", "12:01", 5_000)])
    play.run()
    # An archive that is unpacked, into directories that look like columns.
    put(events / "date=2024-11-04", 4, [event("e2", "12:02", 100)])
    old = datetime(1980, 1, 1, tzinfo=UTC).timestamp()
    os.utime(events / "date=2024-11-04" / "004.json", (old, old))
    play.run()
    put(events, 5, [event("e3", "12:20", 0, merchant="m_2")])
    play.run()
    windows = db.execute("SELECT merchant_id, exposure_minor FROM holdfast.exposure_window")
    assert windows.fetchall() == [("m_1", 111)]
    late = db.execute("SELECT event_id, amount_minor, reason::text FROM holdfast.late_event")
    assert late.fetchall() == [("e1", 900, "duplicate")]


@pytest.mark.rest
def test_what_is_not_applied_is_recorded_with_its_reason(
    play: Play, db: psycopg.Connection
) -> None:
    ahead = event("f1", "12:00", 9_000_000, occurred_at=_ahead(hours=1))
    near = event("n1", "12:00", 0, merchant="m_now", occurred_at=_ahead(minutes=1))
    events = play.folder / "events"
    put(events, 0, [event("e1", "12:01", 10), event("e1", "12:01", 10), ahead])
    put(events, 1, [event("e1", "12:01", 10), event("e2", "12:14", 10)])
    put(events, 2, [event("e3", "12:18", 10)])
    # W is 12:17:30 now, so 12:00-12:15 takes nothing more; 12:15-12:30 is open.
    put(events, 3, [event("e4", "12:14", 10), event("e5", "12:16", 10)])
    before = time.time()
    play.run()
    late = db.execute("""
        SELECT event_id, reason::text, watermark FROM holdfast.late_event ORDER BY id
    """).fetchall()
    assert Counter((event_id, reason) for event_id, reason, _ in late) == Counter(
        {("e1", "duplicate"): 2, ("f1", "future_dated"): 1, ("e4", "late"): 1}
    )
    assert {event_id: f"{w:%H:%M:%S}" for event_id, _, w in late if w and event_id == "e4"} == {
        "e4": "12:17:30"
    }

    # An event that is ahead of its batch, but not by more than the tolerance, does move it.
    put(events, 4, [near])
    progress = play.run()
    assert progress[-1].eventTime["watermark"] > f"{datetime.fromtimestamp(before, UTC):%FT%T}"
    exposures = db.execute("""
        SELECT to_char(window_end AT TIME ZONE 'UTC', 'HH24:MI'), exposure_minor
        FROM holdfast.exposure_window WHERE merchant_id = 'm_1' ORDER BY window_end
    """).fetchall()
    assert exposures == [("12:15", 20), ("12:30", 20)]


READ = {
    "not ASCII": "zürich.jsonl",
    "braces": "{a}.jsonl",
    "brackets": "[a].jsonl",
    "star": "a*.jsonl",
    "question mark": "a?.jsonl",
    "comma": "a,b.jsonl",
    "per cent": "a%20b.jsonl",
    "hash": "a#b.jsonl",
    "newline": "a\nb.jsonl",
    "_name=value": "_day=1",
    "255 bytes": "a" * 255,
    "in a directory with a colon": "a:b/c.jsonl",
}
SKIPPED = {"underscore": "_a.jsonl", "dot": ".a.jsonl", "copying": "a._COPYING_"}
REFUSED = {
    "not UTF-8": (b"z\xfcrich.jsonl", r"z\\xfcrich.jsonl cannot be read: its name is not UTF-8"),
    "colon": (b"a:b.jsonl", "a:b.jsonl cannot be read: its name has a colon"),
}


@pytest.fixture(scope="module")
def applied(shared_play: Play) -> set[str]:
    """The merchants whose file was read, of files that have a merchant each."""
    events = shared_play.folder / "events"
    for kind, name in (READ | SKIPPED).items():
        (events / name).parent.mkdir(parents=True, exist_ok=True)
        (events / name).write_bytes(event(kind, "12:01", 1, kind) + b"\n")
    put(events, 99, [event("last", "12:20", 1, "last")])
    shared_play.command(max_files_per_trigger=None)
    with psycopg.connect(shared_play.dsn) as db:
        rows = db.execute("SELECT DISTINCT merchant_id FROM holdfast.exposure_window")
        return {merchant for (merchant,) in rows}


@pytest.mark.rest
@pytest.mark.parametrize("kind", READ)
def test_file_is_read_whatever_its_name(kind: str, applied: set[str]) -> None:
    assert kind in applied


@pytest.mark.rest
@pytest.mark.parametrize("kind", SKIPPED)
def test_file_that_is_not_complete_by_its_name_is_skipped(kind: str, applied: set[str]) -> None:
    assert kind not in applied


@pytest.mark.rest
@pytest.mark.parametrize("kind", REFUSED)
def test_file_whose_name_spark_cannot_read_is_refused(
    kind: str, play: Play, db: psycopg.Connection
) -> None:
    name, message = REFUSED[kind]
    play.put([event("e1", "12:01", 1)])
    (play.folder / "events" / os.fsdecode(name)).write_bytes(event("e2", "12:01", 1))
    with pytest.raises(QueryFailed, match=message) as raised:
        play.command()
    assert raised.value.failure.permanent
    assert db.execute("SELECT count(*) FROM holdfast.stream").fetchone() == (0,)


@pytest.mark.parametrize("text", ["a)|(.*", r"a)\z|\A(?:.*", "a)#", r"a\Q", "(?x)a #", "[a", "a\\"])
def test_pattern_of_topics_stays_between_its_anchors(spark: "SparkSession", text: str) -> None:
    with pytest.raises(CommandError) as refused:
        compiled(spark.sparkContext._jvm, Kafka(text, is_pattern=True))
    assert refused.value.exit_code is ExitCode.USAGE


def test_pattern_of_topics_matches_full_names(spark: "SparkSession") -> None:
    pattern = compiled(spark.sparkContext._jvm, Kafka("eu|us", is_pattern=True))
    assert [bool(pattern.matcher(name).find()) for name in ("eu", "us", "eu-2", "us\n")] == [
        *(True, True, False, False)
    ]

"""One batch, one transaction: what is written, what is not, and what a second time finds."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pyarrow as pa
import pytest

from holdfast.sink import BatchInput, OutboxSink, ReplayDiverged, Replayed, Written
from holdfast.sink.contract.envelope import BODY_BYTES_MAX
from holdfast.sink.contract.key import Key
from holdfast.sink.transaction.divergence import Comparison
from tests.support.dispatch.sender import BLOCK, REFUSED, RELEASE, SCHEMA, decision
from tests.support.job.decisions import BAD_ROWS
from tests.support.job.driver import Driver, MakeDriver
from tests.support.job.job_stream import contents, sequences
from tests.support.world import World


def _counts(outcome: Written | Replayed) -> tuple[int, ...]:
    counts = outcome.counts
    assert counts.rows == (
        counts.entries + counts.duplicates + counts.suppressed + counts.quarantined
    )
    return (counts.entries, counts.duplicates, counts.suppressed, counts.quarantined)


def test_nothing_is_suppressed_unless_that_is_asked_for(dsn: str, db: psycopg.Connection) -> None:
    spark = Driver(dsn, suppress_repeats=OutboxSink.__init__.__kwdefaults__["suppress_repeats"])
    later, earlier = decision("m_482", 2), decision("m_482", 1)
    spark.batch(0, later)
    outcome = spark.batch(1, earlier)
    spark.sink.close()
    assert _counts(outcome) == (1, 0, 0, 0)
    assert sequences(db, "m_482") == [1, 2]


def test_batch_is_written_with_all_that_belongs_to_it(world: World) -> None:
    spark = world.driver()
    block, release = decision("m_482", 1), decision("m_482", 2, RELEASE, 2_200_000)
    outcome = spark.batch(0, release, block, decision("m_7", 1))
    assert isinstance(outcome, Written)
    assert _counts(outcome) == (3, 0, 0, 0)

    assert sequences(world.db, "m_482") == [1, 2]
    rows = world.db.execute(
        "SELECT sequence, key, type, occurred_at, created_at, convert_from(body, 'UTF8')"
        " FROM holdfast.entry JOIN holdfast.subject ON id = subject_id"
        " WHERE name = 'm_482' ORDER BY sequence"
    ).fetchall()
    for (sequence, key, type_, occurred_at, created_at, body), sent in zip(
        rows, (block, release), strict=True
    ):
        assert key == Key.of(sent["key"]).digest
        assert (type_, occurred_at) == (sent["type"], sent["occurred_at"])
        assert created_at == outcome.written_at
        assert json.loads(body)["sequence"] == sequence
        assert json.loads(body)["data"] == sent["data"]

    ledger = world.db.execute(
        "SELECT run_id, epoch, row_count, entry_count, written_at, routed_at FROM holdfast.batch"
    ).fetchone()
    assert ledger == (spark.run_id, 1, 3, 3, outcome.written_at, None)
    assert contents(world.db)["subject"] == [("m_482", 2, RELEASE), ("m_7", 1, BLOCK)]


def test_replayed_batch_writes_nothing(driver: MakeDriver, db: psycopg.Connection) -> None:
    called: list[int] = []
    first = driver(also=lambda _connection, rows: called.append(rows.num_rows))
    rows = [decision("m_482", 1), decision("m_7", 1), decision("m_7", 1)]
    written = first.batch(0, *rows)
    before = contents(db)
    numbers = "SELECT last_value FROM holdfast.batch_batch_no_seq"
    drawn = db.execute(numbers).fetchone()

    again = first.batch(0, *reversed(rows))
    restarted = driver(query_id=first.query_id).batch(0, *rows)
    for replay in (again, restarted):
        assert isinstance(replay, Replayed)
        assert (replay.batch_no, replay.counts) == (written.batch_no, written.counts)
    assert contents(db) == before
    assert db.execute(numbers).fetchone() == drawn
    assert called == [3]


@pytest.mark.guarantee(2)
def test_replay_with_other_rows_diverges_and_says_how(world: World) -> None:
    spark = world.driver()
    known = decision("m_0", 1)
    spark.batch(0, known)
    gone, kept, changed = decision("m_1"), decision("m_2"), decision("m_3", minor=1)
    spark.batch(1, known, gone, kept, changed)
    before = contents(world.db)

    added = [decision(f"n_{n:02}") for n in range(25)]
    with pytest.raises(ReplayDiverged) as raised:
        spark.batch(1, known, kept, changed | {"data": {"exposure_minor": 2}}, *added)

    difference = raised.value.divergence
    assert (difference.rows_then, difference.rows_now) == (4, 28)
    assert difference.only_in_ledger.first == (Key.of(gone["key"]).digest,)
    assert difference.changed.first == (Key.of(changed["key"]).digest,)
    assert difference.only_in_replay.count == 25
    assert difference.only_in_replay.first == tuple(
        sorted(Key.of(row["key"]).digest for row in added)[:20]
    )
    words = str(raised.value)
    assert "rows 4 then, 28 now" in words
    assert f"1 key only in the ledger ({Key.of(gone['key']).text})" in words
    assert "`holdfast batch accept payouts 1 --divergence 1 --reason TEXT`" in words
    assert contents(world.db) == before


def test_replay_with_another_companion_diverges_though_the_keys_agree(driver: MakeDriver) -> None:
    revision = 1

    def select(rows: pa.Table) -> BatchInput:
        return BatchInput(rows, companions={"windows": pa.table({"revision": [revision]})})

    spark = driver(select=select)
    spark.batch(0, decision())
    revision = 2
    with pytest.raises(ReplayDiverged, match="the keys are the same"):
        spark.batch(0, decision())


def test_known_key_is_a_duplicate_and_changed_content_is_counted(world: World) -> None:
    spark = world.driver()
    spark.batch(0, decision("m_1", minor=1), decision("m_2", minor=1))
    outcome = spark.batch(
        1, decision("m_1", minor=1), decision("m_2", minor=2), decision("m_3"), decision("m_3")
    )
    assert _counts(outcome) == (1, 3, 0, 0)
    assert outcome.counts.differing == 1
    assert [sequences(world.db, name) for name in ("m_1", "m_2", "m_3")] == [[1], [1], [1]]


@pytest.mark.guarantee(7)
def test_entry_that_changes_nothing_is_suppressed_and_its_key_recorded(world: World) -> None:
    spark = world.driver()
    outcome = spark.batch(
        0, *(decision("m_1", w, t) for w, t in enumerate([BLOCK, BLOCK, RELEASE]))
    )
    assert _counts(outcome) == (2, 0, 1, 0)
    outcome = spark.batch(1, *(decision("m_1", w, t) for w, t in [(3, RELEASE), (4, BLOCK)]))
    assert _counts(outcome) == (1, 0, 1, 0)
    assert sequences(world.db, "m_1") == [1, 2, 3]
    assert contents(world.db)["subject"] == [("m_1", 3, BLOCK)]

    outcome = spark.batch(2, decision("m_1", 3, RELEASE))
    assert _counts(outcome) == (0, 1, 0, 0)


def test_repeats_are_written_where_the_stream_wants_them(driver: MakeDriver) -> None:
    spark = driver(suppress_repeats=False)
    assert _counts(spark.batch(0, *(decision("m_1", w) for w in range(3)))) == (3, 0, 0, 0)


def test_clock_that_was_set_back_takes_no_subject_back_in_time(world: World) -> None:
    spark = world.driver()
    first = spark.batch(0, decision("m_1", 1), decision("m_2", 1))
    assert world.db.execute("SELECT DISTINCT last_created_at FROM holdfast.subject").fetchall() == [
        (first.written_at,)
    ]
    ahead = first.written_at + timedelta(hours=3)
    world.db.execute("UPDATE holdfast.subject SET last_created_at = %s WHERE name = 'm_1'", [ahead])

    second = spark.batch(1, decision("m_1", 2, RELEASE), decision("m_2", 2, RELEASE))
    assert second.written_at == ahead
    moments = "SELECT DISTINCT created_at FROM holdfast.entry WHERE batch_no = %s"
    assert world.db.execute(moments, [second.batch_no]).fetchall() == [(ahead,)]
    assert world.db.execute("SELECT DISTINCT last_created_at FROM holdfast.subject").fetchall() == [
        (ahead,)
    ]
    # Only who shares a subject with that moment is taken ahead with it.
    assert spark.batch(2, decision("m_3", 1)).written_at < ahead


@pytest.mark.guarantee(7)
def test_bad_rows_are_quarantined_and_the_rest_is_written(world: World) -> None:
    schema = SCHEMA.append(pa.field("priority", pa.int32()))
    bad = [decision("m_bad") | change for change, _ in BAD_ROWS.values()]
    conflict = [decision("m_1"), decision("m_1", minor=1)]
    refused = pa.Table.from_pylist(
        [{"reason": "malformed", "detail": "line 3", "row": '{"event_id": "e1", \x00'}], REFUSED
    )
    spark = world.driver(select=lambda rows: BatchInput(rows, refused))
    rows = pa.Table.from_pylist([*bad, *conflict, decision("m_2")], schema)
    outcome = spark.tables(0, rows)
    assert _counts(outcome) == (2, 0, 0, len(bad) + 2)

    result_rows = world.db.execute(
        "SELECT reason, row FROM holdfast.quarantine ORDER BY id"
    ).fetchall()
    reasons = [reason for _, reason in BAD_ROWS.values()]
    assert [reason for reason, _ in result_rows] == [*reasons, "key_conflict", "malformed"]
    assert all(json.loads(row) for _, row in result_rows[:-1])
    assert result_rows[-1][1] == r'{"event_id": "e1", \u0000'


def test_text_of_every_kind_survives_the_way_into_the_database(world: World) -> None:
    subjects = [
        '"',
        "'",
        "\\.",
        "\\N",
        ",",
        "a\nb\r\n",
        "\t",
        "\x01\x1f",
        " ",
        "é",
        "e\u0301",
        "\u202eabc",
        "😀",
    ]
    rows = [decision(name, data={"merchant_id": name * 3}) for name in subjects]
    world.driver().batch(0, *rows)
    result_rows = dict(
        world.db.execute(
            "SELECT name, convert_from(body, 'UTF8') FROM holdfast.entry"
            " JOIN holdfast.subject ON id = subject_id"
        ).fetchall()
    )
    assert {
        name: json.loads(body)["data"]["merchant_id"] for name, body in result_rows.items()
    } == {name: name * 3 for name in subjects}


def test_largest_body_is_accepted(driver: MakeDriver, db: psycopg.Connection) -> None:
    spark = driver()
    shell = len(json.dumps({"merchant_id": "", "exposure_minor": None}, separators=(",", ":")))
    spark.batch(0, decision("m_1", data={"merchant_id": ""}))
    [(small,)] = db.execute("SELECT octet_length(body) FROM holdfast.entry").fetchall()
    room = BODY_BYTES_MAX - (small - shell) - shell - 18
    outcome = spark.batch(1, decision("m_1", 2, RELEASE, data={"merchant_id": "x" * room}))
    # "block" and "release" differ by two letters, in the type.
    assert _counts(outcome) == (0, 0, 0, 1)
    outcome = spark.batch(2, decision("m_1", 2, RELEASE, data={"merchant_id": "x" * (room - 2)}))
    assert _counts(outcome) == (1, 0, 0, 0)


def test_batch_without_rows_still_has_its_ledger_row(world: World) -> None:
    spark = world.driver()
    assert _counts(spark.batch(0)) == (0, 0, 0, 0)
    assert isinstance(spark.batch(0), Replayed)
    assert world.db.execute("SELECT batch_id, row_count FROM holdfast.batch").fetchall() == [(0, 0)]


def test_also_commits_with_the_batch_or_nothing_does(world: World) -> None:
    world.db.execute("CREATE TABLE public.seen (rows bigint CHECK (rows < 2))")
    world.db.execute("GRANT INSERT ON public.seen TO holdfast_sink")

    def also(connection: psycopg.Connection, rows: pa.Table) -> None:
        connection.execute("INSERT INTO public.seen VALUES (%s)", [rows.num_rows])

    spark = world.driver(also=also)
    spark.batch(0, decision("m_1"))
    before = contents(world.db)
    with pytest.raises(psycopg.errors.CheckViolation):
        spark.batch(1, decision("m_1", 2, RELEASE), decision("m_2"))
    assert contents(world.db) == before
    assert world.db.execute("SELECT rows FROM public.seen").fetchall() == [(1,)]

    spark.batch(1, decision("m_1", 2, RELEASE))
    assert sequences(world.db, "m_1") == [1, 2]


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_offsets_of_a_local_checkpoint_are_kept(world: World, tmp_path: Path, scheme: str) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "4").write_text('v1\n{"batchWatermarkMs":0}\n{"logOffset":3}')
    spark = world.driver(checkpoint=f"{scheme}{tmp_path}", first_batch=4)
    spark.batch(4, decision())
    spark.batch(5)
    rows = world.db.execute(
        "SELECT batch_id, source_offsets FROM holdfast.batch ORDER BY 1"
    ).fetchall()
    assert rows == [(4, 'v1\n{"batchWatermarkMs":0}\n{"logOffset":3}'), (5, None)]
    assert world.db.execute("SELECT checkpoint FROM holdfast.stream").fetchone() == (
        f"{scheme}{tmp_path}",
    )


@pytest.mark.parametrize("stored", [b"v1\n\xff", b"v1\n\0"], ids=["no text", "NUL"])
def test_source_offsets_that_cannot_be_kept_stop_no_batch(
    world: World, caplog: pytest.LogCaptureFixture, stored: bytes
) -> None:
    (world.tmp_path / "offsets").mkdir()
    (world.tmp_path / "offsets" / "0").write_bytes(stored)
    world.driver(checkpoint=world.tmp_path).batch(0, decision())
    assert world.db.execute("SELECT source_offsets FROM holdfast.batch").fetchall() == [(None,)]
    assert "source's offsets of batch 0" in caplog.text


KEPT = """
    SELECT side::text, key, subject, type, occurred_at, body FROM holdfast.divergence_row
    ORDER BY divergence_row.side, key
"""
SUMMARY = "SELECT row_count, quarantined_count, differing_count, run_id FROM holdfast.divergence"


def _diverged(spark: Driver, batch_id: int, *rows: dict[str, Any]) -> ReplayDiverged:
    with pytest.raises(ReplayDiverged) as raised:
        spark.batch(batch_id, *rows)
    return raised.value


def _key(row: dict[str, Any]) -> UUID:
    return Key.of(row["key"]).digest


def test_what_a_diverged_replay_brought_is_kept_row_by_row(world: World) -> None:
    spark = world.driver()
    gone, kept, changed = decision("m_1"), decision("m_2"), decision("m_3", minor=1)
    spark.batch(0, gone, kept, changed)
    before = contents(world.db)
    now, added = decision("m_3", minor=2), decision("m_4")
    _diverged(spark, 0, kept, now, added)

    assert contents(world.db) == before
    assert world.db.execute(SUMMARY).fetchall() == [(3, 0, 3, spark.run_id)]
    left, brought, other = world.db.execute(KEPT).fetchall()
    assert left == ("only_in_ledger", _key(gone), None, None, None, None)
    assert brought[:5] == (
        *("only_in_replay", _key(added), "m_4"),
        *(added["type"], added["occurred_at"]),
    )
    assert other[:3] == ("changed", _key(changed), "m_3")
    (then,) = world.db.execute(
        "SELECT convert_from(body, 'UTF8') FROM holdfast.entry WHERE key = %s", [_key(changed)]
    ).fetchone() or ("",)
    now_sent = then.replace('"exposure_minor":1,', '"exposure_minor":2,')
    assert other[5] == now_sent.replace('"sequence":1,', '"sequence":null,')


def test_replay_that_diverges_again_and_again_is_kept_once(world: World) -> None:
    spark = world.driver()
    spark.batch(0, decision("m_1"))
    for _ in range(2):
        _diverged(spark, 0, decision("m_2"))
    restarted = world.driver(query_id=spark.query_id)
    _diverged(restarted, 0, decision("m_2"))
    assert world.db.execute("SELECT count(*) FROM holdfast.divergence").fetchone() == (1,)
    _diverged(restarted, 0, decision("m_3"))
    assert world.db.execute("SELECT count(*) FROM holdfast.divergence").fetchone() == (2,)


def test_large_divergence_is_counted_and_kept_in_part(world: World) -> None:
    spark = world.driver()
    spark.batch(0, decision("m_1"), decision("m_2", minor=1))
    added = [decision(f"n_{n}") for n in range(10_010)]
    error = _diverged(spark, 0, decision("m_2", minor=2), *added)
    assert error.divergence.only_in_replay.count == 10_010
    assert world.db.execute("SELECT differing_count FROM holdfast.divergence").fetchone() == (
        10_012,
    )
    sides = world.db.execute(
        "SELECT side::text, count(*) FROM holdfast.divergence_row GROUP BY side"
    )
    assert dict(sides.fetchall()) == {"only_in_ledger": 1, "only_in_replay": 9_998, "changed": 1}


def test_large_bodies_are_kept_up_to_a_limit(driver: MakeDriver) -> None:
    spark = driver()
    spark.batch(0)
    large = {"merchant_id": "x" * 200_000}
    rows = [decision(f"m_{n:03}", data=large) for n in range(200)]
    difference = _diverged(spark, 0, *rows).divergence
    assert isinstance(difference, Comparison)
    assert difference.only_in_replay.count == 200
    assert len(difference.only_in_replay.first) == 20
    size = sum(len(row.body or "") for row in difference.rows)
    assert 32 * 2**20 - 200_200 < size <= 32 * 2**20


def test_divergence_only_in_a_companion_is_kept_without_rows(world: World) -> None:
    revision = 1

    def select(rows: pa.Table) -> BatchInput:
        return BatchInput(rows, companions={"windows": pa.table({"revision": [revision]})})

    spark = world.driver(select=select)
    spark.batch(0, decision())
    revision = 2
    _diverged(spark, 0, decision())
    assert world.db.execute("SELECT differing_count FROM holdfast.divergence").fetchall() == [(0,)]
    assert world.db.execute(KEPT).fetchall() == []


@pytest.mark.parametrize("table", ["divergence", "divergence_row"])
def test_record_that_cannot_be_kept_hides_nothing(
    world: World, caplog: pytest.LogCaptureFixture, table: str
) -> None:
    spark = world.driver()
    spark.batch(0, decision("m_1"))
    world.db.execute(f"REVOKE INSERT ON holdfast.{table} FROM holdfast_sink".encode())
    _diverged(spark, 0, decision("m_2"))
    assert "`holdfast batch diff`" in caplog.text
    assert world.db.execute("SELECT count(*) FROM holdfast.divergence").fetchone() == (0,)

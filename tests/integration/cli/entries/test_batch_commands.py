"""`holdfast batch`: the ledger, page by page and row by row, also of an empty batch."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from holdfast.sink import ReplayDiverged
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.key import Key
from tests.support.command import holdfast
from tests.support.dispatch.sender import BLOCK, RELEASE, decision
from tests.support.job.driver import Driver, MakeDriver
from tests.support.world import World

OFFSETS = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1793620800000}\n{"logOffset":3}'


def _json(dsn: str, *arguments: str, code: ExitCode = ExitCode.OK) -> dict[str, Any]:
    return holdfast("batch", *arguments, "--json", dsn=dsn, code=code).json


def _diverge(spark: Driver, batch_id: int, *rows: dict[str, Any]) -> None:
    with pytest.raises(ReplayDiverged):
        spark.batch(batch_id, *rows)


def test_batches_are_listed_page_by_page_newest_first(dsn: str, driver: MakeDriver) -> None:
    spark = driver()
    for batch_id in range(5):
        spark.batch(batch_id, decision("m_1", batch_id, (RELEASE, BLOCK)[batch_id % 2]))
    seen: list[int] = []
    page = _json(dsn, "list", "payouts", "--limit", "2")
    assert page["query_id"] == str(spark.query_id)
    while True:
        seen += [row["batch_id"] for row in page["batches"]]
        if page["next_before"] is None:
            break
        page = _json(dsn, "list", "payouts", "--limit", "2", "--before", str(page["next_before"]))
    assert seen == [4, 3, 2, 1, 0]
    assert "--before 3" in holdfast("batch", "list", "payouts", "--limit", "2", dsn=dsn).stdout


def test_batch_is_shown_with_counts_and_offsets(world: World, tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text(OFFSETS)
    spark = world.driver(checkpoint=str(tmp_path))
    twice = decision("m_2")
    spark.batch(
        0,
        decision("m_1"),
        decision("m_1", 2, RELEASE),
        twice,
        twice,
        decision("m_2") | {"subject": ""},
    )
    show = _json(world.dsn, "show", "payouts", "0")
    counts = ("row_count", "entry_count", "duplicate_count", "suppressed_count")
    assert [show[name] for name in counts] == [5, 3, 1, 0]
    assert show["quarantined_count"] == 1
    assert len(bytes.fromhex(show["digest"])) == 32
    assert show["source_offsets"] == {
        "batch_time": "2026-11-02T12:00:00Z",
        "watermark": None,
        "sources": [{"logOffset": 3}],
        "ranges": [{"source": 0, "kind": "log", "first_entry": 0, "last_entry": 3, "note": None}],
    }
    assert show["types"] == [
        {"type": BLOCK, "entries": 2, "subjects": 2},
        {"type": RELEASE, "entries": 1, "subjects": 1},
    ]
    assert show["refused"] == [{"reason": "bad_subject", "rule": None, "rows": 1, "open": 1}]
    text = world.holdfast("batch", "show", "payouts", "0").stdout
    assert "5 rows = 3 entries + 1 duplicate + 0 suppressed + 1 quarantined; 0 duplicates" in text
    assert "source 0: files or ticks, log entries 0 to 3" in text
    assert "holdfast job checkpoints input --checkpoint PATH --batch 0" in text


def test_batch_says_which_records_of_kafka_it_read(world: World, tmp_path: Path) -> None:
    head = OFFSETS.rpartition("\n")[0]
    (tmp_path / "offsets").mkdir()
    for batch_id, position in (
        (3, '{"events":{"0":90,"1":12}}'),
        (4, '{"events":{"0":117,"1":12}}'),
    ):
        (tmp_path / "offsets" / str(batch_id)).write_text(f"{head}\n{position}")
    spark = world.driver(checkpoint=str(tmp_path), first_batch=3)
    for batch_id in (3, 4, 5):
        spark.batch(batch_id, decision("m_1", batch_id, (RELEASE, BLOCK)[batch_id % 2]))

    [source] = _json(world.dsn, "show", "payouts", "4")["source_offsets"]["ranges"]
    assert (source["kind"], source["count"], source["unread"]) == ("kafka", 27, 1)
    assert source["partitions"] == [
        {"topic": "events", "partition": 0, "from": 90, "until": 117, "count": 27, "note": None}
    ]
    [first] = _json(world.dsn, "show", "payouts", "3")["source_offsets"]["ranges"]
    assert [each["from"] for each in first["partitions"]] == [None, None]
    assert "batch 2 are not in the ledger" in first["note"]
    assert _json(world.dsn, "show", "payouts", "5")["source_offsets"] is None

    text = world.holdfast("batch", "show", "payouts", "4").stdout
    assert "  source 0: Kafka, 27 offsets, 1 partition with nothing new" in text
    assert "events partition 0: from 90 until 117, 27 offsets" in text
    assert "not stored" in world.holdfast("batch", "show", "payouts", "5").stdout

    key = Key.of(decision("m_1", 4, RELEASE)["key"]).text
    traced = json.loads(world.holdfast("trace", key, "--json").stdout)
    assert traced["batch"]["source_offsets"]["ranges"] == [source]
    assert "read   events partition 0: from 90 until 117" in world.holdfast("trace", key).stdout


def test_trace_says_where_all_partitions_are(world: World, tmp_path: Path) -> None:
    head = OFFSETS.rpartition("\n")[0]
    (tmp_path / "offsets").mkdir()
    for batch_id in range(2):
        position = {"events": {str(each): 5 * batch_id for each in range(30)}}
        (tmp_path / "offsets" / str(batch_id)).write_text(f"{head}\n{json.dumps(position)}")
    spark = world.driver(checkpoint=str(tmp_path))
    spark.batch(0)
    spark.batch(1, decision("m_1"))
    text = world.holdfast("trace", Key.of(decision("m_1")["key"]).text).stdout
    assert text.count("events partition") == 19
    assert f"11 lines more: holdfast batch show payouts 1 --query-id {spark.query_id}" in text


@pytest.mark.parametrize(
    "stored", ["[" * 100_000, 'v1\n{}\n{"t":{"0":NaN}}', 'v1\n{}\n"\x1b[2J\\ud800"']
)
def test_source_offsets_of_no_known_form_are_shown_as_they_are(world: World, stored: str) -> None:
    world.driver().batch(0, decision("m_1"))
    world.db.execute("UPDATE holdfast.batch SET source_offsets = %s", [stored])
    assert _json(world.dsn, "show", "payouts", "0")["source_offsets"] == {
        "text": stored,
        "ranges": [],
    }
    text = holdfast("batch", "show", "payouts", "0", dsn=world.dsn).stdout
    assert stored[:20].splitlines()[0] in text
    assert "\x1b" not in text
    traced = holdfast("trace", Key.of(decision("m_1")["key"]).text, dsn=world.dsn)
    assert "what it read is not known" in traced.stdout


def test_batch_says_what_each_endpoint_has_of_it(world: World) -> None:
    spark = world.driver()
    spark.batch(0, decision("m_1"), decision("m_1", 2, RELEASE), decision("m_2"), decision("m_3"))
    world.db.execute("""
        INSERT INTO holdfast.endpoint (name, url, secret_refs, types, starts_at) VALUES
            ('all', 'https://a.example/', '{env:S}', '{}', NULL),
            ('blocks', 'https://b.example/', '{env:S}', '{payout_hold.block}', NULL),
            ('later', 'https://c.example/', '{env:S}', '{}', now() + interval '1 hour')
    """)
    world.db.execute("""
        INSERT INTO holdfast.lane (endpoint_id, subject_id, delivered_sequence, last_sequence,
            priority, head_created_at)
        SELECT p.id, s.id, CASE s.name WHEN 'm_1' THEN 1 ELSE 0 END, s.last_sequence, 0,
            s.last_created_at
        FROM holdfast.endpoint p, holdfast.subject s WHERE p.name = 'all'
    """)
    world.db.execute("""
        INSERT INTO holdfast.dead_letter (endpoint_id, subject_id, sequence, key, created_at,
            reason, detail, attempts)
        SELECT p.id, s.id, 1, gen_random_uuid(), now(), 'rejected', '', 1
        FROM holdfast.endpoint p, holdfast.subject s WHERE p.name = 'all' AND s.name = 'm_3'
    """)
    delivery = {
        row.pop("endpoint"): row for row in _json(world.dsn, "show", "payouts", "0")["delivery"]
    }
    active = {"state": "active"}
    assert delivery == {
        "all": active | {"entries": 4, "delivered": 1, "waiting": 2, "dead_letters": 1},
        "blocks": active | {"entries": 3, "delivered": 0, "waiting": 3, "dead_letters": 0},
    }


def test_diverged_replay_is_compared_row_by_row(dsn: str, driver: MakeDriver) -> None:
    spark = driver()
    gone, changed, added = decision("m_1"), decision("m_3", minor=1), decision("m_4")
    spark.batch(0, decision("m_3", 0, RELEASE), gone, changed)
    _diverge(spark, 0, decision("m_3", 0, RELEASE), decision("m_3", minor=2), added)
    diff = _json(dsn, "diff", "payouts", "0")
    assert (diff["batch"]["row_count"], diff["divergence"]["row_count"]) == (3, 3)
    left, brought, other = diff["rows"]
    assert (left["side"], left["key"]) == ("only_in_ledger", Key.of(gone["key"]).text)
    assert (left["subject"], left["type"]) == ("m_1", BLOCK)
    assert json.loads(left["body_then"])["data"]["exposure_minor"] == 8_500_000
    assert left["body_now"] is None
    assert (brought["side"], brought["subject"]) == ("only_in_replay", "m_4")
    assert brought["body_then"] is None
    assert json.loads(brought["body_now"])["sequence"] is None
    assert (other["side"], other["subject"], other["sequence"]) == ("changed", "m_3", 2)
    assert other["body_now"] == other["body_then"].replace(
        '"exposure_minor":1,', '"exposure_minor":2,'
    )

    text = holdfast("batch", "diff", "payouts", "0", dsn=dsn).stdout
    assert f"changed: {Key.of(changed['key']).text} m_3 {BLOCK}" in text
    assert f"then {other['body_then']}" in text
    assert "now  (nothing)" in text
    assert (
        "1 of 3 rows shown"
        in holdfast(*("batch", "diff", "payouts", "0", "--limit", "1"), dsn=dsn).stdout
    )


def test_each_replay_that_diverged_can_be_looked_at(dsn: str, driver: MakeDriver) -> None:
    spark = driver()
    spark.batch(0, decision("m_1"))
    _diverge(spark, 0, decision("m_2"))
    _diverge(spark, 0, decision("m_3"))
    newest = _json(dsn, "diff", "payouts", "0")
    assert [row["subject"] for row in newest["rows"]] == ["m_1", "m_3"]
    [older] = newest["others"]
    chosen = _json(dsn, "diff", "payouts", "0", "--divergence", str(older))
    assert [row["subject"] for row in chosen["rows"]] == ["m_1", "m_2"]
    assert f"--divergence {older}" in holdfast("batch", "diff", "payouts", "0", dsn=dsn).stdout
    wrong = holdfast("batch", "diff", "payouts", "0", "--divergence", "99", dsn=dsn)
    assert wrong.returncode == ExitCode.NOTHING_MATCHED


def test_batch_that_never_diverged_has_no_difference(dsn: str, driver: MakeDriver) -> None:
    driver().batch(0, decision("m_1"))
    done = holdfast("batch", "diff", "payouts", "0", dsn=dsn, code=ExitCode.NOTHING_MATCHED)
    assert "nothing diverged" in done.stderr


def test_text_that_drives_a_terminal_is_shown_escaped(dsn: str, driver: MakeDriver) -> None:
    spark = driver()
    spark.batch(0)
    _diverge(spark, 0, decision("m\x1b[2J\u202e", data={"merchant_id": "\x9b2J"}))
    text = holdfast("batch", "diff", "payouts", "0", dsn=dsn).stdout
    assert r"m\x1b[2J\u202e" in text
    assert r"\x9b2J" in text


def test_batch_under_another_checkpoint_is_pointed_to(world: World) -> None:
    spark = world.driver(first_batch=7)
    spark.batch(7, decision("m_1"))
    world.db.execute("UPDATE holdfast.stream SET query_id = %s", [uuid4()])
    for command in ("show", "diff"):
        missing = world.holdfast("batch", command, "payouts", "7")
        assert missing.returncode == ExitCode.NOTHING_MATCHED
        assert f"--query-id {spark.query_id}" in missing.stderr
    message = ("--query-id", str(spark.query_id))
    assert _json(world.dsn, "show", "payouts", "7", *message)["entry_count"] == 1
    assert len(_json(world.dsn, "list", "payouts", *message)["batches"]) == 1
    none = ExitCode.NOTHING_MATCHED
    assert _json(world.dsn, "list", "payouts", code=none)["batches"] == []
    unknown = world.holdfast("batch", "list", "payouts", "--query-id", str(uuid4()))
    assert unknown.returncode == ExitCode.NOTHING_MATCHED
    assert f"it has batches of {spark.query_id}" in unknown.stderr
    none_older = ("list", "payouts", *message, "--before", "7")
    assert _json(world.dsn, *none_older, code=none)["batches"] == []


def test_batch_that_cannot_be_is_refused(dsn: str, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO holdfast.stream (name) VALUES ('payouts')")
    for code, *arguments in (
        (ExitCode.NOTHING_MATCHED, "list", "nobody"),
        (ExitCode.NOTHING_MATCHED, "show", "nobody", "0"),
        (ExitCode.NOTHING_MATCHED, "show", "payouts", "999"),
        (ExitCode.USAGE, "show", "payouts", "--", "-1"),
        (ExitCode.USAGE, "show", "payouts", str(2**63)),
        (ExitCode.USAGE, "show", "payouts", "0", "--query-id", "x"),
        (ExitCode.USAGE, "list", "payouts", "--limit", "0"),
        (ExitCode.USAGE, "list", "payouts", "--limit", "1000000000"),
        (ExitCode.USAGE, "list", "payouts", "--before", "1; DROP TABLE batch"),
    ):
        done = holdfast("batch", *map(str, arguments), dsn=dsn, code=code)
        assert "Traceback" not in done.stderr


@pytest.fixture
def continued(dsn: str) -> Iterator[Driver]:
    """A new checkpoint that continued batch 3 of another one, and has written nothing since."""
    old = Driver(dsn, first_batch=3)
    old.batch(3, decision("m_1", 0, BLOCK))
    new = Driver(dsn)
    proof = old.sink.proof(old.query_id, 3)
    assert proof
    new.sink.continue_from(proof, new.query_id, 0)
    yield new
    for each in (old, new):
        each.sink.close()


def _continued_json(dsn: str, *words: str) -> dict[str, Any]:
    return holdfast(*words, "--json", dsn=dsn, code=ExitCode.OK).json


def test_empty_batch_is_listed_and_shown(world: World, continued: Driver) -> None:
    [listed] = _continued_json(world.dsn, "batch", "list", "payouts")["batches"]
    assert (listed["batch_id"], listed["row_count"], listed["entry_count"]) == (0, 0, 0)
    shown = _continued_json(world.dsn, "batch", "show", "payouts", "0")
    assert shown["query_id"] == str(continued.query_id)
    assert (shown["types"], shown["delivery"], shown["refused"], shown["divergences"]) == (
        *([],) * 4,
    )
    done = world.holdfast("batch", "show", "payouts", "0").stdout
    assert "0 rows = 0 entries + 0 duplicates + 0 suppressed + 0 quarantined" in done
    assert "None" not in done
    stream = _continued_json(world.dsn, "stream", "show", "payouts")
    ranges = [(each["first_batch_id"], each["last_batch_id"]) for each in stream["checkpoints"]]
    assert ranges == [(0, 0), (3, 3)]


SECRET = "HOLDFAST_SECRET_CONTINUED"


def _add_endpoint(dsn: str, type_: str) -> None:
    done = holdfast(
        *("endpoint", "add", "payouts", "--url", "http://127.0.0.1:9/", "--type", type_),
        *("--secret-ref", f"env:{SECRET}", "--allow-cidr", "127.0.0.0/8", "--reason", "test"),
        dsn=dsn,
        environment={SECRET: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
    )
    assert done.returncode == ExitCode.OK, done.stderr


@pytest.mark.usefixtures("continued")
def test_previous_decision_is_traced_to_its_batch_for_reissue(world: World) -> None:
    [key] = [each["key"] for each in _continued_json(world.dsn, "entry", "list")["entries"]]
    assert _continued_json(world.dsn, "trace", key)["batch"]["batch_id"] == 3
    _add_endpoint(world.dsn, BLOCK)
    world.holdfast("reissue", key, "--reason", "test", "--yes", code=ExitCode.OK)
    empty = "SELECT query_id FROM holdfast.batch WHERE row_count = 0"
    assert len(world.db.execute(empty).fetchall()) == 1


@pytest.mark.usefixtures("continued")
def test_dispatcher_routes_it_and_every_invariant_holds(dsn: str, db: psycopg.Connection) -> None:
    _add_endpoint(dsn, "never.sent")
    holdfast("dispatch", "--drain", dsn=dsn, process=True, code=ExitCode.OK)
    unrouted = "SELECT batch_id FROM holdfast.batch WHERE routed_at IS NULL"
    assert db.execute(unrouted).fetchall() == []
    assert holdfast("check", dsn=dsn).returncode == ExitCode.OK

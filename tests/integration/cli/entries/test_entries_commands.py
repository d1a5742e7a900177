"""`holdfast entry`: found by their key, by whatever is known of them, and page by page."""

import json
from collections.abc import Iterator
from datetime import UTC, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import ClientCursor

from holdfast.dispatcher.operators.common.statements import statement
from holdfast.dispatcher.operators.entries.store import SCAN_FIRST
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.key import Key
from tests.support.command import holdfast
from tests.support.dispatch.sender import BLOCK, NOON, RELEASE, alternating, decision
from tests.support.job.driver import Driver
from tests.support.world import World

pytestmark = pytest.mark.rest


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ENDPOINTS = """
    INSERT INTO holdfast.endpoint (name, url, secret_refs, types, starts_at) VALUES
        ('all', 'https://a.example/', '{env:S}', '{}', NULL),
        ('blocks', 'https://b.example/', '{env:S}', '{payout_hold.block}', NULL),
        ('later', 'https://c.example/', '{env:S}', '{}', now() + interval '1 hour')
"""
LANES = """
    INSERT INTO holdfast.lane (endpoint_id, subject_id, delivered_sequence, last_sequence, priority,
        head_created_at, due_at)
    SELECT p.id, s.id, 0, s.last_sequence, 0, s.last_created_at - interval '1 minute', now()
    FROM holdfast.endpoint p, holdfast.subject s WHERE p.name <> 'later'
"""


@pytest.fixture
def spark(dsn: str) -> Iterator[Driver]:
    """A driver that keeps what repeats; its connection is closed after the test."""
    driver = Driver(dsn, suppress_repeats=False)
    yield driver
    driver.sink.close()


def _json(dsn: str, *arguments: str) -> dict[str, Any]:
    return holdfast("entries", *arguments, "--json", dsn=dsn, code=ExitCode.OK).json


def _listed(dsn: str, *arguments: str) -> list[tuple[str, int]]:
    """Subject and sequence of all entries, page by page."""
    results: list[tuple[str, int]] = []
    page = _json(dsn, "list", *arguments)
    while True:
        results += [(row["subject"], row["sequence"]) for row in page["entries"]]
        if page["next_before"] is None:
            return results
        page = _json(dsn, "list", *arguments, "--before", page["next_before"])


def test_entry_is_shown_with_bytes_batch_and_trace(world: World, spark: Driver) -> None:
    odd = decision("m\x1b[2J\u202e", data={"merchant_id": "é\u202e", "exposure_minor": 1})
    spark.batch(0, decision("m_1"), odd)
    world.db.execute("UPDATE holdfast.entry SET traceparent = %s", [TRACE])
    key = Key.of(odd["key"]).text
    shown = _json(world.dsn, "show", key)
    (body,) = world.db.execute(
        "SELECT body FROM holdfast.entry WHERE key = %s", [Key.of(odd["key"]).digest]
    ).fetchone() or (b"",)
    assert shown["body"].encode() == body
    assert (shown["key"], shown["subject"], shown["sequence"]) == (key, odd["subject"], 1)
    assert (shown["type"], shown["traceparent"]) == (BLOCK, TRACE)
    assert shown["occurred_at"] == odd["occurred_at"].isoformat().replace("+00:00", "Z")
    batch = shown["batch"]
    assert (batch["stream"], batch["batch_id"]) == ("payouts", 0)
    assert batch["query_id"] == str(spark.query_id)
    assert batch["routed_at"] is None
    text = world.holdfast("entry", "show", key).stdout
    assert f"body, {len(body)} bytes:" in text
    assert r"m\x1b[2J\u202e" in text
    assert "no endpoint takes it" in text
    assert "\x1b" not in text


def test_entry_says_where_it_stands_at_each_endpoint(world: World, spark: Driver) -> None:
    rows = alternating("m_1", range(1, 4))  # block, release, block
    spark.batch(0, *rows)
    first, second, third = (Key.of(row["key"]).text for row in rows)
    world.db.execute(ENDPOINTS)

    def stands(key: str) -> dict[str, tuple[str, int | None]]:
        delivery = _json(world.dsn, "show", key)["delivery"]
        return {each["endpoint"]: (each["state"], each["behind_sequence"]) for each in delivery}

    assert stands(second) == {"all": ("unrouted", None)}
    world.db.execute(LANES)
    assert stands(first) == {"all": ("due", None), "blocks": ("due", None)}
    assert stands(second) == {"all": ("behind", 1)}
    assert stands(third) == {"all": ("behind", 1), "blocks": ("behind", 1)}
    world.db.execute("""
        INSERT INTO holdfast.dead_letter (endpoint_id, subject_id, sequence, key, created_at,
            reason, detail, attempts)
        SELECT p.id, s.id, 1, gen_random_uuid(), now(), 'rejected', 'HTTP 422', 1
        FROM holdfast.endpoint p, holdfast.subject s WHERE p.name = 'blocks'
    """)
    world.db.execute("""
        INSERT INTO holdfast.attempt (endpoint_id, subject_id, sequence, number, finished_at, token,
            outcome, status)
        SELECT p.id, s.id, 1, n, now() + n * interval '1 second', gen_random_uuid(),
            CASE n WHEN 2 THEN 'delivered' ELSE 'failed' END::holdfast.outcome, 200
        FROM holdfast.endpoint p, holdfast.subject s, generate_series(1, 2) AS n
        WHERE p.name = 'all'
    """)
    world.db.execute("UPDATE holdfast.lane SET delivered_sequence = 1")
    assert stands(first) == {"all": ("delivered", None), "blocks": ("dead", None)}
    everywhere, blocks = _json(world.dsn, "show", first)["delivery"]
    assert (everywhere["attempts"], everywhere["last_outcome"]) == (2, "delivered")
    assert (blocks["dead_reason"], blocks["dead_detail"]) == ("rejected", "HTTP 422")
    assert stands(third) == {"all": ("behind", 2), "blocks": ("due", None)}
    world.db.execute("UPDATE holdfast.endpoint SET state = 'paused'")
    text = world.holdfast("entry", "show", third).stdout
    assert "waits behind sequence 2; the endpoint is paused" in text


def test_entries_are_listed_by_what_is_known_of_them(world: World, spark: Driver) -> None:
    spark.batch(0, *alternating("m_1", range(1, 6)), decision("m_2"))
    spark.batch(1, *alternating("m_1", range(6, 9)))
    other = Driver(world.dsn, stream="other")
    other.batch(0, decision("m_3", 1, RELEASE))
    other.sink.close()
    m_1 = [("m_1", n) for n in range(8, 0, -1)]
    assert _listed(world.dsn) == [("m_3", 1), *m_1[:3], ("m_2", 1), *m_1[3:]]
    for few in ("1", "2", "3"):
        assert _listed(world.dsn, "--limit", few) == _listed(world.dsn)
        assert _listed(world.dsn, "--subject", "m_1", "--limit", few) == m_1
    blocks = [("m_1", 7), ("m_2", 1), ("m_1", 5), ("m_1", 3), ("m_1", 1)]
    assert _listed(world.dsn, "--type", BLOCK, "--limit", "2") == blocks
    assert _listed(world.dsn, "--type", BLOCK, "--subject", "m_2") == [("m_2", 1)]
    assert _listed(world.dsn, "--stream", "other") == [("m_3", 1)]
    assert _listed(world.dsn, "--stream", "payouts", "--batch", "1", "--limit", "2") == m_1[:3]
    assert _listed(world.dsn, "--stream", "payouts", "--batch", "0", "--subject", "m_1") == m_1[3:]
    moment = world.db.execute("SELECT written_at FROM holdfast.batch WHERE batch_id = 1").fetchone()
    assert moment is not None
    at = moment[0].isoformat()
    assert _listed(world.dsn, "--until", at) == [("m_2", 1), *m_1[3:]]
    assert _listed(world.dsn, "--since", at, "--subject", "m_1") == m_1[:3]
    assert _listed(world.dsn, "--since", at, "--stream", "payouts") == m_1[:3]
    text = world.holdfast("entry", "list", "--limit", "1").stdout
    [line] = [line for line in text.splitlines() if line.startswith("older rows: ")]
    assert _listed(world.dsn, *line.removeprefix("older rows: ").split())[0] == ("m_1", 8)


def test_no_match_exits_3_and_nonsense_2(world: World, spark: Driver) -> None:
    spark.batch(0, decision("m_1"))
    gone = decision("m_2")
    spark.batch(1, gone)
    world.db.execute("DELETE FROM holdfast.entry WHERE key = %s", [Key.of(gone["key"]).digest])
    for code, complaint, *arguments in (
        (ExitCode.NOTHING_MATCHED, "none ever had", "show", Key.of(["x"]).text),
        (ExitCode.NOTHING_MATCHED, "was used by batch 1", "show", Key.of(gone["key"]).text),
        (ExitCode.NOTHING_MATCHED, "no subject", "list", "--subject", "m_9"),
        (ExitCode.NOTHING_MATCHED, "no stream", "list", "--stream", "nobody"),
        (ExitCode.NOTHING_MATCHED, "never", "list", "--stream", "payouts", "--batch", "7"),
        (ExitCode.NOTHING_MATCHED, "no entry matches", "list", "--type", "nothing"),
        (ExitCode.NOTHING_MATCHED, "no entry matches", "list", "--since", "2999-01-01T00:00:00Z"),
        (ExitCode.USAGE, "is not a key", "show", "hf_1"),
        (ExitCode.USAGE, "--stream", "list", "--batch", "1"),
        (ExitCode.USAGE, "--batch", "list", "--query-id", str(spark.query_id)),
        (ExitCode.USAGE, "next_before", "list", "--before", "1; DROP TABLE entry"),
        (ExitCode.USAGE, "with a zone", "list", "--since", "2026-11-02T12:00:00"),
        (ExitCode.USAGE, "with a zone", "list", "--until", "tomorrow"),
        (ExitCode.USAGE, "limit", "list", "--limit", "0"),
        (ExitCode.USAGE, "NAME=VALUE", "list", "--data", "policy_version"),
        (ExitCode.USAGE, "--data", "list", "--show", "policy_version"),
        (ExitCode.NOTHING_MATCHED, "no entry", "list", "--data", "policy_version=v9"),
    ):
        done = world.holdfast("entries", *map(str, arguments), code=code)
        assert complaint in done.stderr
        assert "Traceback" not in done.stderr


def test_entries_are_found_by_member_of_data(world: World, spark: Driver) -> None:
    spark.batch(0, decision("m_1", 1, minor=5), decision("m_2", 1, minor=6))
    spark.batch(1, decision("m_1", 2, minor=7))
    spark.batch(2, decision("m_3", 3, minor=7), decision("m_2", 3, minor=7))
    world.db.execute(ENDPOINTS)
    world.db.execute("""
        INSERT INTO holdfast.attempt (endpoint_id, subject_id, sequence, number, finished_at,
            token, outcome, status, receipt)
        SELECT p.id, s.id, 2, 1, now(), gen_random_uuid(), 'delivered', 200, given.receipt
        FROM holdfast.endpoint p JOIN holdfast.subject s ON s.name = 'm_1'
        JOIN (VALUES ('all', '{"outcome":"applied"}'), ('blocks', NULL)) AS given (name, receipt)
          ON given.name = p.name
    """)
    wanted = ("--data", "exposure_minor=7")
    assert _listed(world.dsn, *wanted) == [("m_3", 1), ("m_2", 2), ("m_1", 2)]
    assert _listed(world.dsn, *wanted, "--limit", "1") == [("m_3", 1), ("m_2", 2), ("m_1", 2)]
    assert _listed(world.dsn, *wanted, "--subject", "m_2") == [("m_2", 2)]
    assert _listed(world.dsn, "--data", "exposure_minor=5") == [("m_1", 1)]
    (keys,) = _json(world.dsn, "list", *wanted, "--subject", "m_1")["entries"]
    assert keys["data"]["merchant_id"] == "m_1"
    assert keys["delivered"] == [
        {"endpoint": "all", "outcome": "applied"},
        {"endpoint": "blocks", "outcome": "delivered"},
    ]
    text = world.holdfast("entry", "list", *wanted, "--show", "exposure_minor").stdout
    assert "3 entries: 1 applied, 1 delivered, 2 waiting" in text


def test_members_of_data_are_shown_as_asked(world: World, spark: Driver) -> None:
    spark.batch(0, decision("m_1"))
    data = {"held": True, "subject": "of the data", "lines": [1, {"n": None}], "at": None}
    body = json.dumps({"data": data | {"[/x]": "closes nothing"}}).encode()
    world.db.execute("UPDATE holdfast.entry SET body = %s", [body])
    wanted = ["--data", "held=true"]
    for name in ("held", "subject", "lines", "at", "[/x]"):
        wanted += ["--show", name]
    done = world.holdfast("entry", "list", *wanted, code=ExitCode.OK)
    header, row = ([*map(str.strip, line[1:-1].split(mark))] for line, mark in _lines(done.stdout))
    shown = dict(zip(header, row, strict=True))
    assert shown["subject"] == "m_1"
    assert {name: cell for name, cell in shown.items() if name.startswith("data.")} == {
        "data.held": "true",
        "data.subject": "of the data",
        "data.lines": '[1, {"n": null}]',
        "data.at": "-",
        "data.[/x]": "closes nothing",
    }


def _lines(table: str) -> list[tuple[str, str]]:
    """The header and the first row, each with what separates its cells."""
    lines = table.splitlines()
    (header,) = (line for line in lines if line.startswith("┃"))
    return [(header, "┃"), (next(line for line in lines if line.startswith("│")), "│")]


SUBJECTS, BATCHES, PER_BATCH = 500, 600, 100

INDEXES = {
    "common/entry_key_find": {"pk_entry_key", "uq_batch_batch_no"},
    "entries/find": {"_batch_no_idx"},
    "entries/delivery": {"_pkey", "pk_lane"},
    "entries/of_subject": {"_pkey"},
    "entries/batches": {"uq_batch_batch_no"},
    "entries/list": {"_batch_no_idx"},
    "entries/list_data": {"_pkey"},
}


def _fill(db: psycopg.Connection) -> None:
    """Write more entries of one day than a page looks at first, a hundred in each batch."""
    assert BATCHES * PER_BATCH > 2 * SCAN_FIRST
    values = {"batches": BATCHES, "subjects": SUBJECTS, "each": PER_BATCH}
    db.execute("INSERT INTO holdfast.stream (name, query_id) VALUES ('s', gen_random_uuid())")
    db.execute(
        "INSERT INTO holdfast.subject (name)"
        " SELECT 'm_' || n FROM generate_series(1, %(subjects)s) n",
        values,
    )
    db.execute(
        "INSERT INTO holdfast.batch (stream, query_id, batch_id, run_id, epoch, row_count,"
        " entry_count, duplicate_count, differing_count, suppressed_count, quarantined_count,"
        " digest, written_at)"
        " SELECT 's', s.query_id, n, gen_random_uuid(), 1, %(each)s, %(each)s, 0, 0, 0, 0,"
        " sha256('x'), date_trunc('day', now(), 'UTC') + n * interval '30 seconds'"
        " FROM holdfast.stream s, generate_series(1, %(batches)s) n ORDER BY n",
        values,
    )
    db.execute(
        "INSERT INTO holdfast.entry (subject_id, sequence, created_at, key, type, occurred_at,"
        " priority, batch_no, body)"
        " SELECT 1 + (b.batch_id * %(each)s + n) %% %(subjects)s,"
        " 1 + (b.batch_id * %(each)s + n) / %(subjects)s, b.written_at,"
        " md5(b.batch_id || '.' || n)::uuid, 'a', b.written_at, 0, b.batch_no, %(body)s"
        " FROM holdfast.batch b, generate_series(0, %(each)s - 1) n ORDER BY b.batch_no, n",
        {**values, "body": b"{" + b" " * 300 + b"}"},
    )
    db.execute("INSERT INTO holdfast.entry_key SELECT key, key, batch_no FROM holdfast.entry")
    db.execute(
        "VACUUM ANALYZE holdfast.entry, holdfast.entry_key, holdfast.batch, holdfast.subject"
    )


def test_entries_are_found_by_index_among_many(dsn: str, db: psycopg.Connection) -> None:
    _fill(db)
    db.execute(ENDPOINTS)
    no, at, key, subject, sequence = db.execute(
        "SELECT batch_no, created_at, key, subject_id, sequence FROM holdfast.entry"
        " WHERE subject_id = 7 ORDER BY sequence LIMIT 1"
    ).fetchone() or (0, NOON, None, 0, 0)
    anything = ("stream", "before_batch_no", "before_subject_id", "before_sequence")
    values: dict[str, Any] = dict.fromkeys(anything) | {
        "key": key,
        "batch_no": no,
        "first_batch_no": no,
        "last_batch_no": no + 20,
        "up_to_batch_no": no,
        "written_at": at,
        "created_at": at,
        "first_written_at": at,
        "last_written_at": at + timedelta(minutes=10),
        "since": "-infinity",
        "until": "infinity",
        "subject_id": subject,
        "sequence": sequence,
        "type": "a",
        "member": "policy_version",
        "value": "v1",
        "batches": 10_000,
        "entries": SCAN_FIRST,
        "limit": 51,
    }
    for name, indexes in INDEXES.items():
        plan_lines = ClientCursor(db).execute(b"EXPLAIN " + statement(name), values).fetchall()
        plan = "\n".join(line for (line,) in plan_lines)
        assert {index for index in indexes if index in plan} == indexes, (name, plan)
        assert f"Seq Scan on entry_{at.astimezone(UTC):%Y%m%d}" not in plan, (name, plan)

    db.execute(
        "UPDATE holdfast.entry SET type = 'rare' WHERE batch_no = %s AND key = %s", [no, key]
    )
    [rare] = _json(dsn, "list", "--type", "rare")["entries"]
    assert (rare["subject"], rare["sequence"]) == ("m_7", sequence)
    assert _json(dsn, "show", rare["key"])["sequence"] == sequence

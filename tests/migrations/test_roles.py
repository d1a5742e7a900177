"""What each role is refused and may do: statement by statement, column by column.

Real: the server, the grants, the roles. Every statement runs in a transaction that is rolled back.
"""

from collections.abc import Iterator

import psycopg
import pytest

from tests.support.servers.databases import copy_of
from tests.support.world import World

BATCH = """
    INSERT INTO holdfast.batch (stream, query_id, batch_id, run_id, epoch, row_count, entry_count,
        duplicate_count, differing_count, suppressed_count, quarantined_count, digest, written_at)
    VALUES ('s', gen_random_uuid(), 0, gen_random_uuid(), 1, 1, 1, 0, 0, 0, 0,
        sha256('x'), now()) RETURNING batch_no
"""
ENTRY = """
    INSERT INTO holdfast.entry (subject_id, sequence, created_at, key, type, occurred_at, priority,
        batch_no, body)
    VALUES (1, 1, now(), gen_random_uuid(), 't', now(), 0, 1, '{}')
"""
ENDPOINT = """
    INSERT INTO holdfast.endpoint (name, url, secret_refs)
    VALUES ('e', 'https://example.org/', '{env:SECRET}')
"""
LANE = """
    INSERT INTO holdfast.lane (endpoint_id, subject_id, delivered_sequence, last_sequence, priority,
        head_created_at)
    SELECT id, 1, 0, 1, 0, now() FROM holdfast.endpoint
"""
ATTEMPT = """
    INSERT INTO holdfast.attempt (endpoint_id, subject_id, sequence, number, finished_at, token,
        outcome, status)
    VALUES (1, 1, 1, 1, now(), gen_random_uuid(), 'delivered', 200)
"""
OPEN_STAGE = "SELECT holdfast.open_stage('s', 1, 0)"
DROP_STAGES = "SELECT holdfast.drop_stages('s', 1)"
CONTINUE = (
    "SELECT holdfast.continue_stream('s', gen_random_uuid(), 0, sha256('x'), gen_random_uuid(), 0)"
)
RENAME_STREAM = "SELECT holdfast.rename_stream('{old}', '{new}', '{null}')"
PRUNE = "SELECT holdfast.prune_day('entry', '2020-01-01', 30, true, 'a', 'r')"
PROPOSAL = """
    INSERT INTO holdfast.proposal (id, verb, target, detail, sha256, reason, actor, person{more})
    VALUES (gen_random_uuid(), 'v', 't', '{{}}', sha256('x'), 'r', 'a', 'a'{values})
"""
ACTION = """
    INSERT INTO holdfast.operator_action (actor, action, target, reason)
    VALUES ('a', 'pause', 'e', 'because')
"""
QUARANTINED = """
    INSERT INTO holdfast.quarantine (batch_no, reason, detail, row)
    VALUES (1, 'malformed', 'd', '{')
"""
DIVERGENCE = """
    INSERT INTO holdfast.divergence (batch_no, digest, run_id, row_count, quarantined_count,
        differing_count)
    VALUES (1, sha256('x'), gen_random_uuid(), 1, 0, 1)
"""
ACCEPTED = """
    INSERT INTO holdfast.divergence (batch_no, digest, run_id, row_count, quarantined_count,
        differing_count, accepted_at, accepted_by)
    VALUES (1, sha256('x'), gen_random_uuid(), 1, 0, 1, now(), 'me')
"""

FORBIDDEN = {
    "holdfast_sink": [
        RENAME_STREAM,
        "UPDATE holdfast.entry SET body = ''",
        "DELETE FROM holdfast.entry",
        "SELECT body FROM holdfast.entry",
        "TRUNCATE holdfast.entry",
        "UPDATE holdfast.entry_key SET content = content",
        "DELETE FROM holdfast.entry_key",
        "UPDATE holdfast.batch SET digest = digest",
        "UPDATE holdfast.batch SET routed_at = now()",
        "DELETE FROM holdfast.batch",
        "UPDATE holdfast.subject SET name = name",
        "DELETE FROM holdfast.subject",
        "UPDATE holdfast.stream SET name = name",
        "DELETE FROM holdfast.stream",
        "DELETE FROM holdfast.quarantine",
        "SELECT row FROM holdfast.quarantine",
        "UPDATE holdfast.quarantine SET resolution = 'dismissed', resolved_at = now()",
        "UPDATE holdfast.divergence SET differing_count = 0",
        "UPDATE holdfast.divergence SET accepted_at = now(), accepted_by = 'me'",
        ACCEPTED,
        "DELETE FROM holdfast.divergence",
        "SELECT body FROM holdfast.divergence_row",
        "UPDATE holdfast.divergence_row SET body = NULL",
        "DELETE FROM holdfast.divergence_row",
        "DELETE FROM holdfast.exposure_window",
        "SELECT FROM holdfast.lane",
        "SELECT FROM holdfast.lane_key",
        "UPDATE holdfast.lane SET due_at = NULL",
        "SELECT FROM holdfast.endpoint",
        "SELECT FROM holdfast.attempt",
        "SELECT FROM holdfast.operator_action",
        "SELECT FROM holdfast.access_token",
        "SELECT FROM holdfast.proposal",
        "DELETE FROM holdfast.stage",
        "SELECT holdfast.days_older_than(30)",
        PRUNE,
        "UPDATE holdfast.alembic_version SET version_num = '0'",
        "CREATE TABLE holdfast.mine ()",
        "DROP TABLE holdfast.entry",
        "SET ROLE holdfast_owner",
    ],
    "holdfast_dispatcher": [
        "INSERT INTO holdfast.entry SELECT * FROM holdfast.entry",
        "UPDATE holdfast.entry SET body = body",
        "DELETE FROM holdfast.entry",
        "INSERT INTO holdfast.entry_key SELECT * FROM holdfast.entry_key",
        "DELETE FROM holdfast.entry_key",
        "UPDATE holdfast.batch SET entry_count = 0",
        "DELETE FROM holdfast.batch",
        "UPDATE holdfast.subject SET last_sequence = 0",
        "UPDATE holdfast.stream SET epoch = 0",
        "UPDATE holdfast.attempt SET outcome = 'delivered'",
        "DELETE FROM holdfast.attempt",
        "UPDATE holdfast.dead_letter SET reason = 'rejected'",
        "DELETE FROM holdfast.dead_letter",
        "DELETE FROM holdfast.lane",
        "UPDATE holdfast.lane SET subject_id = 2",
        "UPDATE holdfast.lane SET endpoint_id = 2",
        "INSERT INTO holdfast.lane_key VALUES (1, 2)",
        "DELETE FROM holdfast.lane_key",
        "UPDATE holdfast.endpoint SET url = url",
        "INSERT INTO holdfast.endpoint_pace (endpoint_id) VALUES (2)",
        "DELETE FROM holdfast.endpoint_pace",
        "UPDATE holdfast.endpoint SET secret_refs = secret_refs",
        "INSERT INTO holdfast.replay SELECT * FROM holdfast.replay",
        "UPDATE holdfast.replay SET filter = filter",
        "UPDATE holdfast.replay SET rate_per_second = 1000",
        "INSERT INTO holdfast.replay_item SELECT * FROM holdfast.replay_item",
        "UPDATE holdfast.replay_item SET key = key",
        "UPDATE holdfast.replay_item SET kind = 'resend'",
        "SELECT FROM holdfast.quarantine",
        "UPDATE holdfast.quarantine SET resolution = 'dismissed', resolved_at = now()",
        "SELECT FROM holdfast.divergence",
        "SELECT FROM holdfast.divergence_row",
        DIVERGENCE,
        "SELECT FROM holdfast.operator_action",
        "SELECT FROM holdfast.access_token",
        "SELECT FROM holdfast.proposal",
        OPEN_STAGE,
        CONTINUE,
        RENAME_STREAM,
        "CREATE TABLE holdfast.mine ()",
    ],
    "holdfast_operator": [
        "INSERT INTO holdfast.entry SELECT * FROM holdfast.entry",
        "UPDATE holdfast.entry SET body = body",
        "DELETE FROM holdfast.entry",
        "DELETE FROM holdfast.entry_key",
        "UPDATE holdfast.batch SET digest = digest",
        "UPDATE holdfast.stream SET epoch = 0",
        "UPDATE holdfast.subject SET last_sequence = 0",
        "INSERT INTO holdfast.attempt SELECT * FROM holdfast.attempt",
        "DELETE FROM holdfast.attempt",
        "UPDATE holdfast.dead_letter SET reason = 'rejected'",
        "DELETE FROM holdfast.dead_letter",
        "UPDATE holdfast.operator_action SET actor = 'somebody else'",
        "DELETE FROM holdfast.operator_action",
        "UPDATE holdfast.access_token SET role = 'admin'",
        "UPDATE holdfast.access_token SET expires_at = 'infinity'",
        "UPDATE holdfast.access_token SET owner = 'somebody'",
        "DELETE FROM holdfast.access_token",
        PROPOSAL.format(
            more=", approved_by, approved_by_person, approved_at", values=", 'b', 'b', now()"
        ),
        PROPOSAL.format(more=", created_at", values=", now()"),
        PROPOSAL.format(more=", cancelled_at", values=", now()"),
        "UPDATE holdfast.proposal SET detail = '{}'",
        "UPDATE holdfast.proposal SET sha256 = sha256('x')",
        "UPDATE holdfast.proposal SET person = 'somebody'",
        "UPDATE holdfast.replay SET person = 'somebody'",
        "UPDATE holdfast.replay SET actor = 'somebody'",
        "DELETE FROM holdfast.proposal",
        "DELETE FROM holdfast.endpoint",
        "UPDATE holdfast.endpoint_pace SET breaker = 'closed'",
        QUARANTINED,
        "UPDATE holdfast.quarantine SET row = row",
        "UPDATE holdfast.quarantine SET reason = reason",
        "UPDATE holdfast.quarantine SET detail = detail",
        "UPDATE holdfast.quarantine SET batch_no = batch_no",
        "DELETE FROM holdfast.quarantine",
        DIVERGENCE,
        "UPDATE holdfast.divergence SET differing_count = 0",
        "DELETE FROM holdfast.divergence",
        "UPDATE holdfast.divergence_row SET body = NULL",
        "DELETE FROM holdfast.divergence_row",
        OPEN_STAGE,
        CONTINUE,
        PRUNE,
        "DROP TABLE holdfast.operator_action",
    ],
    "holdfast_reader": [
        "SELECT body FROM holdfast.entry",
        "SELECT row FROM holdfast.quarantine",
        "UPDATE holdfast.quarantine SET resolution = 'dismissed', resolved_at = now()",
        "SELECT body FROM holdfast.divergence_row",
        "SELECT * FROM holdfast.divergence_row",
        DIVERGENCE,
        "SELECT response FROM holdfast.attempt",
        "SELECT detail FROM holdfast.dead_letter",
        "SELECT * FROM holdfast.dead_letter",
        "SELECT detail FROM holdfast.replay_item",
        "SELECT detail FROM holdfast.quarantine",
        "SELECT headers FROM holdfast.endpoint",
        "SELECT url FROM holdfast.endpoint",
        "SELECT * FROM holdfast.endpoint",
        "SELECT detail FROM holdfast.operator_action",
        "SELECT receipt FROM holdfast.attempt",
        "SELECT token FROM holdfast.attempt",
        "SELECT FROM holdfast.access_token",
        "SELECT FROM holdfast.proposal",
        "UPDATE holdfast.endpoint SET state = 'paused'",
        ACTION,
        "DELETE FROM holdfast.lane",
        CONTINUE,
        RENAME_STREAM,
        "SELECT holdfast.ensure_partitions()",
    ],
    "holdfast_janitor": [
        "SELECT body FROM holdfast.entry",
        "DELETE FROM holdfast.entry",
        "DELETE FROM holdfast.entry_key",
        "UPDATE holdfast.lane SET due_at = NULL",
        "SELECT FROM holdfast.quarantine",
        "SELECT FROM holdfast.divergence_row",
        OPEN_STAGE,
        CONTINUE,
        RENAME_STREAM,
        "DROP TABLE holdfast.attempt",
    ],
}

NEEDED = {
    "holdfast_sink": [
        "INSERT INTO holdfast.stream (name) VALUES ('s')",
        "SELECT FROM holdfast.stream WHERE name = 's' FOR UPDATE",
        (
            "UPDATE holdfast.stream SET epoch = epoch + 1, run_id = gen_random_uuid(),"
            " query_id = gen_random_uuid(), checkpoint = '/c', started_at = now(),"
            " adopted_at = now()"
        ),
        BATCH,
        "CREATE TEMPORARY TABLE staged (key uuid) ON COMMIT DROP",
        (
            "INSERT INTO holdfast.entry_key VALUES (gen_random_uuid(), gen_random_uuid(), 1)"
            " ON CONFLICT DO NOTHING"
        ),
        (
            "INSERT INTO holdfast.subject (name) VALUES ('m') ON CONFLICT (name)"
            " DO UPDATE SET last_sequence = subject.last_sequence + 1,"
            " last_created_at = now() RETURNING id"
        ),
        ENTRY,
        QUARANTINED,
        f"{DIVERGENCE} ON CONFLICT (batch_no, digest) DO NOTHING RETURNING id",
        (
            "INSERT INTO holdfast.divergence_row (divergence_id, key, side, body)"
            " SELECT id, gen_random_uuid(), 'changed', '{}' FROM holdfast.divergence"
        ),
        (
            "INSERT INTO holdfast.exposure_window"
            " VALUES ('s', 'm', now(), now() - '15 min'::interval, 1, 2, 'USD', 'v')"
            " ON CONFLICT (stream, merchant_id, window_end)"
            " DO UPDATE SET revision = excluded.revision, written_at = now()"
        ),
        (
            "INSERT INTO holdfast.late_event (stream, reason, event_id, merchant_id, type,"
            " amount_minor, currency, occurred_at)"
            " VALUES ('s', 'late', 'e', 'm', 't', 1, 'USD', now())"
        ),
        "SELECT max(window_end) FROM holdfast.exposure_window WHERE stream = 's'",
        (
            "SELECT FROM holdfast.subject JOIN holdfast.exposure_window ON merchant_id = name"
            " JOIN holdfast.transition ON subject_id = id WHERE last_type = 't'"
        ),
        "SELECT FROM holdfast.batch WHERE query_id = gen_random_uuid()",
        "SELECT holdfast.ensure_partitions()",
        OPEN_STAGE,
        DROP_STAGES,
        CONTINUE,
    ],
    "holdfast_dispatcher": [
        "SELECT FROM holdfast.batch WHERE routed_at IS NULL FOR UPDATE SKIP LOCKED",
        "UPDATE holdfast.batch SET routed_at = now()",
        "SELECT body FROM holdfast.entry",
        LANE,
        "SELECT FROM holdfast.lane FOR NO KEY UPDATE SKIP LOCKED",
        "UPDATE holdfast.lane SET token = gen_random_uuid(), lease_until = now(), attempt = 1",
        ATTEMPT,
        (
            "INSERT INTO holdfast.dead_letter (endpoint_id, subject_id, sequence, key, created_at,"
            " reason, detail, attempts) SELECT id, 1, 1, gen_random_uuid(), now(), 'exhausted',"
            " 'd', 1 FROM holdfast.endpoint"
        ),
        (
            "UPDATE holdfast.dead_letter SET resolution = 'redelivered', resolved_at = now(),"
            " resolved_by = 'a', window_waived = true"
        ),
        "UPDATE holdfast.replay SET state = 'applied', paid_until = now(), finished_at = now()",
        (
            "UPDATE holdfast.replay_item SET outcome = 'delivered', settled_at = now(), attempt = 1"
            ", due_at = now(), token = NULL, lease_until = NULL, detail = 'd'"
        ),
        (
            "UPDATE holdfast.endpoint SET state = 'disabled', state_reason = '410',"
            " updated_at = now()"
        ),
        "SELECT FROM holdfast.endpoint_pace FOR NO KEY UPDATE",
        "UPDATE holdfast.endpoint_pace SET failures = 1, held_until = now(), held_by = 'a 429'",
        (
            "INSERT INTO holdfast.dispatcher_instance (id, host, pid, version)"
            " VALUES (gen_random_uuid(), 'h', 1, 'v')"
        ),
        "UPDATE holdfast.dispatcher_instance SET heartbeat_at = now()",
        "DELETE FROM holdfast.dispatcher_instance",
        "SELECT holdfast.ensure_partitions()",
        "SELECT holdfast.days_older_than(30)",
    ],
    "holdfast_operator": [
        ACTION.replace("'pause', 'e'", "'stream.rename', 'new'"),
        RENAME_STREAM,
        ENDPOINT.replace("'e'", "'second'"),
        "UPDATE holdfast.endpoint SET state = 'paused', url = url",
        "UPDATE holdfast.stream SET query_id = gen_random_uuid(), adopted_at = now()",
        "UPDATE holdfast.dead_letter SET resolution = 'dismissed', resolved_at = now()",
        "SELECT body FROM holdfast.entry",
        "SELECT response FROM holdfast.attempt",
        "SELECT row FROM holdfast.quarantine",
        (
            "UPDATE holdfast.quarantine SET resolution = 'requeued', resolved_at = now(),"
            " resolved_by = 'a'"
        ),
        "SELECT body FROM holdfast.divergence_row JOIN holdfast.divergence ON id = divergence_id",
        PROPOSAL.format(more="", values="") + " RETURNING id, created_at",
        ACTION,
    ],
    "holdfast_reader": [
        "SELECT subject_id, sequence, key, type FROM holdfast.entry",
        "SELECT outcome, status, duration_ms FROM holdfast.attempt",
        "SELECT reason, resolution, resolved_at, resolved_by FROM holdfast.quarantine",
        "SELECT * FROM holdfast.divergence",
        (
            "SELECT divergence_id, key, side, subject, type, occurred_at"
            " FROM holdfast.divergence_row"
        ),
        "SELECT * FROM holdfast.stream, holdfast.batch, holdfast.subject, holdfast.lane",
        "SELECT name, state, state_reason, secret_refs FROM holdfast.endpoint",
        "SELECT key, reason, attempts, resolution FROM holdfast.dead_letter",
        "SELECT actor, action, target, reason FROM holdfast.operator_action",
        "SELECT * FROM holdfast.endpoint_pace",
        "SELECT * FROM holdfast.exposure_window, holdfast.late_event",
    ],
    "holdfast_janitor": [
        "SELECT holdfast.ensure_partitions()",
        "SELECT holdfast.days_older_than(30)",
    ],
}


@pytest.fixture(scope="module")
def shared(server_dsn: str, template_database: str) -> Iterator[psycopg.Connection]:
    """One migrated database with an endpoint; each test rolls back."""
    with copy_of(server_dsn, template_database) as dsn, psycopg.connect(dsn) as connection:
        connection.execute(ENDPOINT.encode())
        connection.execute("INSERT INTO holdfast.stream (name) VALUES ('old')")
        connection.commit()
        yield connection


def _cases(table: dict[str, list[str]]) -> list[object]:
    return [
        pytest.param(role, statement, id=f"{role.removeprefix('holdfast_')}-{statement[:60]}")
        for role, statements in table.items()
        for statement in statements
    ]


@pytest.mark.parametrize(("role", "statement"), _cases(FORBIDDEN))
def test_role_is_refused(shared: psycopg.Connection, role: str, statement: str) -> None:
    with shared.transaction(force_rollback=True):
        # SET ROLE asks what the session's user may, so the session has to be the role itself.
        shared.execute(f"SET LOCAL SESSION AUTHORIZATION {role}".encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            shared.execute(statement.encode())


@pytest.mark.parametrize("role", NEEDED)
def test_role_may_do_its_work(shared: psycopg.Connection, role: str) -> None:
    with shared.transaction(force_rollback=True):
        shared.execute(f"SET LOCAL ROLE {role}".encode())
        assert shared.execute("SELECT current_user").fetchone() == (role,)
        assert shared.execute("SELECT version_num FROM holdfast.alembic_version").fetchone()
        for statement in NEEDED[role]:
            shared.execute(statement.encode())


@pytest.mark.parametrize("role", NEEDED)
def test_no_role_reaches_partitions_by_themselves(shared: psycopg.Connection, role: str) -> None:
    partitions = shared.execute("""
        SELECT c.oid::regclass::text FROM pg_class c
        WHERE c.relispartition AND c.relkind = 'r' AND c.relnamespace = 'holdfast'::regnamespace
    """).fetchall()
    assert partitions
    for verb in ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE"):
        for (partition,) in partitions:
            row = shared.execute(
                "SELECT has_table_privilege(%s, %s, %s)", (role, partition, verb)
            ).fetchone()
            assert row == (False,), (verb, partition)


def test_public_may_nothing(shared: psycopg.Connection) -> None:
    row = shared.execute("""
        SELECT count(*) FROM pg_namespace n, aclexplode(n.nspacl) a
        WHERE n.nspname = 'holdfast' AND a.grantee = 0
    """).fetchone()
    assert row == (0,)
    # Else a role that may use the schema, as the reader, could run what runs as the owner. What
    # returns a trigger cannot be called.
    functions = shared.execute("""
        SELECT oid::regprocedure::text FROM pg_proc
        WHERE pronamespace = 'holdfast'::regnamespace AND prorettype <> 'trigger'::regtype
            AND has_function_privilege('public', oid, 'EXECUTE')
    """).fetchall()
    assert functions == []


ROWS = """
    INSERT INTO holdfast.transition VALUES (1, 's', 't', now(), now());
    INSERT INTO holdfast.stream (name) VALUES ('s')
"""
ADD_STATE = "INSERT INTO holdfast.transition VALUES (2, 's', 't', now(), now())"
KEEP = """
    INSERT INTO holdfast.suppressed
    VALUES (1, gen_random_uuid(), now(), 1, 't', now(), 0, 'repeated', NULL, '[]', '{}')
"""
MOVE = "UPDATE holdfast.transition SET last_type = 'u', last_occurred_at = now()"
TOUCH = "UPDATE holdfast.transition SET updated_at = now()"
RENAME = "UPDATE holdfast.transition SET stream = 'u'"
FORGET = ("DELETE FROM holdfast.transition", "DELETE FROM holdfast.suppressed")
CHANGE = "UPDATE holdfast.suppressed SET data = data"
READ = "SELECT key, type, cause FROM holdfast.suppressed"
CONTENT = ("SELECT data FROM holdfast.suppressed", "SELECT key_parts FROM holdfast.suppressed")
STATES = "SELECT * FROM holdfast.transition"
LOCK = "SELECT holdfast.lock_subject(1)"
ACT = "UPDATE holdfast.stream SET acts_for = 'u'"

ALLOWED = {
    "holdfast_sink": (ADD_STATE, MOVE, TOUCH, STATES, KEEP),
    "holdfast_operator": (MOVE, STATES, READ, *CONTENT, FORGET[0], LOCK),
    "holdfast_reader": (STATES, READ),
    "holdfast_dispatcher": (),
    "holdfast_janitor": (),
}
EVERYTHING = (
    LOCK,
    ADD_STATE,
    MOVE,
    TOUCH,
    RENAME,
    STATES,
    KEEP,
    *FORGET,
    CHANGE,
    READ,
    *CONTENT,
    ACT,
)


@pytest.mark.parametrize("role", ALLOWED)
def test_role_may_do_its_work_and_nothing_else(db: psycopg.Connection, role: str) -> None:
    db.execute(ROWS.encode())
    may = []
    for statement in EVERYTHING:
        with db.transaction(force_rollback=True):
            db.execute(f"SET LOCAL ROLE {role}".encode())
            try:
                with db.transaction():
                    db.execute(statement.encode())
            except psycopg.errors.InsufficientPrivilege:
                continue
            may.append(statement)
    assert set(may) == set(ALLOWED[role])


READABLE = {
    "alembic_version": "serves_from version_num",
    "attempt": """duration_ms endpoint_id error finished_at number outcome retry_at sequence status
        subject_id""",
    "batch": """batch_id batch_no differing_count digest duplicate_count entry_count epoch
        keeps_suppressed quarantined_count query_id routed_at row_count run_id source_offsets stream
        suppressed_count written_at""",
    "cancellation": "cancelled_at cancelled_by endpoint_id id key reason sequence subject_id",
    "code_session": "kind name revision seen_at works_from",
    "dead_letter": """attempts created_at died_at endpoint_id id key reason resolution resolved_at
        resolved_by sequence subject_id window_waived""",
    "dispatcher_instance": "draining heartbeat_at host id in_flight pid started_at version",
    "divergence": """accepted_at accepted_by batch_no differing_count digest found_at id
        quarantined_count row_count run_id""",
    "divergence_row": "divergence_id key occurred_at side subject type",
    "endpoint": """allow_cidrs breaker_threshold budget_seconds ca_ref client_cert_ref
        client_key_ref concurrency connect_timeout_ms created_at envelope id inquiry_path name
        order_policy rate_per_second schedule_seconds secret_refs slow_start_seconds starts_at state
        state_reason streams total_timeout_ms types updated_at""",
    "endpoint_pace": """breaker breaker_reason breaker_since breaker_until endpoint_id failures
        held_by held_until key_window_seconds key_window_seen_at openings paid_until paused probe
        stalled_since stalled_until stalled_us""",
    "entry": """batch_no created_at key occurred_at priority sequence subject_id traceparent
        type""",
    "entry_key": "batch_no content key",
    "exposure_window": """currency exposure_minor merchant_id policy_version revision stream
        window_end window_start written_at""",
    "lane": """attempt cancelled claimed_sequence delivered_sequence due_at endpoint_id
        head_created_at last_sequence lease_until on_hold_by on_hold_reason on_hold_since
        on_hold_until priority rescued routed_sequence subject_id token tried_since_us turn""",
    "lane_key": "endpoint_id subject_id",
    "late_event": """amount_minor currency event_id id merchant_id occurred_at reason stream type
        watermark written_at""",
    "operator_action": "acted_at action actor id reason target",
    "quarantine": "batch_no id quarantined_at reason resolution resolved_at resolved_by rule",
    "replay": """actor applied_at approved_at approved_by cancelled_at cancelled_by counts
        created_at filter finished_at id item_count item_limit outside_window paid_until person
        plan_sha256 rate_per_second reason state verb""",
    "replay_item": """attempt created_at due_at endpoint_id key kind lease_until new_key outcome
        place replay_id sequence settled_at subject_id""",
    "stage": "batch_id epoch id opened_at stream",
    "stream": """acts_for adopted_at checkpoint created_at epoch former_names name query_id run_id
        started_at""",
    "subject": "id last_created_at last_sequence name",
    "suppressed": """batch_no cause key occurred_at priority subject_id suppressed_at traceparent
        type""",
    "transition": "ahead last_occurred_at last_type stream subject_id updated_at",
}
"""None holds an answer, a body, a refused row or a secret; `entry_key.content` is a hash."""


def test_reader_sees_only_the_decided_columns(world: World) -> None:
    seen = world.db.execute("""
        SELECT c.relname, string_agg(a.attname, ' ' ORDER BY a.attname)
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm')
          AND a.attnum > 0 AND NOT a.attisdropped
          AND has_column_privilege('holdfast_reader', c.oid, a.attnum, 'SELECT')
        GROUP BY c.relname
    """).fetchall()
    assert {table: columns.split() for table, columns in seen} == {
        table: columns.split() for table, columns in READABLE.items()
    }


def test_every_function_uses_the_server_search_path(db: psycopg.Connection) -> None:
    query = """
        SELECT proname FROM pg_proc
        WHERE pronamespace = 'holdfast'::regnamespace
          AND NOT coalesce(proconfig @> '{"search_path=pg_catalog, pg_temp"}', false)"""
    assert db.execute(query).fetchall() == []

"""Which database a sink writes to, and the traces of its batches."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from opentelemetry import trace as api
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from holdfast.sink import BatchInput, Replayed, SchemaMismatch, Written
from holdfast.sink.errors import SinkUnavailable
from holdfast.sink.transaction.database import Timeouts
from tests.support.dispatch.dispatching import Spans, header, tracing
from tests.support.dispatch.sender import decision, table
from tests.support.job.driver import Driver, MakeDriver
from tests.support.job.job_stream import contents
from tests.support.waiting import eventually
from tests.support.world import World

MISFITS = {
    "table missing": ("DROP TABLE holdfast.entry_key", "entry_key.*does not exist"),
    "column missing": ("ALTER TABLE holdfast.transition DROP COLUMN last_type", "last_type"),
    "role without INSERT": (
        "REVOKE INSERT ON holdfast.entry FROM holdfast_sink",
        "permission denied for table entry",
    ),
    "role without SELECT": (
        "REVOKE SELECT ON holdfast.batch FROM holdfast_sink",
        "permission denied for table batch",
    ),
    "role without the schema": (
        "REVOKE USAGE ON SCHEMA holdfast FROM holdfast_sink",
        "permission denied for schema holdfast",
    ),
    "role without the function": (
        "REVOKE EXECUTE ON FUNCTION holdfast.ensure_partitions FROM holdfast_sink, PUBLIC",
        "permission denied for function ensure_partitions",
    ),
}

EVIL = """
    CREATE SCHEMA evil;
    GRANT USAGE ON SCHEMA evil TO PUBLIC;
    CREATE FUNCTION evil.set_config(text, text, boolean) RETURNS text
        LANGUAGE sql AS $$ SELECT 'evil' $$;
    CREATE FUNCTION evil.current_setting(text) RETURNS text
        LANGUAGE sql AS $$ SELECT 'on' $$;
    CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz
        LANGUAGE sql AS $$ SELECT '2001-01-01Z'::timestamptz $$;
    CREATE FUNCTION evil.convert_to(text, name) RETURNS bytea
        LANGUAGE sql AS $$ SELECT 'evil'::bytea $$;
    CREATE AGGREGATE evil.max(timestamptz)
        (SFUNC = pg_catalog.timestamptz_smaller, STYPE = timestamptz);
    CREATE FUNCTION evil.equal(text, text) RETURNS boolean
        LANGUAGE sql AS $$ SELECT false $$;
    CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.equal);
    CREATE TABLE evil.entry (nothing integer);
    CREATE DOMAIN evil.date AS text;
"""


@pytest.mark.rest
@pytest.mark.parametrize("name", MISFITS)
def test_incomplete_database_is_a_mismatch(world: World, name: str) -> None:
    statement, words = MISFITS[name]
    world.db.execute(statement.encode())
    with pytest.raises(SchemaMismatch, match=rf"{words}.*holdfast db doctor"):
        world.driver().batch(0, decision())
    assert world.db.execute("SELECT count(*) FROM holdfast.entry").fetchone() == (0,)
    assert world.db.execute("SELECT count(*) FROM holdfast.subject").fetchone() == (0,)


@pytest.mark.rest
@pytest.mark.parametrize("style", ["German", "SQL, DMY", "Postgres"])
def test_how_the_database_writes_dates_does_not_matter(world: World, style: str) -> None:
    database = sql.Identifier(str(conninfo_to_dict(world.dsn)["dbname"]))
    world.db.execute(sql.SQL("ALTER DATABASE {} SET datestyle = {}").format(database, style))
    spark = world.driver()
    for number, window in enumerate((1, 2)):
        written = spark.batch(number, decision("m_1", window, f"t{number}"))
        assert isinstance(written, Written)
        assert written.counts.entries == 1


@pytest.mark.rest
def test_user_without_temporary_tables_writes_in_the_driver(world: World, app_dsn: str) -> None:
    database = sql.Identifier(str(conninfo_to_dict(app_dsn)["dbname"]))
    for who in ("PUBLIC", "holdfast_sink"):
        world.db.execute(
            sql.SQL("REVOKE TEMPORARY ON DATABASE {} FROM {}").format(database, sql.SQL(who))
        )
    spark = world.driver(app_dsn)
    assert isinstance(spark.batch(0, decision()), Written)


@pytest.mark.rest
def test_shadowing_names_are_not_met(world: World, undisturbed: dict[str, object]) -> None:
    world.db.execute(EVIL)
    database = sql.Identifier(str(conninfo_to_dict(world.dsn)["dbname"]))
    path = "ALTER DATABASE {} SET search_path = evil, pg_catalog"
    world.db.execute(sql.SQL(path).format(database))
    spark = world.driver()
    assert isinstance(spark.batch(0, decision(), decision("m_2"), decision("")), Written)
    assert contents(world.db) | {"stream": None, "batch": None} == undisturbed
    assert world.db.execute(
        "SELECT min(created_at) > '2020-01-01' FROM holdfast.entry"
    ).fetchone() == (True,)


@pytest.fixture
def undisturbed(
    make_database: Callable[[str | None], str], template_database: str, driver: MakeDriver
) -> dict[str, object]:
    """What the batch of the test above leaves in an ordinary database."""
    dsn = make_database(template_database)
    driver(dsn).batch(0, decision(), decision("m_2"), decision(""))
    with psycopg.connect(dsn, autocommit=True) as connection:
        return contents(connection) | {"stream": None, "batch": None}


@pytest.mark.rest
def test_too_many_connections_are_waited_for(
    world: World, app_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    user = sql.Identifier(str(conninfo_to_dict(app_dsn)["user"]))
    world.db.execute(sql.SQL("ALTER ROLE {} CONNECTION LIMIT 1").format(user))
    spark = world.driver(app_dsn)
    with ThreadPoolExecutor(1) as thread:
        with psycopg.connect(app_dsn):
            writing = thread.submit(spark.batch, 0, decision())
            eventually(lambda: "too many connections" in caplog.text)
        assert isinstance(writing.result(60), Written)
    spark.sink.close()


@pytest.mark.rest
def test_sink_timeouts_override_short_database_defaults(world: World) -> None:
    database = sql.Identifier(str(conninfo_to_dict(world.dsn)["dbname"]))
    for setting in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
        alter = "ALTER DATABASE {} SET {} = '200ms'"
        world.db.execute(sql.SQL(alter).format(database, sql.Identifier(setting)))

    def also(connection: psycopg.Connection, _rows: object) -> None:
        connection.execute("SELECT pg_sleep(0.4)")

    assert isinstance(world.driver(also=also).batch(0, decision()), Written)


@pytest.mark.rest
def test_statement_timeout_of_1_ms_ends_at_the_deadline(world: World) -> None:
    impatient = Timeouts(statement_seconds=0.001, deadline_seconds=0.5)

    def also(connection: psycopg.Connection, _rows: object) -> None:
        connection.execute("SELECT pg_sleep(1)")

    with pytest.raises(SinkUnavailable, match=r"0\.5 s \(canceling statement due to statement tim"):
        world.driver(also=also, timeouts=impatient).batch(0, decision())
    assert world.db.execute("SELECT count(*) FROM holdfast.batch").fetchone() == (0,)


NOT_NOW = {
    "disk full": "53100",
    "out of shared memory": "53200",
    "serialization failure": "40001",
    "temporary file limit": "53400",
}


@pytest.mark.rest
@pytest.mark.parametrize("name", NOT_NOW)
def test_statement_that_fails_for_now_costs_one_more_attempt(world: World, name: str) -> None:
    # A sequence does not roll back: the first insert fails, the next one is let through.
    world.db.execute("CREATE SEQUENCE public.tries")
    world.db.execute("GRANT USAGE ON SEQUENCE public.tries TO holdfast_sink")
    world.db.execute(
        sql.SQL(
            "CREATE FUNCTION public.fail_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " IF nextval('public.tries') = 1 THEN"
            " RAISE EXCEPTION 'not now' USING ERRCODE = {}; END IF; RETURN NULL; END $$"
        ).format(NOT_NOW[name])
    )
    world.db.execute(
        "CREATE TRIGGER fail_once AFTER INSERT ON holdfast.batch"
        " FOR EACH ROW EXECUTE FUNCTION public.fail_once()"
    )
    assert isinstance(world.driver().batch(0, decision()), Written)
    assert world.db.execute("SELECT last_value FROM public.tries").fetchone() == (2,)


@pytest.mark.rest
def test_deadlock_in_also_is_tried_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.db.execute("CREATE TABLE public.companion AS SELECT 1 AS n")
    world.db.execute("GRANT SELECT, UPDATE ON public.companion TO holdfast_sink")
    lock = "SELECT FROM public.companion FOR UPDATE"

    def also(connection: psycopg.Connection, _rows: object) -> None:
        connection.execute(lock)

    spark = world.driver(also=also)
    spark.batch(0, decision())
    with psycopg.connect(world.dsn) as other, ThreadPoolExecutor(2) as threads:
        # The other session does not look for a deadlock, so it is the batch that is its victim.
        other.execute("SET deadlock_timeout = '10min'")
        other.execute(lock)
        writing = threads.submit(spark.batch, 1, decision("m_2"))
        waits = (
            "SELECT FROM pg_stat_activity"
            " WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        eventually(lambda: world.db.execute(waits).rowcount)
        threads.submit(other.execute, "SELECT FROM holdfast.stream FOR UPDATE").result(60)
        other.rollback()
        assert isinstance(writing.result(60), Written)
    assert "deadlock detected" in caplog.text


OWN = f"00-{7:032x}-{7:016x}-01"


@pytest.fixture
def spans() -> Iterator[Spans]:
    with tracing() as spans:
        yield spans


def _traced(*rows: dict[str, Any]) -> pa.Table:
    """Rows of which each may have a traceparent of its own."""
    own = pa.array([row.get("traceparent") for row in rows], pa.string())
    return table(*rows).append_column("traceparent", own)


def _stored(db: psycopg.Connection) -> dict[str, str | None]:
    return dict(
        db.execute("""
            SELECT name, traceparent FROM holdfast.entry
            JOIN holdfast.subject ON subject.id = entry.subject_id""").fetchall()
    )


def _digest(db: psycopg.Connection) -> bytes:
    (digest,) = db.execute("SELECT digest FROM holdfast.batch").fetchone() or (b"",)
    return bytes(digest)


def test_entry_without_traceparent_has_that_of_its_batch(world: World, spans: Spans) -> None:
    world.driver().tables(0, _traced(decision("m_1"), decision("m_2", traceparent=OWN)))
    assert _stored(world.db) == {"m_1": header(spans.one), "m_2": OWN}


def test_tracing_needs_an_sdk_but_not_the_column(world: World) -> None:
    with tracing() as spans:
        spark = world.driver()
        spark.batch(0, decision("m_1"))
    spark.batch(1, decision("m_2"))
    assert _stored(world.db) == {"m_1": header(spans.one), "m_2": None}


def test_span_tells_stream_batch_and_counts(driver: MakeDriver, spans: Spans) -> None:
    spark = driver(first_batch=3)
    spark.batch(3, decision("m_1"), decision("m_1"), decision("m_2", type_=""))
    attributes = spans.one.attributes or {}
    assert spans.one.name == "send payouts"
    assert attributes["holdfast.query_id"] == str(spark.query_id)
    assert attributes["holdfast.batch_id"] == 3
    assert attributes["holdfast.outcome"] == "written"
    assert attributes["messaging.batch.message_count"] == 1
    assert attributes["holdfast.batch.rows"] == 3
    assert attributes["holdfast.batch.duplicates"] == 1
    assert attributes["holdfast.batch.quarantined"] == 1


def test_replay_in_another_trace_keeps_the_first_traceparent(world: World, spans: Spans) -> None:
    first = world.driver()
    assert isinstance(first.batch(0, decision("m_1")), Written)
    again = world.driver(query_id=first.query_id).batch(0, decision("m_1"))
    assert isinstance(again, Replayed)
    written, replayed = spans.ended
    assert _stored(world.db) == {"m_1": header(written)}
    assert (replayed.attributes or {})["holdfast.outcome"] == "replayed"


def test_digest_does_not_depend_on_the_trace(
    make_database: Callable[[str | None], str], template_database: str
) -> None:
    digests = []
    for traced in (True, False):
        dsn = make_database(template_database)
        with psycopg.connect(dsn, autocommit=True) as db:
            spark = Driver(dsn)
            if traced:
                with tracing():
                    spark.batch(0, decision("m_1"))
            else:
                spark.batch(0, decision("m_1"))
            spark.sink.close()
            digests.append(_digest(db))
    assert digests[0] == digests[1]


def test_failed_batch_is_an_error_without_its_rows(world: World, spans: Spans) -> None:
    def also(connection: psycopg.Connection, _rows: pa.Table) -> None:
        connection.execute("SELECT 'm_482 owes 8500000'::integer")

    spark = world.driver(also=also, select=BatchInput)
    with pytest.raises(psycopg.errors.InvalidTextRepresentation, match="8500000"):
        spark.batch(0, decision("m_482"))
    span = spans.one
    assert span.status.status_code is api.StatusCode.ERROR
    assert (span.attributes or {})["db.response.status_code"] == "22P02"
    assert not any(word in span.to_json() for word in ("m_482", "8500000", "host=", "user="))
    assert _stored(world.db) == {}

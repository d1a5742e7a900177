"""COMMIT was sent, its answer is lost, and the next attempt meets a refusal: who says what is so.

Real: Postgres, its refusals, a proxy that loses the answer. Doubled: Spark.
"""

import json
import logging
import re
from collections.abc import Callable, Iterator
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

import holdfast.sink.transaction.retry
import holdfast.sink.transaction.writer
from holdfast.sink import Fenced, Replayed, SchemaMismatch, UnadoptedCheckpoint
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.errors import AccessDenied, NotPrimary, SinkError, SinkUnavailable
from holdfast.sink.requeue import requeue
from holdfast.sink.transaction.database import Timeouts
from tests.support.dispatch.sender import RELEASE, decision
from tests.support.servers.postgres_proxy import Fault, PostgresProxy
from tests.support.world import World

pytestmark = pytest.mark.rest


HASTY = Timeouts(connect_seconds=2, deadline_seconds=3)
DENIALS = re.compile(
    r"nothing (of \w+ \w+ )?(was|is) written|not written|not start|not be|changed nothing|"
    r"nothing was changed",
    re.IGNORECASE,
)
REFUSALS: dict[str, tuple[type[SinkError], str, str]] = {
    "login": (
        AccessDenied,
        "REVOKE CONNECT ON DATABASE {database} FROM PUBLIC",
        "GRANT CONNECT ON DATABASE {database} TO PUBLIC",
    ),
    "read-only": (
        NotPrimary,
        "ALTER DATABASE {database} SET default_transaction_read_only = on",
        "ALTER DATABASE {database} RESET default_transaction_read_only",
    ),
    "role": (SchemaMismatch, "REVOKE holdfast_sink FROM {user}", "GRANT holdfast_sink TO {user}"),
    "schema": (
        SchemaMismatch,
        "ALTER TABLE holdfast.alembic_version RENAME version_num TO other",
        "ALTER TABLE holdfast.alembic_version RENAME other TO version_num",
    ),
    "privilege": (
        SchemaMismatch,
        "REVOKE SELECT ON holdfast.batch FROM holdfast_sink",
        "GRANT SELECT ON holdfast.batch TO holdfast_sink",
    ),
    "adopted": (
        UnadoptedCheckpoint,
        "UPDATE holdfast.stream SET query_id = gen_random_uuid()",
        "UPDATE holdfast.stream SET query_id = (SELECT query_id FROM holdfast.batch LIMIT 1)",
    ),
    "fenced": (Fenced, "UPDATE holdfast.stream SET run_id = gen_random_uuid()", "SELECT"),
}


class Meanwhile:
    """Runs a statement between the first attempt and the second, as a filter of the log."""

    def __init__(self, db: psycopg.Connection, dsn: str) -> None:
        self._db = db
        names = conninfo_to_dict(dsn)
        self._names = {
            "database": sql.Identifier(str(names["dbname"])),
            "user": sql.Identifier(str(names["user"])),
        }
        self.statement = "SELECT"

    def __call__(self, _record: logging.LogRecord) -> bool:
        self.run(self.statement)
        self.statement = "SELECT"
        return True

    def run(self, statement: str) -> None:
        self._db.execute(sql.SQL(statement).format(**self._names))  # type: ignore[arg-type]


@pytest.fixture
def meanwhile(db: psycopg.Connection, app_dsn: str) -> Iterator[Meanwhile]:
    action = Meanwhile(db, app_dsn)
    log = logging.getLogger(holdfast.sink.transaction.retry.__name__)
    log.addFilter(action)
    yield action
    log.removeFilter(action)


@pytest.fixture
def proxy(app_dsn: str) -> Iterator[PostgresProxy]:
    with PostgresProxy(app_dsn, Fault.ANSWER_LOST) as started:
        yield started


@pytest.fixture
def before_commit(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Call something right before the COMMIT of a batch."""

    def set_action(action: Callable[[], object]) -> None:
        monkeypatch.setattr(
            holdfast.sink.transaction.writer, "failpoint", lambda name: name == "S7" and action()
        )

    return set_action


BeforeCommit = Callable[[Callable[[], object]], None]


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("name", REFUSALS)
def test_refusal_after_a_sent_commit_defers_to_the_ledger(
    world: World,
    proxy: PostgresProxy,
    meanwhile: Meanwhile,
    before_commit: BeforeCommit,
    name: str,
    staged: bool,
) -> None:
    error, statement, undo = REFUSALS[name]
    spark = world.driver(proxy.dsn, staged=staged, timeouts=HASTY)
    spark.batch(0, decision("m_1"))
    before_commit(proxy.strike)
    meanwhile.statement = statement
    with pytest.raises(error) as raised:
        spark.batch(1, decision("m_2"))
    assert proxy.struck.is_set()
    assert "ledger" in str(raised.value)
    assert not DENIALS.search(str(raised.value))
    meanwhile.run(undo)
    restarted = world.driver(query_id=spark.query_id)
    assert isinstance(restarted.batch(1, decision("m_2")), Replayed)


def test_start_whose_commit_was_not_answered_is_not_called_off(
    world: World, proxy: PostgresProxy, meanwhile: Meanwhile
) -> None:
    spark = world.driver(proxy.dsn, timeouts=HASTY)
    spark.batch(0)
    spark.run_id = uuid4()
    # A start makes partitions before, in a transaction of its own.
    proxy.strike(2)
    meanwhile.statement = REFUSALS["login"][1]
    with pytest.raises(AccessDenied) as raised:
        spark.sink.start(spark.query_id, spark.run_id)
    assert world.db.execute("SELECT run_id FROM holdfast.stream").fetchall() == [(spark.run_id,)]
    assert not DENIALS.search(str(raised.value))


def test_adoption_with_unanswered_commit_is_not_reported_as_failed(
    world: World, proxy: PostgresProxy, meanwhile: Meanwhile
) -> None:
    old, new = world.driver(proxy.dsn), uuid4()
    old.batch(0)
    proof = old.sink.proof(old.query_id, 0)
    assert proof is not None
    proxy.strike()
    meanwhile.statement = REFUSALS["login"][1]
    with pytest.raises(AccessDenied) as raised:
        old.sink.continue_from(proof, new, 0)
    assert world.db.execute("SELECT query_id FROM holdfast.stream").fetchall() == [(new,)]
    assert not DENIALS.search(str(raised.value))


def test_commit_sent_by_also_is_judged_by_the_ledger(world: World, proxy: PostgresProxy) -> None:
    def also(connection: psycopg.Connection, _rows: object) -> None:
        proxy.strike(fault=Fault.ANSWER_LOST_AND_SERVER_GONE)
        connection.execute("COMMIT")

    spark = world.driver(proxy.dsn, also=also, timeouts=HASTY)
    with pytest.raises(SinkUnavailable) as raised:
        spark.batch(0, decision())
    assert world.db.execute("SELECT count(*) FROM holdfast.entry").fetchone() == (1,)
    assert "ledger" in str(raised.value)
    assert not DENIALS.search(str(raised.value))


def test_manual_entry_with_unanswered_commit_is_not_denied(
    world: World, proxy: PostgresProxy, meanwhile: Meanwhile, before_commit: BeforeCommit
) -> None:
    world.driver(stream="a").batch(0, decision("m_1"))
    before_commit(proxy.strike)
    meanwhile.statement = REFUSALS["login"][1]
    row = json.dumps(decision("m_2", 2, RELEASE), default=lambda value: value.isoformat())
    with pytest.raises(CommandError) as raised:
        list(requeue(proxy.dsn, "a", {1: row}, suppress_repeats=True))
    assert world.db.execute("SELECT count(*) FROM holdfast.entry").fetchone() == (2,)
    assert not DENIALS.search(str(raised.value))


@pytest.mark.parametrize("staged", [False, True])
def test_refused_restart_denies_nothing_that_an_earlier_run_wrote(
    world: World, proxy: PostgresProxy, meanwhile: Meanwhile, staged: bool
) -> None:
    """Spark has no commit of the batch, so the batch comes again and the server refuses it."""
    spark = world.driver(proxy.dsn, staged=staged)
    spark.batch(0, decision())
    again = world.driver(proxy.dsn, staged=staged, query_id=spark.query_id, timeouts=HASTY)
    meanwhile.run(REFUSALS["login"][1])
    for attempt in (again.sink.check, lambda: again.batch(0, decision())):
        with pytest.raises(AccessDenied) as raised:
            attempt()
        assert not DENIALS.search(str(raised.value).replace("written by this run", ""))

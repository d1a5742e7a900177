"""The checks of `holdfast db doctor`: facts of the server, and named checks of them.

A check fails if Holdfast cannot keep a guarantee on this database, and warns if it can but an
administrator should act.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import psycopg
from psycopg.rows import dict_row

from holdfast.migrations.connect import statement
from holdfast.migrations.roles import reachable
from holdfast.migrations.upgrade import SERVER_VERSION_MIN, current
from holdfast.sink.contract.checks import Check, Level
from holdfast.sink.contract.compatibility import UTC
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.numbers import counted
from holdfast.sink.contract.roles import ALL
from holdfast.sink.contract.schema import CODE, Code, misfit

IDLE_SECONDS = 300
"""Minimum age of an open, idle transaction to report."""

STATEMENT_TIMEOUT = "10s"


@dataclass(frozen=True, slots=True)
class IdleTransaction:
    """A session with an open transaction, and how long it has been idle."""

    pid: int
    application: str
    seconds: int


@dataclass(frozen=True, slots=True)
class Holder:
    """What keeps VACUUM from freezing old rows, and its age in transactions."""

    kind: str
    """`session`, `prepared` (a prepared transaction) or `slot` (a replication slot)."""
    name: str
    """Pid, global identifier, or name."""
    age: int


@dataclass(frozen=True, slots=True)
class TransactionIds:
    """The database of the server with the oldest rows: its age decides when IDs run out."""

    database: str
    age: int
    """In transactions; Postgres stops at about 2.1 billion."""
    freeze_at: int
    """`autovacuum_freeze_max_age`: the age at which autovacuum begins to freeze."""
    holders: tuple[Holder, ...] = ()
    """The oldest ones, of those that are at least `freeze_at` old."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The state of a database, as visible to the user."""

    version: int
    """`server_version_num`: 150000 is Postgres 15.0."""
    standby: bool
    read_only: bool
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    encoding: str
    user: str
    revision: str | None
    serves_from: str | None
    unreadable: str | None
    """Why the revision could not be read; None if it could."""
    roles: Mapping[str, bool]
    """Each existing role, with whether the user can SET ROLE to it."""
    days_ahead: Mapping[str, int]
    """For each partitioned table, days after today with a partition; -1: today has none."""
    clock_difference_seconds: float
    """Database minus this host, at the middle of the round trip."""
    idle: tuple[IdleTransaction, ...]
    ids: TransactionIds


DAYS_AHEAD_MIN = 2

CLOCK_WARN_SECONDS = 5.0
CLOCK_FAIL_SECONDS = 60.0
"""A fifth of a receiver's tolerance for the timestamp of a signature."""


IDS_MAX = 2**31 - 1 - 3_000_000
"""The age, in transactions, from which Postgres gives out no transaction ID."""

IDS_FAIL = IDS_MAX - 40_000_000
"""From about here on Postgres itself warns, at each transaction."""

IDS_LATE = 300_000_000
"""Autovacuum is late: it has not frozen what it began with so many transactions ago."""


def judge(facts: Facts, code: Code = CODE) -> list[Check]:
    """Return the checks of a reachable database; `code` is the version that works on it."""
    return [
        Check("reachable", Level.OK, f"connected as {facts.user}"),
        _version(facts),
        _primary(facts),
        _setting("fsync", facts.fsync, "on"),
        _setting("full_page_writes", facts.full_page_writes, "on"),
        _synchronous_commit(facts),
        _encoding(facts),
        _revision(facts, code),
        _roles(facts),
        _memberships(facts),
        _partitions(facts),
        _clock(facts),
        _idle(facts),
        _transaction_ids(facts),
    ]


def _check(name: str, problem: bool, detail: str, advice: str, level: Level = Level.FAIL) -> Check:
    return Check(name, level, detail, advice) if problem else Check(name, Level.OK, detail)


def _version(facts: Facts) -> Check:
    major, minor = divmod(facts.version, 10_000)
    return _check(
        "server version",
        major < SERVER_VERSION_MIN,
        f"Postgres {major}.{minor}",
        f"use Postgres {SERVER_VERSION_MIN} or newer",
    )


def _primary(facts: Facts) -> Check:
    if facts.standby:
        return Check(
            "primary", Level.FAIL, "the server is a standby", "point the DSN at the primary"
        )
    return _check(
        "primary",
        facts.read_only,
        "transactions are read-only" if facts.read_only else "accepts writes",
        "set default_transaction_read_only = off for this user and database",
    )


def _setting(name: str, value: str, needed: str) -> Check:
    return _check(
        name,
        value != needed,
        value,
        f"set {name} = {needed}: a power failure may lose or corrupt committed data",
    )


def _synchronous_commit(facts: Facts) -> Check:
    return _check(
        "synchronous_commit",
        facts.synchronous_commit == "off",
        facts.synchronous_commit,
        "set synchronous_commit = on: Spark does not replay a committed batch, so a commit must"
        " survive a crash",
    )


def _encoding(facts: Facts) -> Check:
    return _check(
        "encoding",
        facts.encoding != "UTF8",
        facts.encoding,
        "create a database with ENCODING 'UTF8' and upgrade it",
    )


def _revision(facts: Facts, code: Code) -> Check:
    name = "schema revision"
    if facts.unreadable:
        return Check(name, Level.FAIL, facts.unreadable, "grant the user the roles it needs")
    reason = misfit(facts.revision, facts.serves_from, code)
    if reason is not None or facts.revision is None:
        detail, _, advice = (reason or "").rpartition(": ")
        return Check(name, Level.FAIL, detail, advice)
    older = facts.revision < code.revision
    return _check(
        name,
        older,
        f"{facts.revision}, {code.revision} is the newest" if older else facts.revision,
        "run `holdfast db upgrade`; services may run meanwhile (docs/migrations.md)",
        Level.WARN,
    )


def _roles(facts: Facts) -> Check:
    missing = [role for role in ALL if role not in facts.roles]
    return _check(
        "roles",
        bool(missing),
        f"missing: {', '.join(missing)}" if missing else f"all {len(ALL)} exist",
        "run `holdfast db upgrade` as a user with CREATEROLE",
    )


def _memberships(facts: Facts) -> Check:
    lacking = [role for role in ALL if role in facts.roles and not facts.roles[role]]
    return _check(
        "memberships",
        bool(lacking),
        f"{facts.user} cannot SET ROLE {', '.join(lacking)}"
        if lacking
        else f"{facts.user} can SET ROLE to every role",
        f'for a process that needs one: GRANT ... TO "{facts.user}" (docs/operators/database.md)',
        Level.FAIL if len(lacking) == len(facts.roles) else Level.WARN,
    )


def _partitions(facts: Facts) -> Check:
    fewest = min(facts.days_ahead.values(), default=-1)
    detail = ", ".join(
        f"{parent}: " + ("today is missing" if days < 0 else f"{counted(days, 'day')} ahead")
        for parent, days in facts.days_ahead.items()
    )
    return _check(
        "partitions",
        fewest < DAYS_AHEAD_MIN,
        detail,
        "run `holdfast db upgrade`, which creates them, and check why no service did",
        Level.FAIL if fewest < 0 else Level.WARN,
    )


def _clock(facts: Facts) -> Check:
    difference = abs(facts.clock_difference_seconds)
    side = "ahead of" if facts.clock_difference_seconds > 0 else "behind"
    return _check(
        "clock",
        difference > CLOCK_WARN_SECONDS,
        f"{difference:.1f} s {side} this host",
        "synchronize both clocks (NTP): receivers refuse signatures with a wrong time",
        Level.FAIL if difference > CLOCK_FAIL_SECONDS else Level.WARN,
    )


def _idle(facts: Facts) -> Check:
    named = ", ".join(
        f"pid {session.pid} ({session.application or 'unnamed'}, {session.seconds // 60} min)"
        for session in facts.idle
    )
    return _check(
        "open transactions",
        bool(facts.idle),
        named or f"none idle for more than {IDLE_SECONDS // 60} minutes",
        "end the session, or SELECT pg_terminate_backend(pid): it holds locks and blocks vacuum",
        Level.WARN,
    )


def _transaction_ids(facts: Facts) -> Check:
    ids = facts.ids
    left = max(0, IDS_MAX - ids.age)
    held = [_held(holder) for holder in ids.holders]
    advice = "; ".join(
        [
            *(end for _, end in held),
            "let autovacuum freeze, or run `vacuumdb --all` (not FULL: it needs IDs)",
        ]
    )
    return _check(
        "transaction IDs",
        ids.age >= min(ids.freeze_at + IDS_LATE, IDS_FAIL),
        f"{left:,} left, then nothing is written: the oldest rows of database {ids.database} are"
        f" {ids.age:,} transactions old"
        + (", held back by " + ", ".join(named for named, _ in held) if held else ""),
        advice,
        Level.FAIL if ids.age >= IDS_FAIL else Level.WARN,
    )


def _held(holder: Holder) -> tuple[str, str]:
    """Return what holds old rows back, and how an administrator ends it."""
    match holder.kind:
        case "prepared":
            named, end = (
                "prepared transaction",
                f"ROLLBACK PREPARED '{holder.name}' in its database",
            )
        case "slot":
            named, end = "replication slot", f"SELECT pg_drop_replication_slot('{holder.name}')"
        case _:
            named, end = "the transaction of pid", f"SELECT pg_terminate_backend({holder.name})"
    return f"{named} {holder.name}", end


def gather(connection: psycopg.Connection, idle_seconds: int = IDLE_SECONDS) -> Facts:
    """Read the facts; changes nothing."""
    connection.autocommit = True
    connection.execute(f"SET statement_timeout = '{STATEMENT_TIMEOUT}'".encode())
    with connection.cursor(row_factory=dict_row) as cursor:
        settings = cursor.execute(statement("settings")).fetchone() or {}
        ahead = cursor.execute(statement("partitions_ahead")).fetchall()
        idle = cursor.execute(statement("idle_transactions"), {"seconds": idle_seconds}).fetchall()
        ids = cursor.execute(statement("transaction_ids")).fetchone() or {}
        holders = cursor.execute(statement("horizon"), {"age": ids["freeze_at"]}).fetchall()
    (revision, serves_from), unreadable = _read_revision(connection)
    return Facts(
        **settings,
        user=connection.info.user,
        revision=revision,
        serves_from=serves_from,
        unreadable=unreadable,
        roles=reachable(connection),
        days_ahead={row["parent"]: row["days"] for row in ahead},
        clock_difference_seconds=_clock_difference(connection),
        idle=tuple(
            IdleTransaction(row["pid"], row["application_name"], row["seconds"]) for row in idle
        ),
        ids=TransactionIds(**ids, holders=tuple(Holder(**row) for row in holders)),
    )


def _read_revision(
    connection: psycopg.Connection,
) -> tuple[tuple[str | None, str | None], str | None]:
    try:
        return current(connection), None
    except CommandError as error:
        return (None, None), str(error)


def _clock_difference(connection: psycopg.Connection) -> float:
    before = datetime.now(UTC)
    row = connection.execute(statement("clock")).fetchone()
    after = datetime.now(UTC)
    server_time: datetime = row[0] if row else after
    return (server_time - (before + (after - before) / 2)).total_seconds()

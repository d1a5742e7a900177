"""The checks of `holdfast db doctor`: facts in, named checks out, no I/O.

A check fails if Holdfast cannot keep a guarantee on this database, and warns if it can but an
administrator should act.
"""

from holdfast.migrations.facts import IDLE_SECONDS, Facts, Holder
from holdfast.migrations.upgrade import SERVER_VERSION_MIN
from holdfast.sink.contract.checks import Check, Level
from holdfast.sink.contract.roles import ALL
from holdfast.sink.contract.schema import CODE, Code, misfit

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
        f"{parent}: {'today is missing' if days < 0 else f'{days} days ahead'}"
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
        f"pid {found.pid} ({found.application or 'unnamed'}, {found.seconds // 60} min)"
        for found in facts.idle
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

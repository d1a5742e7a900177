"""The checks of `holdfast config check`: facts in, named results out. Pure.

A check fails when commands cannot work from here, and warns when they can but an operator should
act. It judges secrets by what is readable here: a dispatcher may run elsewhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.sink.contract.checks import Check, Level
from holdfast.sink.contract.roles import ALL, DISPATCHER, OPERATOR
from holdfast.sink.contract.schema import misfit

CLOCK_WARN_SECONDS = 5.0
CLOCK_FAIL_SECONDS = 60.0
"""Same limits as `holdfast db doctor`: a fifth of a receiver's tolerance for timestamps."""


@dataclass(frozen=True, slots=True)
class Database:
    """The database of a DSN, as far as it could be read."""

    dsn: str | None
    """Redacted; None if there is none, or libpq cannot parse it."""
    fault: str | None = None
    """Why nothing else is known."""
    server: str | None = None
    user: str | None = None
    revision: str | None = None
    serves_from: str | None = None
    roles: Mapping[str, bool] | None = None
    """Each existing role, with whether the user may SET ROLE to it."""
    clock_difference_seconds: float = 0.0
    """The database's clock minus this host's."""


@dataclass(frozen=True, slots=True)
class References:
    """Whether an endpoint's references can be resolved here."""

    endpoint: str
    fault: str | None
    exposed: tuple[str, ...]
    """Files with secrets that every user of this machine can read."""


def judge(
    unknown: Mapping[str, str | None],
    unfit: Sequence[str],
    engine: tuple[str | None, str | None],
    database: Database,
    references: Sequence[References],
) -> list[Check]:
    """Return every check.

    `unknown` and `unfit` are results of `config.settings`, `engine` is one of
    `config.environment`.
    """
    checks = [_variables(unknown), *_unfit(unfit), _engine(*engine), _database(database)]
    if database.fault is None:
        checks += [_schema(database), _roles(database), _clock(database)]
    return [*checks, *_secrets(references)]


def _variables(unknown: Mapping[str, str | None]) -> Check:
    name = "variables"
    if not unknown:
        return Check(name, Level.OK, "every HOLDFAST_ variable that is set is read")
    names = ", ".join(
        f"{each} (did you mean {nearest}?)" if nearest else each
        for each, nearest in unknown.items()
    )
    return Check(name, Level.WARN, f"not a known setting: {names}", "correct or unset them")


def _unfit(names: Sequence[str]) -> list[Check]:
    if not names:
        return []
    return [
        Check(
            "values",
            Level.WARN,
            f"an invalid value, or a setting for tests only: {', '.join(names)}",
            "correct or unset them; `holdfast config show` explains each",
        )
    ]


def _engine(name: str | None, fault: str | None) -> Check:
    if name is None:
        return Check(
            "engine",
            Level.WARN,
            f"nothing can be sent from here: {fault}",
            "where a dispatcher runs: pip install '/path/to/holdfast[dispatcher]'",
        )
    return Check("engine", Level.OK, name)


def _database(database: Database) -> Check:
    if database.fault is not None:
        return Check(
            "database",
            Level.FAIL,
            database.fault,
            "check --dsn or HOLDFAST_DSN, or start one with `holdfast local up`",
        )
    return Check("database", Level.OK, f"{database.server} at {database.dsn}")


def _schema(database: Database) -> Check:
    reason = misfit(database.revision, database.serves_from)
    if reason is None:
        return Check("schema", Level.OK, f"revision {database.revision}")
    detail, _, advice = reason.rpartition(": ")
    return Check("schema", Level.FAIL, detail, advice)


def _roles(database: Database) -> Check:
    roles = database.roles or {}
    lacking = [role for role in ALL if not roles.get(role)]
    if not lacking:
        return Check("roles", Level.OK, f"{database.user} may act as every role")
    return Check(
        "roles",
        Level.FAIL if OPERATOR in lacking else Level.WARN,
        f"{database.user} may not act as {', '.join(lacking)}",
        f"operators need {OPERATOR}, `holdfast dispatch` {DISPATCHER}: GRANT ... TO"
        f' "{database.user}" (docs/operators/database.md)',
    )


def _clock(database: Database) -> Check:
    difference = abs(database.clock_difference_seconds)
    side = "ahead of" if database.clock_difference_seconds > 0 else "behind"
    detail = f"the database is {difference:.1f} s {side} this host"
    if difference <= CLOCK_WARN_SECONDS:
        return Check("clock", Level.OK, detail)
    return Check(
        "clock",
        Level.FAIL if difference > CLOCK_FAIL_SECONDS else Level.WARN,
        detail,
        "synchronise both clocks (NTP): receivers refuse signatures from another time",
    )


def _secrets(references: Sequence[References]) -> list[Check]:
    checks = [
        Check(
            f"secrets of {each.endpoint}",
            Level.WARN,
            each.fault,
            "nothing can be sent to it from here; make sure that its dispatcher has these secrets",
        )
        for each in references
        if each.fault is not None
    ]
    checks += [
        Check(
            f"secrets of {each.endpoint}",
            Level.WARN,
            f"every user of this machine can read {', '.join(each.exposed)}",
            "chmod 600 them",
        )
        for each in references
        if each.exposed
    ]
    readable = sum(each.fault is None and not each.exposed for each in references)
    if readable:
        endpoints = "1 endpoint" if readable == 1 else f"{readable} endpoints"
        checks.insert(0, Check("secrets", Level.OK, f"those of {endpoints} can be read here"))
    return checks

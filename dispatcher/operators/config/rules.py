"""What `holdfast config check` thinks of a configuration: facts in, named checks out. Pure.

A check fails when commands cannot work from here, and warns when they still can but somebody should
act. What it knows of secrets is what can be read from here: a dispatcher may run elsewhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sink.contract.exits import ExitCode
from sink.contract.roles import ALL, DISPATCHER, OPERATOR
from sink.contract.schema import SCHEMA_REVISION

CLOCK_WARN_SECONDS = 5.0
CLOCK_FAIL_SECONDS = 60.0
"""As `holdfast db doctor`: a fifth of what a receiver tolerates in a signature's timestamp."""


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report; `advice` is empty where nothing is to be done."""

    name: str
    level: Level
    detail: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Database:
    """What the database of a DSN is, as far as it could be looked at."""

    dsn: str | None
    """Redacted; None where it cannot be read, or there is none."""
    fault: str | None = None
    """Why nothing more is known."""
    server: str | None = None
    user: str | None = None
    revision: str | None = None
    roles: Mapping[str, bool] | None = None
    """Each role that exists, with whether the user may take it on."""
    clock_difference_seconds: float = 0.0
    """Database minus this host."""


@dataclass(frozen=True, slots=True)
class References:
    """What an endpoint's references are worth here."""

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

    `unknown` and `unfit` are variables as `config.settings` finds them, `engine` the engine
    that would send, and why there is none.
    """
    checks = [_variables(unknown), *_unfit(unfit), _engine(*engine), _database(database)]
    if database.fault is None:
        checks += [_schema(database), _roles(database), _clock(database)]
    return [*checks, *_secrets(references)]


def exit_code(checks: Sequence[Check]) -> ExitCode:
    """Return 1 when a check failed, else 4 when one warned, else 0."""
    levels = {check.level for check in checks}
    if Level.FAIL in levels:
        return ExitCode.FAILED
    return ExitCode.DEGRADED if Level.WARN in levels else ExitCode.OK


def _variables(unknown: Mapping[str, str | None]) -> Check:
    name = "variables"
    if not unknown:
        return Check(name, Level.OK, "every HOLDFAST_ variable that is set is read")
    said = ", ".join(
        f"{each} (did you mean {nearest}?)" if nearest else each
        for each, nearest in unknown.items()
    )
    return Check(name, Level.WARN, f"nobody reads {said}", "correct or unset them")


def _unfit(names: Sequence[str]) -> list[Check]:
    if not names:
        return []
    return [
        Check(
            "values",
            Level.WARN,
            f"no value that works, or one that is for tests alone: {', '.join(names)}",
            "correct or unset them; `holdfast config show` has what each is for",
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
    name, found = "schema", database.revision
    if found == SCHEMA_REVISION:
        return Check(name, Level.OK, f"revision {found}")
    # Revisions are numbered in order, so the text tells old from new.
    newer = found is not None and found > SCHEMA_REVISION
    return Check(
        name,
        Level.FAIL,
        f"revision {found or 'none'}, {SCHEMA_REVISION} is needed",
        "use the version of Holdfast that the database was upgraded for"
        if newer
        else "run `holdfast db upgrade`",
    )


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
            "nothing can be sent to it from here; see that its dispatcher has what is named",
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

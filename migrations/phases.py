"""The two phases of a change of the schema, and who must not run when it is contracted or undone.

An expand revision leaves a schema on which the version before works. A contract revision does not:
its `serves_from` is the oldest code that may work on it. A file's name says which one it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from alembic.script import ScriptDirectory
from psycopg.rows import class_row

from holdfast.migrations.connect import statement
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.schema import SESSIONS_SINCE

FIRST = "0032"
"""The first revision whose file is named for its phase."""

UNRECORDED = f"{int(SESSIONS_SINCE) - 1:04}"
"""The newest code that does not record which range it has."""

NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class Step:
    """One revision."""

    revision: str
    before: str
    """The revision to which its downgrade leads."""
    name: str
    """Its file, without the ending."""
    serves_from: str | None
    """The oldest code on a contracted schema; None: not a contract revision."""

    @property
    def expands(self) -> bool:
        return self.name.startswith(f"{self.revision}_expand_")


@dataclass(frozen=True, slots=True)
class Session:
    """A process that ran within a day; without a range its code is older than revision 0032."""

    kind: str
    name: str
    revision: str | None
    works_from: str | None
    seen_at: datetime

    def __str__(self) -> str:
        built = self.revision or f"{UNRECORDED} or before"
        seen = f"{self.seen_at:%Y-%m-%d %H:%M:%S %Z}"
        return f"{self.kind} {self.name} (built for {built}, last seen {seen})"


def steps_after(directory: ScriptDirectory, revision: str | None) -> list[Step]:
    """Return the revisions above `revision` (None: all), in order."""
    found = [_step(each) for each in directory.walk_revisions()]
    return [each for each in reversed(found) if revision is None or each.revision > revision]


def running(raw: psycopg.Connection) -> list[Session]:
    """Return every process that ran within a day; the database has revision 0032 or newer."""
    with raw.cursor(row_factory=class_row(Session)) as cursor:
        return cursor.execute(statement("code_sessions")).fetchall()


def refuse_contract(step: Step, sessions: Sequence[Session]) -> None:
    """Raise `CommandError` if code ran within a day that the contracted schema does not serve."""
    serves_from = step.serves_from or ""
    older = [each for each in sessions if (each.revision or UNRECORDED) < serves_from]
    if older:
        raise CommandError(
            f"revision {step.name} serves only code built for {serves_from} or later, and older"
            f" code ran within a day: {_named(older)}. Nothing was changed, and it goes on."
            " Replace these processes, and run this again; `holdfast db upgrade --expand` runs the"
            " revisions before it now. Where they have ended for good, add --force."
        )


def refuse_downgrade(
    revision: str, undone: Sequence[Step], sessions: Sequence[Session], *, force: bool
) -> None:
    """Raise `CommandError` unless `undone` are expand revisions, and no process needs them."""
    kept = next((each for each in undone if not each.expands), None)
    if kept is not None:
        raise CommandError(
            f"revision {kept.name} cannot be undone: only revisions named expand can, up to the"
            " newest contract revision. Nothing was changed; restore a backup, or go on with the"
            " version that the database serves."
        )
    newer = [each for each in sessions if (each.works_from or UNRECORDED) > revision]
    if newer and not force:
        raise CommandError(
            f"code that does not work on revision {revision} ran within a day: {_named(newer)}."
            " Nothing was changed, and it goes on. Replace these processes by the older version,"
            " and run this again. Where they have ended for good, add --force."
        )


def _step(script: Any) -> Step:
    return Step(
        script.revision,
        script.down_revision or "base",
        script.path.rpartition("/")[2].removesuffix(".py"),
        getattr(script.module, "serves_from", None),
    )


def _named(sessions: Sequence[Session]) -> str:
    more = len(sessions) - NAMED_MAX
    shown = ", ".join(map(str, sessions[:NAMED_MAX]))
    return f"{shown} and {more} more" if more > 0 else shown

"""Subjects as a person looks for them: by name, by what holds them up, or one with its lanes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from dispatcher.operators.common.session import Row, operator_connection
from dispatcher.operators.entries.store import Entries, Wanted
from dispatcher.operators.subjects.names import beyond
from sink.contract.exits import CommandError, ExitCode
from sink.contract.key import Key

HELD_MAX = 4_000
"""Lanes of a kind and an endpoint that are gathered; where there are more, names are walked."""

LOOK_AT_FIRST = 1_000
LOOK_AT_MAX = 20_000
"""Names that one page looks through at first, and at most."""

WAITING_MAX = 1_001
"""As many entries of a lane are counted."""

ENTRIES_SHOWN = 20


class Held(StrEnum):
    """How the lanes of a subject can be held up; each lane in one way, or in none."""

    STOPPED = "stopped"
    """Behind a dead letter: it waits for a person."""

    RETRYING = "retrying"
    """Its head was tried, and waits to be tried again."""

    BEHIND = "behind"
    """It has something that was not tried yet, or is being sent."""

    ANY = "any"


@dataclass(frozen=True, slots=True)
class WantedSubjects:
    """Which subjects."""

    prefix: str = ""
    """What the name begins with, to the letter."""

    held: Held | None = None
    """Only those of which a lane is held up in this way; None: all of them."""

    silenced: bool = False
    """Only those with a transition state more than a day ahead of the clock; 4,000 at most."""


class Subjects(Entries):
    """Reads of subjects; use `subjects(dsn)` to get it."""

    def subjects(
        self, wanted: WantedSubjects, *, limit: int, after: str | None = None
    ) -> tuple[list[Row], str | None]:
        """Return subjects in the order of their names' bytes, and after which name more follow.

        A row has `name`, `last_sequence`, `last_type`, `last_created_at`, how many `lanes` it has,
        how many of them are `stopped`, `retrying` and `behind`, `undelivered` (sequences of the
        lane that is furthest back, also those of types that its endpoint does not take) and
        `oldest_due_at`.

        The name is None where nothing is left. With `held` a page may be short, or empty, though
        names follow: it looks through 20,000 at most where very many lanes are held up.
        """
        given: Row = {
            "prefix": wanted.prefix,
            "beyond": beyond(wanted.prefix),
            "after": after or "",
            "limit": limit + 1,
        }
        until: str | None = None
        if wanted.silenced and wanted.held is not None:
            raise CommandError(
                "held and silenced are two lists: ask for one of them. Nothing was changed.",
                ExitCode.USAGE,
            )
        if wanted.silenced:
            found = self._one("subjects/silenced_ids", {"most": HELD_MAX})
            rows = self._all("subjects/list_of", {**given, **found})
        elif wanted.held is None:
            rows = self._all("subjects/list", given)
        else:
            ids, until = self._held(wanted.held, given)
            rows = self._all("subjects/list_of", {**given, "ids": ids})
        if len(rows) > limit:
            return rows[:limit], rows[limit - 1]["name"]
        return rows, until

    def subject(self, name: str) -> Row:
        """Return a subject with its `lanes` and, the newest first, its last 20 `entries`.

        `last_type` and `last_occurred_at` are those of the state that was moved last, of all
        `transitions`: one for each stream that writes it, with `stream`, `last_type`,
        `last_occurred_at`, `updated_at` and whether it is `ahead` of the clock by more than a day.
        A lane has `endpoint`, `endpoint_state`, `order_policy`, `state` (a `LaneState`), `held` (a
        `Held`, or None), `delivered_sequence`, `last_sequence`, `waiting` (entries, 1,001 at most),
        its head (`head_sequence`, `head_key`, `head_type`, `head_created_at`), the head's `attempt`
        and how many of these were `rescued`, `priority`, `due_at`, `lease_until`, what stops it
        (`dead_letter`, `dead_reason`, `died_at`), `breaker`, `breaker_until` and `held_until`.

        Raises `CommandError` (nothing matched) where no subject has this name.
        """
        found = self._maybe("subjects/find", {"subject": name})
        if found is None:
            raise CommandError(
                f"no subject is called {name!r}. Nothing was changed; names are compared exactly"
                " (`holdfast subjects list --prefix`).",
                ExitCode.NOTHING_MATCHED,
            )
        subject_id = found.pop("id")
        lanes = self._all("subjects/lanes", {"subject_id": subject_id, "waiting_max": WAITING_MAX})
        entries, _ = self.newest(Wanted(subject=name), limit=ENTRIES_SHOWN)
        return {
            **found,
            "transitions": self._all("subjects/transitions", {"subject_id": subject_id}),
            "lanes": [{**lane, "head_key": _text(lane["head_key"])} for lane in lanes],
            "entries": entries,
        }

    def _held(self, held: Held, given: Row) -> tuple[list[int], str | None]:
        """Return the numbers of subjects that are held up, and the name up to which, if not all."""
        found = self._one("subjects/held_ids", {"held": held.value, "most": HELD_MAX})
        if found["complete"]:
            return found["ids"], None
        ids: list[int] = []
        after, looked_at, look_at = given["after"], 0, LOOK_AT_FIRST
        while looked_at < LOOK_AT_MAX and len(ids) < given["limit"]:
            walked = self._one(
                "subjects/walk",
                {**given, "held": held.value, "after": after, "look_at": look_at},
            )
            ids += walked["ids"]
            if walked["looked_at"] < look_at:
                return ids, None
            after = walked["until"]
            looked_at += look_at
            look_at = min(4 * look_at, LOOK_AT_MAX - looked_at) or LOOK_AT_FIRST
        return ids, after


@contextmanager
def subjects(dsn: str | None) -> Iterator[Subjects]:
    """Connect in the operator's role; raises `CommandError` when that is not possible."""
    with operator_connection(dsn) as connection:
        yield Subjects(connection)


def _text(key: UUID | None) -> str | None:
    return None if key is None else Key(key).text

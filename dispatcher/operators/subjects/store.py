"""Subjects: by name, by what holds them up, one with its lanes; and the repair of a silenced one.

One person proposes the new transition state, a second one approves it. It is applied under the
subject's row lock, which the sink takes too, and only to the state that the proposal names.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from dispatcher.operators.common.session import Row
from dispatcher.operators.entries.store import Entries, Wanted
from dispatcher.operators.proposals.store import Proposals
from dispatcher.operators.subjects.rules import By, State, beyond, state_after
from dispatcher.shared.text import one_line
from sink.contract.canonical import rfc3339
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
    """Reads of subjects."""

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
            rows = self._all("subjects/list", {**given, **found})
        elif wanted.held is None:
            rows = self._all("subjects/list", {**given, "ids": None})
        else:
            ids, until = self._held(wanted.held, given)
            rows = self._all("subjects/list", {**given, "ids": ids})
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


def _text(key: UUID | None) -> str | None:
    return None if key is None else Key(key).text


TOLERANCE = timedelta(days=1)
"""How far ahead of the clock a state may be without being one to repair."""

OVERTAKEN_SHOWN = 1_000

VERB = "subjects.repair"


class Repairs(Proposals):
    """Subjects to repair."""

    def states(self, subject: str, tolerance: timedelta = TOLERANCE) -> Row:
        """Return `subject`, `subject_id` and its `states`, one for each stream.

        A state has `stream`, `last_type`, `last_occurred_at`, `updated_at`, whether it is `ahead`
        of the clock by more than `tolerance` (`latest` is that limit), and what it would be by the
        entries that are stored:

        - `stored_type`: of the newest entry, whatever its date, because receivers have applied it;
        - `stored_occurred_at`: the latest that is not beyond the clock and the tolerance.

        Both are None where nothing such is stored. A state that is ahead has also `overtaken` (the
        first 1,000 decisions that were suppressed since: `key`, `type`, `occurred_at`,
        `suppressed_at`, `stream`, `batch_id`) and `overtaken_count`; of others these are empty.
        Raises `CommandError` (nothing matched) where no subject has this name.
        """
        with self._transaction():
            self._run("subjects/repair_snapshot")
            subject_id = self._subject_id(subject)
            given = {"subject_id": subject_id, "tolerance": tolerance}
            states = [
                self._with_overtaken(row, given)
                for row in self._all("subjects/repair_states", given)
            ]
        return {"subject": subject, "subject_id": subject_id, "states": states}

    def propose_repair(self, subject: str, stream: str, by: By, reason: str) -> Row:
        """Propose another transition state for a silenced subject; nothing of it is changed.

        Returns `subject`, `stream`, `state` (of `look`), `after` (None: no state), `proposal`,
        `planned_by` and `approved_by`. Raises `CommandError` where the state is not ahead, or where
        `by` says what the stored entries say already, or does not say what they cannot.
        """
        found = self.states(subject)
        state = next((each for each in found["states"] if each["stream"] == stream), None)
        if state is None:
            raise CommandError(
                f"{one_line(subject)} has no transition state in a stream {stream!r}. Nothing was"
                " changed; `holdfast subjects show` lists its states.",
                ExitCode.NOTHING_MATCHED,
            )
        after = state_after(state, by)
        detail = {
            "subject_id": found["subject_id"],
            "stream": stream,
            "before": _said(state),
            "after": after and after.said(),
        }
        made = self.propose(VERB, _target(subject), detail, reason)
        return {
            "subject": subject,
            "stream": stream,
            "state": state,
            "after": detail["after"],
            "proposal": made["id"],
            "planned_by": made["actor"],
            "approved_by": made["approved_by"],
        }

    def apply_repair(self, subject: str, proposal: UUID, reason: str) -> Row:
        """Do what a second person approved, all of it or nothing.

        Returns `subject`, `stream`, `proposal`, `before`, `after`, `planned_by` and `approved_by`.
        Raises `CommandError` where
        the proposal may not be applied, or where the state is not the one it was made for.
        """
        with self.applying(proposal, VERB, _target(subject)) as plan:
            detail = plan["detail"]
            given = {name: detail[name] for name in ("subject_id", "stream")}
            self._run("subjects/repair_lock", given)
            now = self._maybe("subjects/repair_state", given)
            if now is None or _said(now) != detail["before"]:
                raise _moved(proposal)
            after = detail["after"]
            if after is None:
                self._run("subjects/repair_forget", given)
            else:
                moment = datetime.fromisoformat(after["last_occurred_at"])
                self._run("subjects/repair_move", {**given, **after, "last_occurred_at": moment})
            done = {
                "subject": subject,
                "stream": detail["stream"],
                "proposal": proposal,
                "before": detail["before"],
                "after": after,
                "planned_by": plan["actor"],
                "approved_by": plan["approved_by"],
            }
            self._audit(VERB, plan["target"], reason, done)
        return done

    def _with_overtaken(self, state: Row, given: Row) -> Row:
        rows = []
        if state["ahead"]:
            rows = self._all(
                "subjects/repair_overtaken", {**given, **state, "limit": OVERTAKEN_SHOWN}
            )
        return {
            **{name: value for name, value in state.items() if name != "ahead_since"},
            "overtaken_count": rows[0]["count"] if rows else 0,
            "overtaken": [
                {name: row[name] for name in row if name != "count"} | {"key": Key(row["key"]).text}
                for row in rows
            ],
        }


def _target(subject: str) -> str:
    return f"subject {subject}"


def _said(state: Row) -> Row:
    """Return a state as a proposal has it; each change by the sink makes it another one."""
    said = State(state["last_type"], state["last_occurred_at"]).said()
    return {**said, "updated_at": rfc3339(state["updated_at"])}


def _moved(proposal: UUID) -> CommandError:
    short = proposal.hex[:8]
    return CommandError(
        f"the transition state is not the one that proposal {short} was made for: a decision was"
        " written since, or it was repaired. Nothing was changed; end the proposal with `holdfast"
        f" proposal cancel {short} --reason TEXT`, look at the subject, and propose again where it"
        " is still silenced."
    )

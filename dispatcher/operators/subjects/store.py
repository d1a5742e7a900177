"""Subjects: by name, by what holds them up, one with its lanes; and the repair of a silenced one.

One person proposes the new transition state, a second one approves it. It is applied under the
subject's row lock, which the sink takes too, and only to the state that the proposal names.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated
from uuid import UUID

from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.verbs import Kind, Param
from holdfast.dispatcher.operators.entries.store import Entries, Filter
from holdfast.dispatcher.operators.proposals.store import Proposals
from holdfast.dispatcher.operators.subjects.rules import By, State, beyond, hold_of, state_after
from holdfast.dispatcher.shared.text import one_line
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key

HELD_MAX = 4_000
"""Lanes of a kind and endpoint that one statement collects; with more, names are scanned."""

SCAN_FIRST = 1_000
SCAN_MAX = 20_000
"""Names that one page scans at first, and at most."""

WAITING_MAX = 1_001
"""Maximum count of a lane's waiting entries."""

ENTRIES_SHOWN = 20


class Held(StrEnum):
    """Why a lane of a subject waits; each lane has one reason, or none."""

    STOPPED = "stopped"
    """Behind a dead letter: it waits for a person."""

    RETRYING = "retrying"
    """Its head failed and waits for a retry."""

    BEHIND = "behind"
    """Its head is in flight, or was not tried yet."""

    ON_HOLD = "on_hold"
    """An operator holds it, whatever else it waits for and even if nothing waits."""

    ANY = "any"


SILENCED = "Only subjects silenced by a decision dated more than a day ahead; at most 4,000."


@dataclass(frozen=True, slots=True)
class SubjectFilter:
    """A filter of subjects. `held`: only those with such a lane."""

    prefix: Annotated[
        str, Param("Prefix of the name.", Kind.TEXT, "Only names with exactly this prefix.")
    ] = ""
    held: Annotated[Held | None, Param("Only subjects with a lane in this state.")] = None
    silenced: Annotated[bool, Param(SILENCED)] = False


class Subjects(Entries):
    """Reads of subjects."""

    def subjects(
        self, filter_: SubjectFilter, *, limit: int, after: str | None = None
    ) -> tuple[list[Row], str | None]:
        """Return subjects in byte order of their names, and the `after` of the next page, or None.

        A row has `name`, `last_sequence`, `last_type`, `last_written_at`, the count of `lanes` and
        of those that are `stopped`, `retrying`, `behind` and `on_hold`, `undelivered` (sequences
        that the slowest lane has not passed, also of types that its endpoint does not take) and
        `oldest_due_at` (of lanes that are not on hold).

        With `held` a page may be short, or empty, although names follow: with very many such lanes
        it scans at most 20,000 names.
        """
        parameters: Row = {
            "prefix": filter_.prefix,
            "beyond": beyond(filter_.prefix),
            "after": after or "",
            "limit": limit + 1,
        }
        until: str | None = None
        if filter_.silenced and filter_.held is not None:
            raise CommandError(
                "held and silenced are two lists: give one of them. Nothing was changed.",
                ExitCode.USAGE,
                code="conflicting_parameters",
            )
        if filter_.silenced:
            silenced = self._one("subjects/silenced_ids", {"most": HELD_MAX})
            rows = self._all("subjects/list", {**parameters, **silenced})
        elif filter_.held is None:
            rows = self._all("subjects/list", {**parameters, "ids": None})
        else:
            ids, until = self._held(filter_.held, parameters)
            rows = self._all("subjects/list", {**parameters, "ids": ids})
        if len(rows) > limit:
            return rows[:limit], rows[limit - 1]["name"]
        return rows, until

    def subject(self, name: str) -> Row:
        """Return a subject with its `lanes` and its last 20 `entries`, the newest first.

        `last_type` and `last_occurred_at` are those of the newest of its `transitions`: one for
        each stream that writes it, with `stream`, `last_type`, `last_occurred_at`, `updated_at` and
        whether it is `ahead` of the clock by more than a day.
        A lane has `endpoint`, `endpoint_state`, `order_policy`, `state` (a `LaneState`), `held` (a
        `Held`, or None), `delivered_sequence`, `last_sequence`, `waiting` (entries, at most 1,001),
        its head (`head_sequence`, `head_key`, `head_type`, `head_written_at`), the head's `attempt`
        and how many of these were `rescued`, `priority`, `due_at`, `lease_until`, what stops it
        (`dead_letter`, `dead_reason`, `died_at`), `breaker`, `breaker_until`, `held_until` and its
        hold by an operator (`on_hold`: `since`, `until`, `by`, `reason`).

        Raises `CommandError` (nothing matched) for an unknown subject.
        """
        row = self._maybe("subjects/find", {"subject": name})
        if row is None:
            raise CommandError(
                f"no subject is called {name!r}. Nothing was changed; names are compared exactly"
                " (`holdfast subject list --prefix`).",
                ExitCode.NOTHING_MATCHED,
                code="unknown_subject",
            )
        subject_id = row.pop("id")
        lanes = self._all("subjects/lanes", {"subject_id": subject_id, "waiting_max": WAITING_MAX})
        entries, _ = self.newest(Filter(subject=name), limit=ENTRIES_SHOWN)
        return {
            **row,
            "transitions": self._all("subjects/transitions", {"subject_id": subject_id}),
            "lanes": [
                {**lane, "head_key": _text(lane["head_key"]), "on_hold": hold_of(lane["on_hold"])}
                for lane in lanes
            ],
            "entries": entries,
        }

    def _held(self, held: Held, parameters: Row) -> tuple[list[int], str | None]:
        """Return the ids of subjects with such lanes, and the last scanned name if not all."""
        held_ids = self._one("subjects/held_ids", {"held": held.value, "most": HELD_MAX})
        if held_ids["complete"]:
            return held_ids["ids"], None
        ids: list[int] = []
        after, scanned, scan = parameters["after"], 0, SCAN_FIRST
        while scanned < SCAN_MAX and len(ids) < parameters["limit"]:
            walked = self._one(
                "subjects/walk",
                {**parameters, "held": held.value, "after": after, "scan": scan},
            )
            ids += walked["ids"]
            if walked["scanned"] < scan:
                return ids, None
            after = walked["until"]
            scanned += scan
            scan = min(4 * scan, SCAN_MAX - scanned) or SCAN_FIRST
        return ids, after


def _text(key: UUID | None) -> str | None:
    return None if key is None else Key(key).text


TOLERANCE = timedelta(days=1)
"""How far ahead of the clock a state may be before it counts as `ahead`."""

OVERTAKEN_SHOWN = 1_000

VERB = "subjects.repair"


class Repairs(Proposals):
    """Repairs of silenced subjects: proposed, approved, applied."""

    def states(self, subject: str, tolerance: timedelta = TOLERANCE) -> Row:
        """Return `subject`, `subject_id` and its `states`, one for each stream.

        A state has `stream`, `last_type`, `last_occurred_at`, `updated_at`, whether it is `ahead`
        of the clock by more than `tolerance` (`latest` is that limit), and what the stored entries
        would make of it:

        - `stored_type`: of the newest entry with any date, because receivers have applied it;
        - `stored_occurred_at`: the latest time that is not after `latest`.

        Both are None without such an entry. A state that is ahead also has `overtaken` (the first
        1,000 decisions that were suppressed since: `key`, `type`, `occurred_at`, `suppressed_at`,
        `stream`, `batch_id`) and `overtaken_count`; both are empty for other states. Raises
        `CommandError` (nothing matched) for an unknown subject.
        """
        with self._transaction():
            self._run("subjects/repair_snapshot")
            subject_id = self._subject_id(subject)
            parameters = {"subject_id": subject_id, "tolerance": tolerance}
            states = [
                self._with_overtaken(row, parameters)
                for row in self._all("subjects/repair_states", parameters)
            ]
        return {"subject": subject, "subject_id": subject_id, "states": states}

    def propose_repair(self, subject: str, stream: str, by: By, reason: str) -> Row:
        """Propose another transition state for a silenced subject; change nothing yet.

        Returns `subject`, `stream`, `state` (of `states`), `after` (None: no state), `proposal`,
        `planned_by` and `approved_by`. Raises what `state_after` raises, and `CommandError` for a
        stream without a state.
        """
        subject_states = self.states(subject)
        state = next((each for each in subject_states["states"] if each["stream"] == stream), None)
        if state is None:
            raise CommandError(
                f"{one_line(subject)} has no transition state in a stream {stream!r}. Nothing was"
                " changed; `holdfast subject show` lists its states.",
                ExitCode.NOTHING_MATCHED,
                code="unknown_state",
            )
        after = state_after(state, by)
        detail = {
            "subject_id": subject_states["subject_id"],
            "stream": stream,
            "before": _state_in_proposal(state),
            "after": after and after.as_json(),
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
        """Apply an approved repair in one transaction.

        Returns `subject`, `stream`, `proposal`, `before`, `after`, `planned_by` and `approved_by`.
        Raises `CommandError` when the proposal may not be applied, or the state has changed since.
        """
        with self.applying(proposal, VERB, _target(subject)) as plan:
            detail = plan["detail"]
            state_of = {name: detail[name] for name in ("subject_id", "stream")}
            self._run("subjects/repair_lock", state_of)
            now = self._maybe("subjects/repair_state", state_of)
            if now is None or _state_in_proposal(now) != detail["before"]:
                raise _moved(proposal)
            after = detail["after"]
            if after is None:
                self._run("subjects/repair_forget", state_of)
            else:
                moment = datetime.fromisoformat(after["last_occurred_at"])
                self._run("subjects/repair_move", {**state_of, **after, "last_occurred_at": moment})
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

    def _with_overtaken(self, state: Row, parameters: Row) -> Row:
        rows = []
        if state["ahead"]:
            rows = self._all(
                "subjects/repair_overtaken", {**parameters, **state, "limit": OVERTAKEN_SHOWN}
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


def _state_in_proposal(state: Row) -> Row:
    """Return a state as in a proposal; `updated_at` reveals every change by the sink."""
    state_json = State(state["last_type"], state["last_occurred_at"]).as_json()
    return {**state_json, "updated_at": rfc3339(state["updated_at"])}


def _moved(proposal: UUID) -> CommandError:
    short = proposal.hex[:8]
    return CommandError(
        f"the transition state has changed since proposal {short}: a decision was written, or it"
        " was repaired. Nothing was changed; end the proposal with `holdfast proposal cancel"
        f" {short} --reason TEXT`, check the subject, and propose again if it is still silenced.",
        code="proposal_outdated",
    )

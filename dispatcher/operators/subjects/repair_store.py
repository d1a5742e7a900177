"""Putting a subject right that a decision of the future has silenced.

One person proposes the new transition state, a second one approves it. It is applied under the
subject's row lock, which the sink takes too, and only to the state that was proposed for.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from uuid import UUID

from dispatcher.operators.common.session import Row, operator_connection
from dispatcher.operators.proposals.store import Proposals
from dispatcher.operators.subjects.repair import By, State, state_after
from dispatcher.shared.text import one_line
from sink.contract.canonical import rfc3339
from sink.contract.exits import CommandError, ExitCode
from sink.contract.key import Key

TOLERANCE = timedelta(days=1)
"""How far ahead of the clock a state may be without being one to repair."""

OVERTAKEN_SHOWN = 1_000

VERB = "subjects.repair"


class Repairs(Proposals):
    """Subjects to repair; use `repairs(dsn)` to get it."""

    def look(self, subject: str, tolerance: timedelta = TOLERANCE) -> Row:
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
            found = self._maybe("common/entry_subject", {"subject": subject})
            if found is None:
                raise CommandError(
                    f"no subject is called {subject!r}. Nothing was changed; names are compared"
                    " exactly (`holdfast subjects list --silenced`).",
                    ExitCode.NOTHING_MATCHED,
                )
            given = {"subject_id": found["id"], "tolerance": tolerance}
            states = [
                self._with_overtaken(row, given)
                for row in self._all("subjects/repair_states", given)
            ]
        return {"subject": subject, "subject_id": found["id"], "states": states}

    def propose_repair(self, subject: str, stream: str, by: By, reason: str) -> Row:
        """Propose another transition state for a silenced subject; nothing of it is changed.

        Returns `subject`, `stream`, `state` (of `look`), `after` (None: no state), `proposal`,
        `planned_by` and `approved_by`. Raises `CommandError` where the state is not ahead, or where
        `by` says what the stored entries say already, or does not say what they cannot.
        """
        found = self.look(subject)
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


@contextmanager
def repairs(dsn: str | None) -> Iterator[Repairs]:
    """Connect in the operator's role; raises `CommandError` when that is not possible."""
    with operator_connection(dsn) as connection:
        yield Repairs(connection)


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

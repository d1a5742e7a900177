"""The budget of business actions that one person may repeat alone in 24 hours, and approvals.

It covers entries reissued under new keys, at each endpoint that gets them, and deliveries of plans
with keys that receivers may have forgotten. The window is the last 24 hours by the database's
clock; plans that may still be applied count as applied now. Callers hold `replay_lock`, so that no
two plans use the same budget.
"""

from uuid import UUID

from holdfast.dispatcher.operators.common.person import lacks_approval, needs_approval
from holdfast.dispatcher.operators.common.session import OperatorSession, Row, actor, person
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.states import ReplayState, ReplayVerb


class Repeats(OperatorSession):
    """The budget of repeated actions, and approvals by a second person."""

    def needs_second(self, actions: int, limit: int, id_: UUID, who: str | None = None) -> bool:
        """Return whether `actions` more of a person need a second one, not counting plan `id_`."""
        used = self._one("replays/repeats_used", {"person": who or person(), "id": id_})["used"]
        return needs_approval(actions, used, limit)

    def waits(self, id_: UUID) -> bool:
        """Return whether a plan waits for a second person."""
        return lacks_approval(self._one("replays/show", {"id": id_}))

    def approve(self, id_: UUID, reason: str) -> None:
        """Approve a plan; raises `CommandError` for the person who planned it."""
        with self._transaction():
            self._run("common/replay_lock")
            self._run("common/replay_take", {"id": id_})
            row = self._one("replays/show", {"id": id_})
            _require_approvable(row)
            self._run("replays/approve", {"id": id_, "actor": actor()})
            planner = {"planned_by": row["actor"], "planned_by_person": row["person"]}
            detail = {**planner, "person": person()}
            self._audit(f"{_verb(row)}.approve", f"replay {id_}", reason, detail)


def second_person(row: Row, actions: int) -> CommandError:
    """Return the error for a plan that needs the approval of a second person."""
    id_ = row["id"].hex[:8]
    return CommandError(
        f"{_verb(row)} {id_} may repeat {actions:,} actions, which needs a second person: somebody"
        f" other than {row['actor']} runs `holdfast replay approve {id_} --reason TEXT`. Nothing"
        " was changed.",
        code="second_person_required",
    )


def _verb(row: Row) -> str:
    return "reissue" if row["verb"] == ReplayVerb.REISSUE else "replay"


def _require_approvable(row: Row) -> None:
    """Raise `CommandError` if this person does not approve this plan, or nobody needs to."""
    named = f"{_verb(row)} {row['id'].hex[:8]}"
    if row["verb"] != ReplayVerb.REISSUE and not row["outside_window"]:
        raise CommandError(
            f"{named} keeps its keys, which is safe: it needs no approval. Nothing was changed.",
            code="approval_not_needed",
        )
    if row["state"] != ReplayState.PLANNED:
        raise CommandError(
            f"{named} is {row['state']} already. Nothing was changed.", code="replay_not_open"
        )
    if row["approved_by"] is not None:
        raise CommandError(
            f"{named} is approved already, by {row['approved_by']}. Nothing was changed.",
            code="already_approved",
        )
    if row["person"] == person():
        raise CommandError(
            f"{named} was planned by {row['actor']}, and that is you: another person approves it,"
            " under a login of their own or by the API with their own token. Nothing was changed.",
            code="approver_is_planner",
        )

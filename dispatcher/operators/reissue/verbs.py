"""Reissues: business actions repeated under new keys, by plans under ids that callers choose.

The command asks before it plans, and is written by hand.
"""

from typing import Annotated
from uuid import UUID

from typing_extensions import TypedDict

from holdfast.dispatcher.operators.common import verbs
from holdfast.dispatcher.operators.common.person import lacks_approval
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.reissue.actions import planned_before, write_all, written_before
from holdfast.dispatcher.operators.reissue.store import Reissues
from holdfast.dispatcher.operators.replays.rules import few_keys_of
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.dispatcher.operators.replays.verbs import Replay, approve_replay
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.states import AccessRole

GROUP = verbs.Group(
    "reissue",
    help="Reissues: plan, approve, apply.",
    store=Replays,
    path="/reissues",
    tag="reissues",
)

PlanId = Annotated[UUID, verbs.Param("The plan's id: a random UUID chosen by the caller.")]


class ReissuedEntry(TypedDict):
    """A reissued entry."""

    key: str
    new_key: str
    detail: str
    dead_letters: Annotated[
        list[int], verbs.Doc("Dead letters of the original, which are dismissed.")
    ]


class ReissuePlan(TypedDict):
    """A plan of a reissue."""

    replay: Replay
    needs_approval: Annotated[
        bool, verbs.Doc("Another person, an administrator, has to approve it.")
    ]


class ReissueAnswer(TypedDict):
    """A reissue, and what this request wrote."""

    replay: Replay
    reissued: list[ReissuedEntry]


@GROUP.verb(
    "plan",
    changes=True,
    least=AccessRole.OPERATOR,
    route=verbs.Route(
        "Plan to repeat business actions under new keys.", "/{replay_id}", method="PUT"
    ),
    body=verbs.Model("NewReissue", "Entries to reissue. The plan itself writes nothing."),
    result=ReissuePlan,
)
def plan_reissue(
    store: Replays,
    *,
    replay_id: PlanId,
    keys: verbs.Keys,
    reissue_limit: verbs.ReissueLimit,
    reason: verbs.Reason,
) -> Row:
    """Store a plan of what would be repeated. Idempotent: the same request returns the same
    plan.
    """
    wanted = few_keys_of(keys)
    row = planned_before(store, replay_id, wanted, reason)
    if row is None:
        reissues = store.beside(Reissues)
        previews = [reissues.preview(Key(key)) for key in wanted]
        reissues.plan(previews, reason, limit=reissue_limit, id_=replay_id)
        row = store.show(replay_id)
    return {"replay": row, "needs_approval": lacks_approval(row)}


@GROUP.verb(
    "approve",
    changes=True,
    least=AccessRole.ADMIN,
    route=verbs.Route("Approve a reissue that another person planned.", "/{replay_id}/approve"),
    result=Replay,
)
def approve_reissue(store: Replays, replay_id: PlanId, reason: verbs.Reason) -> Row:
    """Approve as a second person. All tokens and logins of one owner count as one person."""
    return approve_replay(store, replay_id, reason)


@GROUP.verb(
    "apply",
    changes=True,
    least=AccessRole.OPERATOR,
    route=verbs.Route("Repeat the actions of a plan, under new keys.", "/{replay_id}/apply"),
    result=ReissueAnswer,
)
def apply_reissue(
    store: Replays,
    *,
    replay_id: PlanId,
    dsn: verbs.Dsn,
    reason: verbs.Reason,  # noqa: ARG001 - nobody applies by accident; the plan has its own
) -> Row:
    """Write what is not written yet. Nothing is written twice."""
    is_written = written_before(store, replay_id)
    done = [] if is_written else write_all(dsn, store.beside(Reissues), replay_id)
    return {"replay": store.show(replay_id), "reissued": done}

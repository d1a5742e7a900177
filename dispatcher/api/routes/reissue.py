"""Reissues: business actions repeated under new keys."""

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Request
from typing_extensions import TypedDict

from holdfast.dispatcher.api.access import Admin, Operator
from holdfast.dispatcher.api.requests import Because, Keys, Reason, RequestBody
from holdfast.dispatcher.operators.common.person import lacks_approval
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.verbs import Doc
from holdfast.dispatcher.operators.reissue.actions import planned_before, write_all, written_before
from holdfast.dispatcher.operators.reissue.store import Reissues
from holdfast.dispatcher.operators.replays.rules import few_keys_of
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.dispatcher.operators.replays.verbs import Replay, approve_replay
from holdfast.sink.contract.key import Key

router = APIRouter(prefix="/reissues", tags=["reissues"])

PlanId = Annotated[UUID, Path(description="The plan's id: a random UUID chosen by the caller.")]


class NewReissue(RequestBody):
    """Entries to reissue. The plan itself writes nothing."""

    keys: Keys
    reason: Reason


class ReissuedEntry(TypedDict):
    """A reissued entry."""

    key: str
    new_key: str
    detail: str
    dead_letters: Annotated[list[int], Doc("Dead letters of the original, which are dismissed.")]


class ReissuePlan(TypedDict):
    """A plan of a reissue."""

    replay: Replay
    needs_approval: Annotated[bool, Doc("Another person, an administrator, has to approve it.")]


class ReissueAnswer(TypedDict):
    """A reissue, and what this request wrote."""

    replay: Replay
    reissued: list[ReissuedEntry]


@router.put(
    "/{replay_id}",
    summary="Plan to repeat business actions under new keys.",
    response_model=ReissuePlan,
)
def plan_reissue(request: Request, session: Operator, replay_id: PlanId, given: NewReissue) -> Row:
    """Store a plan of what would be repeated. Idempotent: the same request returns the same
    plan.
    """
    wanted = few_keys_of(given.keys)
    with session.open(Replays) as replays:
        row = planned_before(replays, replay_id, wanted, given.reason)
    if row is None:
        limit = request.app.state.settings.reissue_limit
        row = _plan(session, replay_id, wanted, given.reason, limit)
    return {"replay": row, "needs_approval": lacks_approval(row)}


@router.post(
    "/{replay_id}/approve",
    summary="Approve a reissue that another person planned.",
    response_model=Replay,
)
def approve_reissue(session: Admin, replay_id: PlanId, given: Because) -> Row:
    """Approve as a second person. All tokens and logins of one owner count as one person."""
    with session.open(Replays) as replays:
        return approve_replay(replays, replay_id, given.reason)


@router.post(
    "/{replay_id}/apply",
    summary="Repeat the actions of a plan, under new keys.",
    response_model=ReissueAnswer,
)
def apply_reissue(request: Request, session: Operator, replay_id: PlanId, given: Because) -> Row:
    """Write what is not written yet. Nothing is written twice."""
    del given  # Required so that nobody applies a plan by accident; the plan has its own reason.
    with session.open(Replays) as replays:
        done_before = written_before(replays, replay_id)
    done: list[Row] = []
    if not done_before:
        with session.open(Reissues) as store:
            done = write_all(request.app.state.settings.dsn, store, replay_id)
    return {"replay": _shown(session, replay_id), "reissued": done}


def _plan(session: Operator, id_: UUID, wanted: Sequence[UUID], reason: str, limit: int) -> Row:
    with session.open(Reissues) as store:
        looks = [store.preview(Key(key)) for key in wanted]
        store.plan(looks, reason, limit=limit, id_=id_)
    return _shown(session, id_)


def _shown(session: Operator, id_: UUID) -> Row:
    with session.open(Replays) as replays:
        return replays.show(id_)

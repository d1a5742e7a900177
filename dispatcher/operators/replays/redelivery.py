"""Redelivery: single entries planned and sent again at once, under ids that callers choose.

The command and the console ask between the plan and its application, and are written by hand.
"""

from typing import Annotated
from uuid import UUID

from typing_extensions import TypedDict

from holdfast.dispatcher.operators.common import verbs
from holdfast.dispatcher.operators.common.person import lacks_approval
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.entries.store import Entries
from holdfast.dispatcher.operators.replays.actions import apply_keys, plan_of_keys, standing_of
from holdfast.dispatcher.operators.replays.rules import few_keys_of
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.dispatcher.operators.replays.verbs import ReplayProgress
from holdfast.sink.contract.states import AccessRole, ReplayKind

GROUP = verbs.Group(
    "redeliver",
    help="Redelivery: plan and apply a replay of single entries.",
    store=Replays,
    path="/redeliveries",
    tag="replays",
)

ENDPOINT = "Only this endpoint. Default: every endpoint at which the entry can be sent again."
OUTSIDE_WINDOW = (
    "Also send keys older than the receiver's key window; the receiver may act on them again."
)


class RedeliveredItem(TypedDict):
    """An entry at an endpoint, and what will happen to it."""

    key: str
    subject: str
    endpoint: str
    kind: ReplayKind
    what_happens: str


class LeftAlone(TypedDict):
    """An entry at an endpoint for which nothing is to be done."""

    key: str
    endpoint: str | None
    why: str


class RedeliveryAnswer(TypedDict):
    """The replay of these keys; null if there is nothing to do."""

    replay: ReplayProgress | None
    items: list[RedeliveredItem]
    nothing: list[LeftAlone]
    needs_approval: Annotated[
        bool,
        verbs.Doc(
            "Nothing is sent yet: another person, an administrator, has to approve the replay"
            " before it is applied."
        ),
    ]


@GROUP.verb(
    "plan",
    changes=True,
    least=AccessRole.OPERATOR,
    route=verbs.Route(
        "Send entries again under their original keys.", "/{replay_id}", method="PUT"
    ),
    body=verbs.Model("NewRedelivery", "Entries to send again now."),
    result=RedeliveryAnswer,
)
def redeliver(
    store: Replays,
    *,
    replay_id: Annotated[UUID, verbs.Param("The replay's id: a random UUID chosen by the caller.")],
    keys: verbs.Keys,
    endpoint: Annotated[str | None, verbs.Param(ENDPOINT, verbs.Kind.TEXT)] = None,
    rate: verbs.Rate = None,
    outside_window: Annotated[bool, verbs.Param(OUTSIDE_WINDOW)] = False,
    reissue_limit: verbs.ReissueLimit,
    reason: verbs.Reason,
) -> Row:
    """Plan and apply a replay of these keys. Idempotent."""
    plan = plan_of_keys(
        store,
        replay_id,
        standing_of(store.beside(Entries), few_keys_of(keys)),
        endpoint=endpoint,
        reason=reason,
        rate=rate,
        outside_window=outside_window,
        alone_max=reissue_limit,
    )
    waits = lacks_approval(plan.row)
    row: Row | None = None
    if plan.items:
        row = store.status(replay_id) if waits else apply_keys(store, plan)
    return {
        "replay": row,
        "items": plan.items,
        "nothing": plan.nothing,
        "needs_approval": waits and row is not None,
    }

"""The audit trail: who did what, when and why."""

import json
from typing import Annotated, Any

from typing_extensions import TypedDict

from holdfast.dispatcher.operators.audit.store import Actions, Audit
from holdfast.dispatcher.operators.common import verbs
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.text import shortened, visible

GROUP = verbs.Group(
    "audit",
    help="The audit trail: who did what, when and why.",
    store=Audit,
    path="/audit",
    tag="audit",
)

_COLUMNS = ("id", "acted_at", "actor", "action", "target", "reason", "detail")
_CHARACTERS = 200


class Action(TypedDict):
    """An action."""

    id: int
    acted_at: verbs.Time
    actor: Annotated[str, verbs.Doc("A login name, or `token NAME`.")]
    action: Annotated[str, verbs.Doc("Such as `endpoint.pause`.")]
    target: str
    reason: str
    detail: dict[str, Any]


def _list(page: verbs.Page, _: Row) -> verbs.Text:
    rows = [_seen(row) for row in page.rows]
    yield verbs.Table(rows, _COLUMNS, "Actions", ("detail", "id"))


def _seen(row: Row) -> Row:
    detail = json.dumps(row["detail"], ensure_ascii=False) if row["detail"] else None
    return {
        **row,
        **{name: visible(row[name]) for name in ("actor", "action", "target")},
        "reason": shortened(row["reason"], _CHARACTERS),
        "detail": None if detail is None else shortened(detail, _CHARACTERS),
    }


@GROUP.verb(
    "list",
    of=verbs.List,
    help="List actions, the newest first. Long texts are cut; --json shows them whole.\n\nExit code"
    " 3: no action matches.",
    text=_list,
    route=verbs.Route("List actions."),
    rows="actions",
    result=Action,
    page=verbs.Model("ActionPage", "Actions, the newest first."),
    screen=verbs.Screen("/audit", "system/audit.html"),
    empty="no action matches. Nothing was changed; actors, actions and targets are compared"
    " exactly.",
)
def list_actions(
    store: Audit, wanted: Actions, limit: verbs.Limit = 50, before: verbs.BeforeId = None
) -> verbs.Page:
    """Return actions, the newest first."""
    return verbs.Page(*store.actions(wanted, limit=limit, before=before))

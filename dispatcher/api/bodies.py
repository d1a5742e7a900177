"""Who may see bodies, and that it is noted who did.

A body can hold what concerns a merchant, and a receiver's answer can hold anything.
"""

from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException

from dispatcher.api.access import Session
from dispatcher.operators.audit.store import Audit
from dispatcher.operators.dead_letters.rules import without_answer
from sink.contract.states import AccessRole


def allow(session: Session, *, body: bool) -> None:
    """Raise 403 where bodies are asked for by somebody who may not see them."""
    if body and not session.may(AccessRole.OPERATOR):
        raise HTTPException(
            HTTPStatus.FORBIDDEN,
            f"bodies, and what receivers answered, need the role {AccessRole.OPERATOR}, and token"
            f" {session.holder.name} is {session.holder.role}. Nothing was shown; ask for less.",
            {"WWW-Authenticate": 'Bearer error="insufficient_scope"'},
        )


def note(session: Session, action: str, target: str, **detail: Any) -> None:
    """Keep in the audit trail that bodies are shown; to be called before they are.

    `action` is `entry.read` or `quarantine.read`; `target` names what was read as the trail does.
    """
    with session.open(Audit) as audit:
        audit.record_read(action, target, detail)


def without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return a row with None for each of its members of these names."""
    return row | dict.fromkeys(names)


def without_answers(row: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a row in which the text `name`, if it is there, has nothing that a receiver said."""
    text = row.get(name)
    return row if text is None else row | {name: without_answer(text)}

"""Access to bodies: who may read them, and the audit record of each read.

A body may contain a merchant's data, and a receiver's response may contain anything.
"""

from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException

from holdfast.dispatcher.api.access import Session
from holdfast.dispatcher.operators.audit.store import Audit
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.verbs import Bodies
from holdfast.dispatcher.operators.dead_letters.rules import without_answer
from holdfast.sink.contract.states import AccessRole


def allow(session: Session, *, body: bool) -> None:
    """Raise 403 if bodies are requested by a caller who may not read them."""
    if body and not session.may(AccessRole.OPERATOR):
        raise HTTPException(
            HTTPStatus.FORBIDDEN,
            f"bodies and receivers' responses require the role {AccessRole.OPERATOR}; token"
            f" {session.holder.name} has the role {session.holder.role}. Nothing was returned;"
            " request without bodies.",
            {"WWW-Authenticate": 'Bearer error="insufficient_scope"'},
        )


def note(session: Session, action: str, target: str, **detail: Any) -> None:
    """Record in the audit trail that bodies are read. Call it before they are returned.

    `action` is for example `entry.read` or `quarantine.read`; `target` names what was read.
    """
    with session.open(Audit) as audit:
        audit.record_read(action, target, detail)


def hidden(declared: Bodies | None, row: Row) -> Row:
    """Return a row without what only `seen` shows."""
    return row if declared is None or declared.hide is None else declared.hide(row)


def seen(session: Session, declared: Bodies | None, row: Row, *, body: bool) -> Row:
    """Return a row with its bodies, and record that they are read; or without them."""
    if declared is not None and declared.for_operators and session.may(AccessRole.OPERATOR):
        return row
    if declared is None or (declared.hide is not None and not body):
        return hidden(declared, row)
    target, detail = declared.read(row)
    note(session, declared.action, target, **detail)
    return row


def without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return a row with None for the members of these names."""
    return row | dict.fromkeys(names)


def without_answers(row: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a row whose text `name`, if present, contains nothing from a receiver's response."""
    text = row.get(name)
    return row if text is None else row | {name: without_answer(text)}

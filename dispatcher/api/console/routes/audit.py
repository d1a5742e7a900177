"""Audit: what people did, and notable actions of dispatchers."""

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from holdfast.dispatcher.api.console.forms.fields import (
    SINCE_HINT,
    UNTIL_HINT,
    Field,
    given,
    when_of,
    whole,
)
from holdfast.dispatcher.api.console.frame.guard import Person
from holdfast.dispatcher.api.console.frame.pages import page
from holdfast.dispatcher.api.console.frame.screens import ROWS
from holdfast.dispatcher.api.console.frame.templating import link
from holdfast.dispatcher.api.console.rendering.audit import detail_text, page_of
from holdfast.dispatcher.api.requests import no_others
from holdfast.dispatcher.operators.audit.store import Audit, WantedActions

router = APIRouter(dependencies=[Depends(no_others)])


@router.get("/audit")
def list_actions(
    request: Request,
    person: Person,
    actor: str = "",
    action: str = "",
    target: str = "",
    since: str = "",
    until: str = "",
    before: str = "",
) -> Response:
    """Show actions, the newest first."""
    texts = given(actor), given(action), given(target)
    begin, end = when_of("since", since), when_of("until", until)
    with person.session.open(Audit) as store:
        wanted = WantedActions(*texts, store.moment(begin), store.moment(end))
        rows, older = store.actions(wanted, limit=ROWS, before=whole("before", before))
    asked = {"actor": actor, "action": action, "target": target, "since": since, "until": until}
    return page(
        request,
        person,
        "system/audit.html",
        rows=[
            {
                **row,
                "page": page_of(row["action"], row["target"]),
                "detail": detail_text(row["detail"]),
            }
            for row in rows
        ],
        filtered=any(asked.values()),
        fields=(
            Field("actor", "Who", actor, "token alice"),
            Field("action", "Action", action, "endpoint, or replay.apply"),
            Field("target", "On what", target, "dead letter 7"),
            Field("since", "Since", since, SINCE_HINT),
            Field("until", "Before", until, UNTIL_HINT),
        ),
        newest=link("/audit", **asked) if before else None,
        older=link("/audit", **asked, before=older) if older else None,
    )

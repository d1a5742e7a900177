"""Deciding by hand about a subject: first what receivers will get, then the decision."""

from collections.abc import Mapping
from typing import Annotated
from uuid import UUID, uuid4

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from holdfast.dispatcher.api.console.forms.confirm import ask, reason_of
from holdfast.dispatcher.api.console.forms.fields import filled
from holdfast.dispatcher.api.console.frame.guard import Acting, Form, Login, Person
from holdfast.dispatcher.api.console.frame.pages import redirect
from holdfast.dispatcher.api.console.rendering.filters import link
from holdfast.dispatcher.api.requests import no_others
from holdfast.dispatcher.operators.common.overtaking import overtaken_text
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.verbs import Question
from holdfast.dispatcher.operators.decisions.actions import decide
from holdfast.dispatcher.operators.decisions.rules import Action
from holdfast.dispatcher.operators.decisions.store import Decisions
from holdfast.dispatcher.shared.text import one_line
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import AccessRole

router = APIRouter(dependencies=[Depends(no_others)])

Operator = Annotated[Login, Depends(Acting(AccessRole.OPERATOR))]
Named = Annotated[str, Query(min_length=1)]


@router.get("/decisions/{action}")
def ask_decide(
    request: Request, person: Person, action: Action, name: Named, stream: Named
) -> Response:
    """Ask for confirmation to block or release a subject."""
    id_ = uuid4()
    with person.session.open(Decisions) as store:
        preview = store.preview(stream, name, action, id_, None)
    over = preview["overtakes"]
    return ask(
        request,
        person,
        Question(
            title=f"{action.value.capitalize()} {one_line(name)} by hand",
            action=f"/decisions/{action.value}",
            button=f"{action.value.capitalize()} it" if over is None else "Propose it",
            back=link("/subjects/show", name=name),
            says=(
                f"{', '.join(preview['endpoints'])} will get, as sequence {preview['sequence']:,}:",
                preview["body"],
                "Its timestamp is that of the write. It has no window.",
            ),
            warns=() if over is None else (_warning(over),),
            kept=(
                *(("name", name), ("stream", stream)),
                *(("id", str(id_)), ("seen", str(preview["last_sequence"]))),
            ),
            danger=True,
        ),
    )


@router.post("/decisions/{action}")
def decide_by_hand(request: Request, person: Operator, action: Action, form: Form) -> Response:
    """Decide, unless another person did since the page was shown."""
    reason = reason_of(form)
    name, stream = (filled(form.get(each, "")) or "" for each in ("name", "stream"))
    with person.session.open(Decisions) as store:
        done = decide(
            request.app.state.settings.dsn,
            store,
            stream,
            name,
            action,
            **_shown(form),
            reason=reason,
        )
    return redirect(request, person, link("/subjects/show", name=name), _message(done))


def _shown(form: Mapping[str, str]) -> Row:
    """Return what the page was of; raises `CommandError` (usage) for a form of another page."""
    try:
        return {"id_": UUID(form.get("id", "")), "seen": int(form.get("seen", ""))}
    except ValueError:
        raise CommandError(
            "the form lacks what its page showed. Nothing was changed; open the page again.",
            ExitCode.USAGE,
            code="invalid_value",
        ) from None


def _warning(overtakes: Row) -> str:
    return (
        f"It would overtake {one_line(overtaken_text(overtakes))}: it is proposed, and a second"
        " person approves it."
    )


def _message(done: Row) -> str:
    if done["written"]:
        return f"{done['type']} is decided, as {done['key']}."
    short = done["proposal"].hex[:8]
    return f"Proposed as {short}; nothing was written. A second person approves it."

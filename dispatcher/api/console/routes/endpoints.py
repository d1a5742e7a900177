"""Endpoints: state, backlog and settings; pause, resume, disable."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import Response

from holdfast.dispatcher.api.console.forms.confirm import ask, reason_of
from holdfast.dispatcher.api.console.frame.guard import Acting, Form, Login, Person
from holdfast.dispatcher.api.console.frame.pages import page, redirect
from holdfast.dispatcher.api.console.frame.screens import acts
from holdfast.dispatcher.api.console.rendering.filters import counted
from holdfast.dispatcher.api.requests import no_others
from holdfast.dispatcher.operators.common.verbs import Question
from holdfast.dispatcher.operators.endpoints.settings import SETTINGS, label_of
from holdfast.dispatcher.operators.endpoints.store import Endpoints
from holdfast.dispatcher.operators.overview.store import Overview
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import AccessRole, EndpointState

router = APIRouter(dependencies=[Depends(no_others)])

Name = Annotated[str, Path(pattern=r"^[a-z0-9][a-z0-9_.-]{0,62}$")]
Operator = Annotated[Login, Depends(Acting(AccessRole.OPERATOR))]

LOOKED_AT_MINUTES = 1
"""Only the current values of the overview are shown."""

STATES = {
    "pause": EndpointState.PAUSED,
    "resume": EndpointState.ACTIVE,
    "disable": EndpointState.DISABLED,
}
DONE = {"pause": "paused", "resume": "resumed", "disable": "disabled"}


@router.get("/endpoints")
def list_endpoints(request: Request, person: Person) -> Response:
    """Show every endpoint: its state, its breaker, its backlog."""
    with person.session.open(Endpoints) as store:
        rows = store.endpoints()
    with person.session.open(Overview) as store:
        now = {each["name"]: each for each in store.overview(LOOKED_AT_MINUTES)["endpoints"]}
    return page(
        request,
        person,
        "delivery/endpoints.html",
        rows=[{**row, "now": now[row["name"]]} for row in rows if row["name"] in now],
    )


@router.get("/endpoints/{name}")
def show_endpoint(request: Request, person: Person, name: Name) -> Response:
    """Show one endpoint. Secrets are shown as references, header values omitted."""
    with person.session.open(Endpoints) as store:
        row = store.endpoint(name, spell=label_of)
    return page(
        request,
        person,
        "delivery/endpoint.html",
        endpoint=row,
        settings=[each for column, each in SETTINGS.items() if column != "url"],
        actions=[each for each in STATES if _may(person, row, each)],
    )


@router.get("/endpoints/{name}/{do}")
def ask_state(request: Request, person: Person, name: Name, do: str) -> Response:
    """Ask for confirmation to pause, resume or disable an endpoint."""
    _known(do)
    with person.session.open(Endpoints) as store:
        row = store.endpoint(name)
    return ask(
        request,
        person,
        Question(
            title=f"{do.capitalize()} {name}",
            action=f"/endpoints/{name}/{do}",
            button=f"{do.capitalize()} {name}",
            back=f"/endpoints/{name}",
            says=_effect(do, row),
            warns=_warns(do, row),
            danger=do == "disable",
        ),
    )


@router.post("/endpoints/{name}/{do}")
def set_state(request: Request, person: Operator, name: Name, do: str, form: Form) -> Response:
    """Pause or resume an endpoint. Administrators also disable it, and resume a disabled one."""
    reason, state = reason_of(form), _known(do)
    admin = person.may(AccessRole.ADMIN)
    if state is EndpointState.DISABLED and not admin:
        raise CommandError(
            f"only administrators disable an endpoint. Nothing was changed; pause {name} instead.",
            ExitCode.USAGE,
            code="role_required",
        )
    with person.session.open(Endpoints) as store:
        store.set_endpoint_state(
            name, state.value, reason, unless=None if admin else EndpointState.DISABLED
        )
    return redirect(request, person, f"/endpoints/{name}", f"Endpoint {name} is {DONE[do]}.")


def _known(do: str) -> EndpointState:
    if do not in STATES:
        raise CommandError(
            f"an endpoint's actions are {', '.join(STATES)}. Nothing was changed; go back to it.",
            ExitCode.NOTHING_MATCHED,
            code="unknown_action",
        )
    return STATES[do]


def _may(person: Login, row: dict[str, Any], do: str) -> bool:
    state = EndpointState(row["state"])
    if STATES[do] is state or not acts(person):
        return False
    needs_admin = EndpointState.DISABLED in (STATES[do], state)
    return not needs_admin or person.may(AccessRole.ADMIN)


def _effect(do: str, row: dict[str, Any]) -> list[str]:
    waits = row["waiting_lanes"]
    subjects = "1 subject waits" if waits == 1 else f"{waits:,} subjects wait"
    if do == "resume":
        return [
            f"Sending resumes: {subjects}, and each continues in order.",
            "Entries written in the meantime are delivered, too.",
            *_stays(row["stopped_lanes"]),
        ]
    return [
        f"Nothing more is sent to it: {subjects}, and new entries wait in order.",
        "Nothing is lost and no attempt is counted; requests in flight finish.",
    ]


def _stays(stopped: int) -> list[str]:
    if not stopped:
        return []
    return [
        (
            f"{counted(stopped, 'subject')} behind a dead letter stay stopped until the dead"
            " letter is resolved."
        )
    ]


def _warns(do: str, row: dict[str, Any]) -> list[str]:
    if row["state"] == STATES[do]:
        return [f"It is {row['state']} already; only the reason would be new."]
    if do == "disable":
        return ["Only an administrator takes this back."]
    return []

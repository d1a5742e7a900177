"""Subjects: by name, by what holds them up, and one with its lanes in their order."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from dispatcher.api.console.explaining import Told
from dispatcher.api.console.forms.choosing import Question, ask, reason_of
from dispatcher.api.console.forms.forms import Field, given
from dispatcher.api.console.frame.guard import Acting, Form, Login, Person
from dispatcher.api.console.frame.pages import away, page
from dispatcher.api.console.frame.screens import acts
from dispatcher.api.console.frame.templates_setup import link
from dispatcher.api.explained import explaining
from dispatcher.api.strict import no_others
from dispatcher.operators.subjects.rules import repair_commands
from dispatcher.operators.subjects.skip_gap import Passing
from dispatcher.operators.subjects.store import WAITING_MAX, Held, Subjects, WantedSubjects
from dispatcher.operators.why.rules import Verdict
from dispatcher.shared.text import one_line
from sink.contract.exits import CommandError, ExitCode
from sink.contract.states import AccessRole

router = APIRouter(dependencies=[Depends(no_others)])

Operator = Annotated[Login, Depends(Acting(AccessRole.OPERATOR))]
Named = Annotated[str, Query(min_length=1)]

ROWS = 50

SILENCED = ("yes",)


@router.get("/subjects")
def list_subjects(
    request: Request,
    person: Person,
    prefix: str = "",
    held: str = "",
    silenced: str = "",
    after: str = "",
) -> Response:
    """Show a page of subjects in the order of their names."""
    wanted = WantedSubjects(given(prefix) or "", _held(held), _silenced(silenced))
    with person.session.open(Subjects) as store:
        rows, more = store.subjects(wanted, limit=ROWS, after=given(after))
    asked = {"prefix": prefix, "held": held, "silenced": silenced}
    return page(
        request,
        person,
        "subjects.html",
        rows=rows,
        filtered=any(asked.values()),
        fields=(
            Field("prefix", "Name begins with", prefix, "m_"),
            Field("held", "Held up", held, choices=tuple(each.value for each in Held)),
            Field("silenced", "Silenced", silenced, choices=SILENCED),
        ),
        first=link("/subjects", **asked) if after else None,
        more=link("/subjects", **asked, after=more) if more is not None else None,
    )


@router.get("/subjects/show")
def show_subject(request: Request, person: Person, name: str) -> Response:
    """Show one subject: what it waits for, its lanes, its last entries."""
    with person.session.open(Subjects) as store:
        found = store.subject(name)
    with explaining(person.session, Told) as asked:
        explained = asked.explain_subject(name)
    return page(
        request,
        person,
        "subject.html",
        found=found,
        answers=explained.at_endpoints,
        alone=explained.answer,
        notes=explained.notes,
        waiting_max=WAITING_MAX,
        gap=Verdict.GAP,
        repairs=repair_commands(found),
        acts=acts(person),
    )


@router.get("/subjects/pass")
def ask_pass(request: Request, person: Person, name: Named, endpoint: Named) -> Response:
    """Ask whether a lane shall go on behind what is not stored any more."""
    with person.session.open(Subjects) as store:
        found = store.subject(name)
    lane = next((each for each in found["lanes"] if each["endpoint"] == endpoint), None)
    if lane is None:
        raise CommandError(
            f"there is no lane of {one_line(name)} at {one_line(endpoint)}. Nothing was changed; go"
            " back to the subject.",
            ExitCode.NOTHING_MATCHED,
        )
    missing = lane["delivered_sequence"] + 1
    return ask(
        request,
        person,
        Question(
            title=f"Pass what is missing of {one_line(name)}",
            action="/subjects/pass",
            button="Pass it",
            back=link("/subjects/show", name=name),
            says=(
                f"Sequence {missing:,}, and what is missing right behind it, is stored no more.",
                f"{endpoint} never gets it; the lane goes on with the first decision that is.",
            ),
            warns=("A backup may have them: look there first. This cannot be taken back.",),
            kept=(("name", name), ("endpoint", endpoint)),
            danger=True,
        ),
    )


@router.post("/subjects/pass")
def pass_missing(request: Request, person: Operator, form: Form) -> Response:
    """Pass it. A lane where nothing is missing, or that a dead letter holds, is left alone."""
    reason = reason_of(form)
    name, endpoint = (given(form.get(each, "")) or "" for each in ("name", "endpoint"))
    with person.session.open(Passing) as store:
        done = store.pass_missing(name, endpoint, reason)
    first, last, then = done["passed_from"], done["passed_to"], done["next_sequence"]
    which = f"Sequence {first:,}" if first == last else f"Sequences {first:,} to {last:,}"
    goes_on = "nothing is left to deliver" if then is None else f"the lane goes on with {then:,}"
    said = f"{which} passed at {endpoint}; {goes_on}."
    return away(request, person, link("/subjects/show", name=name), said)


def _silenced(text: str) -> bool:
    if text not in ("", *SILENCED):
        raise CommandError(
            f"silenced is {SILENCED[0]}, or nothing. Nothing was changed; correct the address.",
            ExitCode.USAGE,
        )
    return bool(text)


def _held(text: str) -> Held | None:
    try:
        return Held(text) if text else None
    except ValueError:
        raise CommandError(
            f"held is one of {', '.join(Held)}. Nothing was changed; choose one of them.",
            ExitCode.USAGE,
        ) from None

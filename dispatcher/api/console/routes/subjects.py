"""Subjects: by name, by what holds them up, one with its lanes; hold, resume, skip a gap."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from holdfast.dispatcher.api.console.forms.confirm import ask, reason_of
from holdfast.dispatcher.api.console.forms.fields import Field, exact_time, filled
from holdfast.dispatcher.api.console.frame.guard import Acting, Form, Login, Person
from holdfast.dispatcher.api.console.frame.pages import page, redirect
from holdfast.dispatcher.api.console.frame.screens import acts
from holdfast.dispatcher.api.console.rendering.filters import link
from holdfast.dispatcher.api.requests import no_others
from holdfast.dispatcher.api.routes.why import CachedTrace, explaining
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.text import display
from holdfast.dispatcher.operators.common.verbs import Question
from holdfast.dispatcher.operators.decisions.store import Decisions
from holdfast.dispatcher.operators.subjects.holding import Holding
from holdfast.dispatcher.operators.subjects.rules import repair_commands
from holdfast.dispatcher.operators.subjects.skip_gap import GapSkipper
from holdfast.dispatcher.operators.subjects.store import WAITING_MAX, Held, SubjectFilter, Subjects
from holdfast.dispatcher.operators.why.rules import Verdict
from holdfast.dispatcher.shared.text import one_line
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import AccessRole

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
    wanted = SubjectFilter(filled(prefix) or "", _held(held), _silenced(silenced))
    with person.session.open(Subjects) as store:
        rows, more = store.subjects(wanted, limit=ROWS, after=filled(after))
    asked = {"prefix": prefix, "held": held, "silenced": silenced}
    return page(
        request,
        person,
        "decisions/subjects.html",
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
    """Show one subject: what it waits for, its lanes, its newest entries."""
    with person.session.open(Subjects) as store:
        found = store.subject(name)
    with explaining(person.session, CachedTrace) as asked:
        explained = asked.explain_subject(name)
    return page(
        request,
        person,
        "decisions/subject.html",
        found=found,
        answers=explained.at_endpoints,
        alone=explained.answer,
        notes=explained.notes,
        waiting_max=WAITING_MAX,
        gap=Verdict.GAP,
        repairs=repair_commands(found),
        acts=acts(person),
        decides=_offers(person, found),
    )


def _offers(person: Login, found: Row) -> dict[str, str]:
    """Return what this person may decide about a subject, by stream."""
    if not acts(person):
        return {}
    with person.session.open(Decisions) as store:
        return store.offers(found["name"], found["transitions"])


@router.get("/subjects/pass")
def ask_pass(request: Request, person: Person, name: Named, endpoint: Named) -> Response:
    """Ask for confirmation to skip decisions that are no longer stored."""
    missing = _lane(person, name, endpoint)["delivered_sequence"] + 1
    return ask(
        request,
        person,
        Question(
            title=f"Skip missing decisions of {one_line(name)}",
            action="/subjects/pass",
            button="Skip them",
            back=link("/subjects/show", name=name),
            says=(
                f"Sequence {missing:,}, and any missing directly after it, are no longer stored.",
                (
                    f"{endpoint} never gets them; the lane continues with the first decision that"
                    " is stored."
                ),
            ),
            warns=("A backup may contain them: check that first. This cannot be undone.",),
            kept=(("name", name), ("endpoint", endpoint)),
            danger=True,
        ),
    )


@router.post("/subjects/pass")
def pass_missing(request: Request, person: Operator, form: Form) -> Response:
    """Skip them. A lane where nothing is missing, or that a dead letter holds, is left alone."""
    reason = reason_of(form)
    name, endpoint = (filled(form.get(each, "")) or "" for each in ("name", "endpoint"))
    with person.session.open(GapSkipper) as store:
        done = store.pass_missing(name, endpoint, reason)
    first, last, then = done["passed_from"], done["passed_to"], done["next_sequence"]
    which = f"Sequence {first:,}" if first == last else f"Sequences {first:,} to {last:,}"
    goes_on = "nothing is left to deliver" if then is None else f"the lane continues with {then:,}"
    message = f"{which} skipped at {endpoint}; {goes_on}."
    return redirect(request, person, link("/subjects/show", name=name), message)


@router.get("/subjects/hold")
def ask_hold(request: Request, person: Person, name: Named, endpoint: Named) -> Response:
    """Ask for confirmation to hold a subject at an endpoint."""
    _lane(person, name, endpoint)
    return ask(
        request,
        person,
        Question(
            title=f"Hold {one_line(name)}",
            action="/subjects/hold",
            button="Hold it",
            back=link("/subjects/show", name=name),
            says=(
                (
                    f"Nothing of it is sent to {endpoint}; its decisions wait in order. Other"
                    " subjects continue."
                ),
                "What is in flight ends.",
            ),
            until="Until (empty: until a person resumes it)",
            kept=(("name", name), ("endpoint", endpoint)),
        ),
    )


@router.post("/subjects/hold")
def hold_subject(request: Request, person: Operator, form: Form) -> Response:
    """Hold it until a time, or until a person resumes it."""
    reason = reason_of(form)
    name, endpoint = (filled(form.get(each, "")) or "" for each in ("name", "endpoint"))
    with person.session.open(Holding) as store:
        done = store.hold(name, endpoint, exact_time("until", form.get("until", "")), reason)
    flight = " A request is in flight; nothing is sent after it." if done["in_flight"] else ""
    warning = f" Warning: {done['warning']}." if done["warning"] else ""
    end = "it is resumed" if done["until"] is None else display(done["until"])
    message = f"On hold at {endpoint} until {end}.{flight}{warning}"
    return redirect(request, person, link("/subjects/show", name=name), message)


@router.get("/subjects/resume")
def ask_resume(request: Request, person: Person, name: Named, endpoint: Named) -> Response:
    """Ask for confirmation to resume a subject on hold."""
    _lane(person, name, endpoint)
    return ask(
        request,
        person,
        Question(
            title=f"Resume {one_line(name)}",
            action="/subjects/resume",
            button="Resume it",
            back=link("/subjects/show", name=name),
            says=(f"What waits for {endpoint} is sent in order.",),
            kept=(("name", name), ("endpoint", endpoint)),
        ),
    )


@router.post("/subjects/resume")
def resume_subject(request: Request, person: Operator, form: Form) -> Response:
    """Resume it: what waits is sent in order."""
    reason = reason_of(form)
    name, endpoint = (filled(form.get(each, "")) or "" for each in ("name", "endpoint"))
    with person.session.open(Holding) as store:
        done = store.resume(name, endpoint, reason)
    warning = f" Warning: {done['warning']}." if done["warning"] else ""
    message = f"Resumed at {endpoint}.{warning}"
    return redirect(request, person, link("/subjects/show", name=name), message)


def _lane(person: Login, name: str, endpoint: str) -> Row:
    """Return a subject's lane at an endpoint; raises `CommandError` without one."""
    with person.session.open(Subjects) as store:
        lanes: list[Row] = store.subject(name)["lanes"]
    for lane in lanes:
        if lane["endpoint"] == endpoint:
            return lane
    raise CommandError(
        f"{one_line(name)} has no lane at {one_line(endpoint)}. Nothing was changed; go back"
        " to the subject.",
        ExitCode.NOTHING_MATCHED,
        code="unknown_lane",
    )


def _silenced(text: str) -> bool:
    if text not in ("", *SILENCED):
        raise CommandError(
            f"silenced must be {SILENCED[0]} or empty. Nothing was changed; correct the URL.",
            ExitCode.USAGE,
            code="invalid_value",
        )
    return bool(text)


def _held(text: str) -> Held | None:
    try:
        return Held(text) if text else None
    except ValueError:
        raise CommandError(
            f"held must be one of {', '.join(Held)}. Nothing was changed; choose one of them.",
            ExitCode.USAGE,
            code="invalid_value",
        ) from None

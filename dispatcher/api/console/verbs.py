"""Pages made from the declarations of verbs: lists with filters, and confirmations of changes."""

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from inspect import signature
from typing import Annotated, Any, get_args
from uuid import uuid4

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import Response

from holdfast.dispatcher.api import bodies
from holdfast.dispatcher.api.console.forms import confirm, replay_form
from holdfast.dispatcher.api.console.forms.fields import (
    SINCE_HINT,
    UNTIL_HINT,
    Field,
    exact_time,
    filled,
    when_of,
    whole_number,
)
from holdfast.dispatcher.api.console.frame.guard import Acting, Form, Login, Person, Posted
from holdfast.dispatcher.api.console.frame.pages import page, redirect
from holdfast.dispatcher.api.console.frame.screens import (
    ROWS,
    acts,
    page_or_reason,
    tabs,
    wants_bodies,
    which_of,
)
from holdfast.dispatcher.api.console.rendering.filters import link
from holdfast.dispatcher.api.requests import no_others
from holdfast.dispatcher.api.verbs import path_type
from holdfast.dispatcher.operators.common.session import OperatorSession, Row
from holdfast.dispatcher.operators.common.times import When
from holdfast.dispatcher.operators.common.verbs import (
    REQUIRED,
    Asked,
    Group,
    Kind,
    List,
    Member,
    Screen,
    Verb,
    signed,
)
from holdfast.dispatcher.operators.entries.rules import key_of
from holdfast.sink.contract.exits import CommandError, ExitCode

InPath = Annotated[str, Path(max_length=64)]
Chosen = Annotated[list[str], Query()]

HINTS = {"since": SINCE_HINT, "until": UNTIL_HINT}


def router(declared: Group) -> APIRouter:
    """Return the pages of a declared group."""
    made = APIRouter()
    strict = [Depends(no_others)]
    if any(verb.asked is not None and verb.asked.do for verb in declared.verbs):
        made.get(f"{declared.screen}/selected")(_selected(declared))
    for verb in declared.verbs:
        if verb.asked is not None:
            made.post(verb.asked.path)(_change(verb, verb.asked))
            if verb.asked.do is None:
                made.get(verb.asked.path, dependencies=strict)(_question(verb, verb.asked))
    for verb in declared.verbs:
        if verb.screen is not None:
            pages = _list(verb, verb.screen) if isinstance(verb, List) else _show(verb, verb.screen)
            made.get(verb.screen.path, dependencies=strict)(pages)
    return made


def _list(verb: List, screen: Screen) -> Callable[..., Response]:
    filters = [each for each in verb.members if each.param.label is not None]
    read = [*filters, *(each for each in verb.members if each.name == verb.option)]
    has_limit = "limit" in {each.name for each in verb.members}
    has_tabs = {"open", "resolved"} <= {each.name for each in verb.members}
    names = [
        *(each.name for each in filters),
        *(["which"] if has_tabs else []),
        *([verb.option] if read[len(filters) :] else []),
    ]

    def show(request: Request, person: Person, **texts: str) -> Response:
        cursor = texts.pop(verb.option, "")
        shown = which_of(texts.get("which", ""))
        values = {each.name: _parsed(each, texts.get(each.name, cursor)) for each in read}
        values |= {"limit": ROWS} if has_limit else {}
        values |= {"open": shown == "open", "resolved": shown == "resolved"} if has_tabs else {}
        verb.check(values, lambda member: (member.param.label or member.name).lower())
        with person.session.open(verb.group.store) as store:
            values = {name: _resolved(store, value) for name, value in values.items()}
            found, none_because = page_or_reason(lambda: verb.call(store, values))
        further = {verb.option: found.further}
        asked = {name: text for name, text in texts.items() if name != "which"}
        return page(
            request,
            person,
            screen.template,
            rows=[bodies.hidden(verb.bodies, row) for row in found.rows],
            none_because=none_because,
            asked=asked,
            which=shown,
            kept={"which": texts.get("which", "")},
            tabs=tabs(screen.path, shown, asked),
            filtered=any(asked.values()),
            fields=[_field(each, texts[each.name]) for each in filters],
            newest=link(screen.path, **texts) if cursor else None,
            older=link(screen.path, **texts, **further) if found.further is not None else None,
            acts=acts(person),
            page_rows=ROWS,
        )

    return signed(show, dict.fromkeys(names, (str, "")))


def _show(verb: Verb, screen: Screen) -> Callable[..., Response]:
    def show(request: Request, person: Person, **values: Any) -> Response:
        body = values.pop("body", "")
        values |= {name: key_of(values[name]) for name in keys}
        with person.session.open(verb.group.store) as store:
            row = verb.call(store, values)
        shown = wants_bodies(request, person, body)
        row = bodies.seen(person.session, verb.bodies, row, body=shown)
        context: Row = {screen.name: row, "asked": shown, "acts": acts(person)}
        return page(request, person, screen.template, **context)

    keys = [each.name for each in verb.members if each.param.kind is Kind.KEY]
    types = {each.name: path_type(each) for each in verb.members} | dict.fromkeys(keys, InPath)
    parameters: dict[str, tuple[Any, Any]] = {n: (kind, REQUIRED) for n, kind in types.items()}
    if verb.bodies is not None and verb.bodies.action:
        parameters["body"] = (str, "")
    return signed(show, parameters)


def _field(member: Member, text: str) -> Field:
    choices = _choices(member)
    hint = HINTS.get(member.name, member.param.hint)
    return Field(member.name, member.param.label or "", text, hint, choices=choices)


def _choices(member: Member) -> tuple[str, ...]:
    kind = _enum(member)
    return () if kind is None else confirm.values(kind)


def _enum(member: Member) -> type[StrEnum] | None:
    kinds = get_args(member.type) or (member.type,)
    return next((k for k in kinds if isinstance(k, type) and issubclass(k, StrEnum)), None)


def _selected(declared: Group) -> Callable[..., Response]:
    verbs = {
        asked.do: (verb, asked) for verb in declared.verbs if (asked := verb.asked) is not None
    }

    def ask(request: Request, person: Person, do: str = "", id: Chosen = []) -> Response:  # noqa: A002, B006 - the parameter's name; it is never changed
        if do not in verbs:
            raise CommandError(
                f"do must be {' or '.join(sorted(map(str, verbs)))}. Nothing was changed; go back"
                " to the list.",
                ExitCode.USAGE,
                code="invalid_value",
            )
        return _ask(request, person, *verbs[do], {"ids": confirm.numbers_of(id)})

    return ask


def _question(verb: Verb, asked: Asked) -> Callable[..., Response]:
    names = list(signature(asked.question).parameters)[1:]

    def ask(request: Request, person: Person, **values: str) -> Response:
        return _ask(request, person, verb, asked, values)

    in_query = Annotated[str, Query(min_length=1)]
    in_path = _in_path(verb, asked)
    return signed(ask, {n: (InPath if n in in_path else in_query, REQUIRED) for n in names})


def _in_path(verb: Verb, asked: Asked) -> list[str]:
    return [each.name for each in verb.members if f"{{{each.name}}}" in asked.path]


def _ask(request: Request, person: Login, verb: Verb, asked: Asked, values: Row) -> Response:
    with person.session.open(verb.group.store) as store:
        question = asked.question(store, **values)
    kept = question.kept or [
        pair
        for name, value in values.items()
        if name not in _in_path(verb, asked)
        for pair in _hidden(name, value)
    ]
    plan = [(each.name, str(uuid4())) for each in verb.members if each.param.kind is Kind.PLAN]
    shown = replace(question, action=asked.path.format(**values), kept=[*kept, *plan])
    return confirm.ask(request, person, shown)


def _hidden(name: str, value: Any) -> list[tuple[str, str]]:
    return [("id", str(each)) for each in value] if name == "ids" else [(name, str(value))]


def _change(verb: Verb, asked: Asked) -> Callable[..., Response]:
    acting = Annotated[Login, Depends(Acting(verb.least))]

    def change(request: Request, person: Login, form: Form, **in_path: str) -> Response:
        settings = request.app.state.settings
        posted = [each for each in verb.members if each.name not in in_path]
        values = {each.name: _posted(each, form, settings) for each in posted}
        with person.session.open(verb.group.store) as opened:
            store: Any = opened
            values |= {name: store.find(text) for name, text in in_path.items()}
            done = asked.done(verb.call(store, values), values)
        return redirect(request, person, done.page, done.text, tone=done.tone)

    change.__annotations__["person"] = acting
    return signed(change, dict.fromkeys(_in_path(verb, asked), (InPath, REQUIRED)))


def _posted(member: Member, form: Posted, settings: Any) -> Any:
    text = form.get(member.name, "")
    match member.param.kind:
        case Kind.REASON:
            return confirm.reason_of(form)
        case Kind.IDS:
            return confirm.numbers_of(form.getlist("id"))
        case Kind.RATE:
            return replay_form.rate_of(form)
        case Kind.SETTING:
            return getattr(settings, member.name)
        case Kind.PLAN:
            return replay_form.id_of(text)
    return bool(text) if member.type is bool else _parsed(member, text)


def _parsed(member: Member, text: str) -> Any:
    kind = _enum(member)
    if kind is not None:
        return confirm.one_of(member.name, text, kind)
    match member.param.kind:
        case Kind.TIME if member.param.label is None:
            return exact_time(member.name, text)
        case Kind.TIME:
            return when_of(member.name, text)
        case Kind.BEFORE_ID | Kind.BATCH:
            return whole_number(member.name, text)
    return filled(text)


def _resolved(store: OperatorSession, value: Any) -> Any:
    return store.moment(value) if isinstance(value, When) else value

"""Routes made from the declarations of verbs, with their entries in the API's description."""

from collections.abc import Callable
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, get_args
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field, create_model

from holdfast.dispatcher.api import bodies, requests, responses
from holdfast.dispatcher.api.access import Admin, Operator, Session, Viewer
from holdfast.dispatcher.operators.common.verbs import (
    REQUIRED,
    Group,
    Kind,
    List,
    Member,
    Model,
    Verb,
    signed,
)
from holdfast.dispatcher.operators.entries.rules import key_of
from holdfast.sink.contract.states import AccessRole

TYPES: dict[Kind, Any] = {
    Kind.NAME: requests.Name,
    Kind.TEXT: requests.Text,
    Kind.ID: requests.Number,
    Kind.IDS: requests.Ids,
    Kind.LIMIT: requests.Limit,
    Kind.BATCH: requests.BatchId,
    Kind.BEFORE_ID: requests.NumberBefore,
    Kind.CURSOR: requests.Cursor,
    Kind.KEY: requests.KeyText,
    Kind.KEYS: requests.Keys,
    Kind.TIME: requests.Moment,
    Kind.EXACT_TIME: requests.Moment,
    Kind.REASON: requests.Reason,
    Kind.RATE: requests.Rate,
}

DESCRIBED = {
    Kind.LIMIT,
    Kind.BEFORE_ID,
    Kind.CURSOR,
    Kind.KEY,
    Kind.KEYS,
    Kind.IDS,
    Kind.REASON,
    Kind.RATE,
}
"""Kinds that are described by their type."""

SESSIONS = {AccessRole.VIEWER: Viewer, AccessRole.OPERATOR: Operator, AccessRole.ADMIN: Admin}

TIMES = ("since", "until")
"""Members that are checked together: `requests.Times`."""

PAGES: dict[Kind, type[BaseModel]] = {
    Kind.CURSOR: responses.Paged,
    Kind.BEFORE_ID: responses.PagedByNumber,
    Kind.BATCH: responses.PagedByNumber,
}


def router(declared: Group) -> APIRouter:
    """Return the routes of a declared group."""
    made = APIRouter(prefix=declared.path, tags=[declared.tag])
    for verb in declared.verbs:
        add(made, verb)
    return made


def add(made: APIRouter, verb: Verb) -> None:
    """Add the route of a verb, if it has one."""
    if verb.route is not None:
        made.add_api_route(
            verb.route.path,
            _endpoint(verb, verb.route.path),
            methods=[verb.route.method if verb.changes else "GET"],
            status_code=verb.route.status,
            summary=verb.route.summary,
        )


def _endpoint(verb: Verb, path: str) -> Callable[..., Any]:
    in_path = [each for each in verb.members if f"{{{each.name}" in path]
    settings = [each.name for each in verb.members if each.param.kind is Kind.SETTING]
    keys = [each.name for each in verb.members if each.param.kind is Kind.KEY]
    unused = (Kind.SETTING, Kind.LOCAL)
    others = [m for m in verb.members if m not in in_path and m.param.kind not in unused]
    times = [each for each in others if each.name in TIMES] if not verb.changes else []
    asks = verb.bodies is not None and verb.bodies.hide and verb.bodies.action

    def run(**values: Any) -> Any:
        session: Session = values.pop("session")
        given, body = values.pop("given", None), values.pop("body", False)
        if (between := values.pop("times", None)) is not None:
            values |= {each.name: getattr(between, each.name) for each in times}
        if (request := values.pop("request", None)) is not None:
            values |= {name: getattr(request.app.state.settings, name) for name in settings}
        bodies.allow(session, body=body)
        if given is not None:
            values |= {each.name: getattr(given, each.name) for each in others}
        values |= {name: key_of(values[name]) for name in keys}
        verb.check(values, lambda member: f"`{member.name}`")
        with session.open(verb.group.store) as store:
            result = verb.call(store, values)
        if isinstance(verb, List):
            rows = [bodies.hidden(verb.bodies, row) for row in result.rows]
            return {**result.about, verb.rows: rows, f"next_{verb.option}": result.further}
        return bodies.seen(session, verb.bodies, result, body=body)

    parameters: dict[str, tuple[Any, Any]] = {"session": (SESSIONS[verb.least], REQUIRED)}
    parameters |= {each.name: (path_type(each), REQUIRED) for each in in_path}
    if verb.changes:
        parameters["given"] = (_body(verb, others), REQUIRED)
    else:
        parameters |= {m.name: (_query(m), m.default) for m in others if m not in times}
    if asks:
        parameters["body"] = (requests.AskBody, False)
    if times:
        parameters["times"] = (requests.Times, REQUIRED)
    if settings:
        parameters["request"] = (Request, REQUIRED)
    run.__name__, run.__doc__ = verb.run.__name__, verb.run.__doc__
    return signed(run, parameters, _result(verb))


def _type(member: Member) -> Any:
    kind = TYPES.get(member.param.kind, member.type)
    return kind | None if member.default is None else kind


def _query(member: Member) -> Any:
    if member.param.kind in DESCRIBED or not member.param.help:
        return _type(member)
    limits = {name: each for name, each in _limits(member).items() if each is not None}
    return Annotated[_type(member), Query(description=member.param.help, **limits)]


def path_type(member: Member) -> Any:
    """Return the type of a parameter in a path."""
    text = "" if member.param.kind in DESCRIBED else member.param.help
    return Annotated[_type(member), Path(description=text)] if text else _type(member)


def _body(verb: Verb, members: list[Member]) -> type[BaseModel]:
    if verb.body is None:
        return requests.Because
    of: dict[str, Any] = {each.name: _in_body(each) for each in members}
    return create_model(verb.body.name, __base__=requests.RequestBody, __doc__=verb.body.doc, **of)


def _in_body(member: Member) -> tuple[Any, Any]:
    text = None if member.param.kind in DESCRIBED else member.param.help or None
    limits = {"description": text, **_limits(member)}
    limits |= {"strict": False} if _is_written_as_text(member) else {}
    default = ... if member.default is REQUIRED else member.default
    kept: dict[str, Any] = {name: each for name, each in limits.items() if each is not None}
    return _type(member), Field(default, **kept)


def _limits(member: Member) -> dict[str, Any]:
    low, high = member.param.limits or (None, None)
    is_text = member.param.kind is Kind.TEXT
    return {"min_length": low} if is_text else {"ge": low, "le": high}


def _is_written_as_text(member: Member) -> bool:
    """Return whether JSON has no type of its own for the values."""
    kinds = get_args(member.type) or (member.type,)
    return any(
        isinstance(each, type) and issubclass(each, Enum | UUID | datetime) for each in kinds
    )


def _result(verb: Verb) -> Any:
    if not isinstance(verb, List):
        return verb.result
    if not isinstance(verb.page, Model):
        return verb.page
    kinds = [each.param.kind for each in verb.members if each.name == verb.option]
    base = PAGES[kinds[0]] if kinds else responses.OnePage
    rows: dict[str, Any] = {name: (kind, ...) for name, kind in verb.about.items()}
    rows |= {verb.rows: (list[verb.result], ...)}  # type: ignore[name-defined]
    return create_model(verb.page.name, __base__=base, __doc__=verb.page.doc, **rows)

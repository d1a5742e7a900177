"""Endpoints (webhook targets): listed, shown, added, changed, paused, resumed, disabled."""

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, status
from pydantic import Field, StringConstraints, create_model

from holdfast.dispatcher.api.access import Admin, Operator, Viewer
from holdfast.dispatcher.api.requests import Because, Name, Reason, RequestBody
from holdfast.dispatcher.api.responses import Count, Json, OnePage, ResponseModel, Time
from holdfast.dispatcher.operators.endpoints.actions import changed, made, refuse_references
from holdfast.dispatcher.operators.endpoints.settings import (
    SCHEDULE_STEPS_MAX,
    SETTINGS,
    Form,
    Setting,
)
from holdfast.dispatcher.operators.endpoints.store import Endpoints
from holdfast.dispatcher.outbound.operator_headers import LITERALS, masked
from holdfast.sink.contract.envelope import TYPE_CHARACTERS_MAX, TYPE_PATTERN
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import (
    AccessRole,
    BreakerState,
    EndpointState,
    OrderPolicy,
)

router = APIRouter(prefix="/endpoints", tags=["endpoints"])


class ListedEndpoint(ResponseModel):
    """An endpoint with its backlog."""

    name: str
    url: str
    state: EndpointState
    state_reason: str | None
    order_policy: OrderPolicy
    types: list[str] = Field(description="Types that it takes; empty means all.")
    streams: list[str] = Field(description="Streams that it takes; empty means all.")
    secret_refs: list[str] = Field(
        description="References that the dispatcher resolves to its secrets."
    )
    starts_at: Time | None = Field(
        description="When it was added, if it gets only what was committed since; null: it gets"
        " everything."
    )
    waiting_lanes: Count = Field(description="Counted to 10,000.")
    leased_lanes: Count
    dead_letters: Count = Field(description="Unresolved ones, counted to 10,000.")


class EndpointList(OnePage):
    """Every endpoint, by name."""

    endpoints: list[ListedEndpoint]


_SHOWN: dict[Form, Any] = {
    Form.URL: str,
    Form.PATH: str,
    Form.REFERENCE: str,
    Form.TYPES: list[str],
    Form.STREAMS: list[str],
    Form.NETWORKS: list[str],
    Form.REFERENCES: list[str],
    Form.HEADERS: dict[str, str],
    Form.LITERALS: dict[str, str],
    Form.NUMBER: int,
    Form.MILLISECONDS: int,
    Form.SECONDS: int,
    Form.DELAYS: list[int],
}
"""The types of settings in responses; a choice has that of its words."""

_SHOWN_FIRST = ("envelope", "headers", LITERALS, "ca_ref", "client_cert_ref", "client_key_ref")
"""The settings that a response has before the others."""


def _shown(setting: Setting) -> Any:
    type_ = setting.choices if setting.form is Form.CHOICE else _SHOWN[setting.form]
    optional = type_ | None if setting.is_optional else type_
    return optional, Field(description=setting.in_response)


if TYPE_CHECKING:
    _StoredSettings = ListedEndpoint
else:
    _StoredSettings = create_model(
        "_StoredSettings",
        __base__=ListedEndpoint,
        id=(int, ...),
        **{
            column: _shown(SETTINGS[column])
            for column in dict.fromkeys((*_SHOWN_FIRST, *SETTINGS))
            if column not in ListedEndpoint.model_fields
        },
    )


class Endpoint(_StoredSettings):
    """An endpoint's settings and state. Secrets are shown as references only."""

    key_window_seconds: int | None = Field(
        description="The receiver's stated key-retention window."
    )
    key_window_seen_at: Time | None
    breaker: BreakerState
    breaker_since: Time | None
    breaker_until: Time | None
    breaker_reason: str | None
    failures: Count = Field(description="Consecutive failures.")
    held_until: Time | None = Field(
        description="The receiver asked not to be called before this time."
    )
    created_at: Time
    updated_at: Time
    fault: str | None = Field(description="Why nothing can be sent with these settings.")
    stopped_lanes: Count = Field(
        description="Lanes that wait behind one of its first 10,000 dead letters."
    )


@router.get("", summary="List endpoints.")
def list_endpoints(session: Viewer) -> EndpointList:
    """Return every endpoint with its backlog."""
    with session.open(Endpoints) as store:
        return EndpointList.model_validate({"endpoints": store.endpoints()})


@router.get("/{name}", summary="Show an endpoint.")
def show_endpoint(session: Viewer, name: Name) -> Endpoint:
    """Return an endpoint's settings, breaker, holds and backlog."""
    with session.open(Endpoints) as store:
        return Endpoint.model_validate(store.endpoint(name))


Named = Annotated[Name, Path(description="The endpoint's name.")]

Line = Annotated[str, StringConstraints(min_length=1, max_length=2048, pattern="^[!-~]+$")]

Ref = Annotated[
    str,
    StringConstraints(min_length=5, max_length=1024, pattern="^(env|file):[!-~]+$"),
    Field(
        description="env:VAR or file:PATH, resolved where the dispatcher runs; never a secret"
        " itself."
    ),
]

Secrets = Annotated[list[Ref], Field(min_length=1, max_length=2)]

Types = Annotated[
    list[
        Annotated[
            str, StringConstraints(pattern=f"^{TYPE_PATTERN}$", max_length=TYPE_CHARACTERS_MAX)
        ]
    ],
    Field(max_length=100, description="Types that it gets; an empty list: every type."),
]

Streams = Annotated[
    list[Name], Field(max_length=100, description="Streams that it gets; an empty list: every one.")
]

HeaderName = Annotated[str, StringConstraints(pattern="^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$")]

References = dict[HeaderName, Ref]

Literals = dict[
    HeaderName,
    Annotated[str, StringConstraints(min_length=1, max_length=2048, pattern="^[ -~]+$")],
]


_ACCEPTED: dict[Form, Any] = {
    Form.URL: Line,
    Form.PATH: Line,
    Form.REFERENCE: Ref,
    Form.TYPES: Types,
    Form.STREAMS: Streams,
    Form.REFERENCES: Secrets,
}
"""The types of settings in requests, of forms that need nothing else."""

_COUNT_MAX = 100
"""Maximum number of networks, and of headers."""


def _accepted(setting: Setting) -> Any:
    least, most = setting.limits
    limits: dict[str, Any] = {}
    match setting.form:
        case Form.CHOICE:
            type_: Any = Annotated[setting.choices, Field(strict=False)]
        case Form.NUMBER | Form.MILLISECONDS | Form.SECONDS:
            type_, limits = int, {"ge": least, "le": most}
        case Form.DELAYS:
            type_ = list[Annotated[int, Field(ge=least, le=most)]]
            limits = {"min_length": 1, "max_length": SCHEDULE_STEPS_MAX}
        case Form.NETWORKS:
            type_, limits = list[Line], {"max_length": _COUNT_MAX}
        case Form.HEADERS | Form.LITERALS:
            type_ = References if setting.form is Form.HEADERS else Literals
            limits = {"max_length": _COUNT_MAX}
        case form:
            type_ = _ACCEPTED[form]
    return type_ | None, Field(None, description=setting.in_request, **limits)


if TYPE_CHECKING:
    _GivenSettings = RequestBody
else:
    _GivenSettings = create_model(
        "_GivenSettings",
        __base__=RequestBody,
        **{
            each.column: _accepted(each)
            for each in sorted(SETTINGS.values(), key=lambda each: not each.required)
        },
    )


class Settings(_GivenSettings):
    """Settings of an endpoint, in the units of its columns."""

    reason: Reason

    def columns(self) -> dict[str, Any]:
        """Return the given members; null removes an optional setting."""
        return self.model_dump(mode="json", exclude_unset=True, include=set(SETTINGS))


class NewEndpoint(Settings):
    """An endpoint to add. Omitted settings get their default."""

    name: Name
    url: Line
    secret_refs: Secrets
    from_beginning: bool = Field(False, description="Deliver entries that are already stored, too.")

    def columns(self) -> dict[str, Any]:
        """Return the given members that are not null."""
        return {k: v for k, v in super().columns().items() if v is not None}


class Rotation(RequestBody):
    """A secret to sign with in addition to the old one (`to`), later alone (`finish`)."""

    to: Ref | None = None
    finish: bool = False
    reason: Reason


class EndpointSettings(ResponseModel):
    """An added endpoint."""

    name: str
    settings: Json = Field(description="By column name; secrets as references.")


class EndpointChange(ResponseModel):
    """The changed settings; empty if nothing changed."""

    name: str
    before: Json
    after: Json


class EndpointSecrets(ResponseModel):
    """The secrets that sign every request to an endpoint from now on."""

    name: str
    secret_refs: list[str]


class EndpointStateNow(ResponseModel):
    """The state of an endpoint, and why."""

    name: str
    state: EndpointState
    state_reason: str | None


@router.post("", status_code=status.HTTP_201_CREATED, summary="Add an endpoint.")
def add_endpoint(session: Admin, body: NewEndpoint) -> EndpointSettings:
    """Add an endpoint, by default for decisions from now on."""
    settings = made(body.name, body.columns())
    with session.open(Endpoints) as store:
        store.add_endpoint(settings, from_beginning=body.from_beginning, reason=body.reason)
    return EndpointSettings(name=body.name, settings=masked(settings))


@router.patch("/{name}", summary="Change the given settings of an endpoint, and nothing else.")
def set_endpoint(session: Admin, name: Named, body: Settings) -> EndpointChange:
    """Change settings. To change types or streams, pause it first; they apply from now on."""
    columns = body.columns()
    with session.open(Endpoints) as store:
        done = store.set_endpoint(name, lambda row: changed(row, columns), body.reason)
    return EndpointChange(name=name, **done)


@router.post(
    "/{name}/rotate-secret", summary="Sign with an additional secret, or drop the old one."
)
def rotate_secret(session: Admin, name: Named, body: Rotation) -> EndpointSecrets:
    """First `to`: both secrets sign. Once the receiver has the new one, `finish`: it signs
    alone.
    """
    if body.to is None and not body.finish:
        raise CommandError(
            "give `to` with the new secret, or `finish` to drop the old one. Nothing was changed.",
            ExitCode.USAGE,
            code="missing_parameter",
        )
    refuse_references({"secret_refs": [body.to] if body.to else []})
    with session.open(Endpoints) as store:
        refs = store.rotate_secret(name, body.to, finish=body.finish, reason=body.reason)
    return EndpointSecrets(name=name, secret_refs=refs)


@router.post("/{name}/pause", summary="Stop sending to an endpoint.")
def pause_endpoint(session: Operator, name: Named, body: Because) -> EndpointStateNow:
    """Its entries wait in order. A disabled endpoint is changed by administrators only."""
    unless = None if session.may(AccessRole.ADMIN) else EndpointState.DISABLED
    with session.open(Endpoints) as store:
        row = store.set_endpoint_state(name, EndpointState.PAUSED, body.reason, unless=unless)
    return EndpointStateNow.model_validate(row)


@router.post("/{name}/resume", summary="Resume sending to an endpoint.")
def resume_endpoint(session: Operator, name: Named, body: Because) -> EndpointStateNow:
    """Waiting entries are sent in order. A disabled endpoint is resumed by administrators only."""
    unless = None if session.may(AccessRole.ADMIN) else EndpointState.DISABLED
    with session.open(Endpoints) as store:
        row = store.set_endpoint_state(name, EndpointState.ACTIVE, body.reason, unless=unless)
    return EndpointStateNow.model_validate(row)


@router.post("/{name}/disable", summary="Stop sending until an administrator resumes it.")
def disable_endpoint(session: Admin, name: Named, body: Because) -> EndpointStateNow:
    """As after a response 410. Its entries wait in order."""
    with session.open(Endpoints) as store:
        row = store.set_endpoint_state(name, EndpointState.DISABLED, body.reason)
    return EndpointStateNow.model_validate(row)

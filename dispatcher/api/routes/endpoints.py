"""Endpoints (webhook targets): listed, shown, added, changed, paused, resumed, disabled."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, status
from pydantic import Field, StringConstraints

from holdfast.dispatcher.api.access import Admin, Operator, Viewer
from holdfast.dispatcher.api.requests import Because, Name, Reason, RequestBody
from holdfast.dispatcher.api.responses import Count, Json, OnePage, ResponseModel, Time
from holdfast.dispatcher.operators.endpoints.actions import changed, made, refuse_references
from holdfast.dispatcher.operators.endpoints.store import Endpoints
from holdfast.dispatcher.outbound.operator_headers import masked
from holdfast.sink.contract.envelope import TYPE_CHARACTERS_MAX, TYPE_PATTERN
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import (
    AccessRole,
    BreakerState,
    EndpointState,
    EnvelopeStyle,
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


class Endpoint(ListedEndpoint):
    """An endpoint's settings and state. Secrets are shown as references only."""

    id: int
    envelope: EnvelopeStyle
    headers: dict[str, str] = Field(
        description="References that the dispatcher resolves to the values."
    )
    headers_literal: dict[str, str] = Field(description="By name; values are masked.")
    ca_ref: str | None
    client_cert_ref: str | None
    client_key_ref: str | None
    allow_cidrs: list[str]
    connect_timeout_ms: int
    total_timeout_ms: int
    concurrency: int
    rate_per_second: int | None
    schedule_seconds: list[int] = Field(description="Delay before each retry.")
    budget_seconds: int = Field(
        description="How long an entry is retried before it becomes a dead letter."
    )
    breaker_threshold: int
    slow_start_seconds: int
    inquiry_path: str | None
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

Milliseconds = Annotated[int, Field(ge=1, le=120_000)]

HeaderName = Annotated[str, StringConstraints(pattern="^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$")]

References = dict[HeaderName, Ref]

Literals = dict[
    HeaderName,
    Annotated[str, StringConstraints(min_length=1, max_length=2048, pattern="^[ -~]+$")],
]


class Settings(RequestBody):
    """Settings of an endpoint, in the units of its columns."""

    url: Line | None = None
    secret_refs: Secrets | None = None
    types: Types | None = None
    allow_cidrs: list[Line] | None = Field(None, max_length=100)
    headers: References | None = Field(
        None, max_length=100, description="All headers whose value is a reference."
    )
    headers_literal: Literals | None = Field(
        None,
        max_length=100,
        description="All other headers. Stored in clear text, masked in responses.",
    )
    envelope: Annotated[EnvelopeStyle, Field(strict=False)] | None = None
    ca_ref: Ref | None = None
    client_cert_ref: Ref | None = None
    client_key_ref: Ref | None = None
    connect_timeout_ms: Milliseconds | None = None
    total_timeout_ms: Milliseconds | None = None
    concurrency: int | None = Field(None, ge=1, le=1024)
    rate_per_second: int | None = Field(None, ge=0, le=2**31 - 1, description="0: no limit.")
    schedule_seconds: list[Annotated[int, Field(ge=0, le=604_800)]] | None = Field(
        None, min_length=1, max_length=32
    )
    budget_seconds: int | None = Field(None, ge=60, le=2_592_000)
    breaker_threshold: int | None = Field(None, ge=0, le=10_000)
    slow_start_seconds: int | None = Field(None, ge=0, le=86_400)
    order_policy: Annotated[OrderPolicy, Field(strict=False)] | None = None
    inquiry_path: Line | None = None
    reason: Reason

    def columns(self) -> dict[str, Any]:
        """Return the given members; null removes an optional setting."""
        return self.model_dump(mode="json", exclude_unset=True, exclude={"name", *NO_COLUMNS})


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


NO_COLUMNS = {"reason", "from_beginning"}


@router.post("", status_code=status.HTTP_201_CREATED, summary="Add an endpoint.")
def add_endpoint(session: Admin, given: NewEndpoint) -> EndpointSettings:
    """Add an endpoint, by default for decisions from now on."""
    settings = made(given.name, given.columns())
    with session.open(Endpoints) as store:
        store.add_endpoint(settings, from_beginning=given.from_beginning, reason=given.reason)
    return EndpointSettings(name=given.name, settings=masked(settings))


@router.patch("/{name}", summary="Change the given settings of an endpoint, and nothing else.")
def set_endpoint(session: Admin, name: Named, given: Settings) -> EndpointChange:
    """Change settings. To change the types, pause the endpoint first; they apply from now on."""
    columns = given.columns()
    with session.open(Endpoints) as store:
        done = store.set_endpoint(name, lambda row: changed(row, columns), given.reason)
    return EndpointChange(name=name, **done)


@router.post(
    "/{name}/rotate-secret", summary="Sign with an additional secret, or drop the old one."
)
def rotate_secret(session: Admin, name: Named, given: Rotation) -> EndpointSecrets:
    """First `to`: both secrets sign. Once the receiver has the new one, `finish`: it signs
    alone.
    """
    if given.to is None and not given.finish:
        raise CommandError(
            "give `to` with the new secret, or `finish` to drop the old one. Nothing was changed.",
            ExitCode.USAGE,
            code="missing_parameter",
        )
    refuse_references({"secret_refs": [given.to] if given.to else []})
    with session.open(Endpoints) as store:
        refs = store.rotate_secret(name, given.to, finish=given.finish, reason=given.reason)
    return EndpointSecrets(name=name, secret_refs=refs)


@router.post("/{name}/pause", summary="Stop sending to an endpoint.")
def pause_endpoint(session: Operator, name: Named, given: Because) -> EndpointStateNow:
    """Its entries wait in order. A disabled endpoint is changed by administrators only."""
    unless = None if session.may(AccessRole.ADMIN) else EndpointState.DISABLED
    with session.open(Endpoints) as store:
        row = store.set_endpoint_state(name, EndpointState.PAUSED, given.reason, unless=unless)
    return EndpointStateNow.model_validate(row)


@router.post("/{name}/resume", summary="Resume sending to an endpoint.")
def resume_endpoint(session: Operator, name: Named, given: Because) -> EndpointStateNow:
    """Waiting entries are sent in order. A disabled endpoint is resumed by administrators only."""
    unless = None if session.may(AccessRole.ADMIN) else EndpointState.DISABLED
    with session.open(Endpoints) as store:
        row = store.set_endpoint_state(name, EndpointState.ACTIVE, given.reason, unless=unless)
    return EndpointStateNow.model_validate(row)


@router.post("/{name}/disable", summary="Stop sending until an administrator resumes it.")
def disable_endpoint(session: Admin, name: Named, given: Because) -> EndpointStateNow:
    """As after a response 410. Its entries wait in order."""
    with session.open(Endpoints) as store:
        row = store.set_endpoint_state(name, EndpointState.DISABLED, given.reason)
    return EndpointStateNow.model_validate(row)

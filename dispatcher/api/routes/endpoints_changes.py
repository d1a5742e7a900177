"""Endpoints: added, changed, paused, resumed, disabled, and their secrets rotated."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, status
from pydantic import Field, StringConstraints

from dispatcher.api.access import Admin, Operator
from dispatcher.api.models import Because, Given, Name, Reason
from dispatcher.api.shapes import Json, Shown
from dispatcher.operators.endpoints.actions import changed, made, refuse_references
from dispatcher.operators.endpoints.store import Endpoints
from dispatcher.outbound.headers import masked
from sink.contract.exits import CommandError, ExitCode
from sink.contract.states import AccessRole, EndpointState, EnvelopeStyle, OrderPolicy

router = APIRouter(prefix="/endpoints", tags=["endpoints"])

Named = Annotated[Name, Path(description="Of the endpoint.")]
Line = Annotated[str, StringConstraints(min_length=1, max_length=2048, pattern="^[!-~]+$")]
Ref = Annotated[
    str,
    StringConstraints(min_length=5, max_length=1024, pattern="^(env|file):[!-~]+$"),
    Field(description="env:VAR or file:PATH, where the dispatcher runs; never a secret itself."),
]
Secrets = Annotated[list[Ref], Field(min_length=1, max_length=2)]
Types = Annotated[
    list[Annotated[str, StringConstraints(pattern="^[a-zA-Z0-9_.]{1,128}$")]],
    Field(max_length=100, description="What it gets; an empty list: every type."),
]
Milliseconds = Annotated[int, Field(ge=1, le=120_000)]
HeaderName = Annotated[str, StringConstraints(pattern="^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$")]
References = dict[HeaderName, Ref]
Literals = dict[
    HeaderName,
    Annotated[str, StringConstraints(min_length=1, max_length=2048, pattern="^[ -~]+$")],
]


class Settings(Given):
    """What a person may say of an endpoint, in the units of its columns."""

    url: Line | None = None
    secret_refs: Secrets | None = None
    types: Types | None = None
    allow_cidrs: list[Line] | None = Field(None, max_length=100)
    headers: References | None = Field(
        None, max_length=100, description="All headers whose value is a reference."
    )
    headers_literal: Literals | None = Field(
        None, max_length=100, description="All others. Stored as given, and never shown again."
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
        """Return what was named; null takes away what an endpoint may be without."""
        return self.model_dump(mode="json", exclude_unset=True, exclude={"name", *NO_COLUMNS})


class NewEndpoint(Settings):
    """An endpoint to be added; what is left out has its default."""

    name: Name
    url: Line
    secret_refs: Secrets
    from_beginning: bool = Field(False, description="It gets what is stored already, too.")

    def columns(self) -> dict[str, Any]:
        """Return what was named."""
        return {k: v for k, v in super().columns().items() if v is not None}


class Rotation(Given):
    """A secret to sign with besides the old one (`to`), then alone (`finish`)."""

    to: Ref | None = None
    finish: bool = False
    reason: Reason


class EndpointSettings(Shown):
    """An endpoint that was added."""

    name: str
    settings: Json = Field(description="By the names of columns; secrets as references.")


class EndpointChange(Shown):
    """What is different now; nothing, where it was like this already."""

    name: str
    before: Json
    after: Json


class EndpointSecrets(Shown):
    """What every request to an endpoint is signed with from now on."""

    name: str
    secret_refs: list[str]


class EndpointStateNow(Shown):
    """Whether an endpoint is sent to, and why."""

    name: str
    state: EndpointState
    state_reason: str | None


NO_COLUMNS = {"reason", "from_beginning"}


@router.post("", status_code=status.HTTP_201_CREATED, summary="Add an endpoint.")
def add_endpoint(session: Admin, given: NewEndpoint) -> EndpointSettings:
    """Add an endpoint, by default for what is decided from now on."""
    settings = made(given.name, given.columns())
    with session.open(Endpoints) as store:
        store.add_endpoint(settings, from_beginning=given.from_beginning, reason=given.reason)
    return EndpointSettings(name=given.name, settings=masked(settings))


@router.patch("/{name}", summary="Change what is named of an endpoint, and nothing else.")
def set_endpoint(session: Admin, name: Named, given: Settings) -> EndpointChange:
    """Change settings. Other types need a paused endpoint, and count from now on."""
    columns = given.columns()
    with session.open(Endpoints) as store:
        done = store.set_endpoint(name, lambda row: changed(row, columns), given.reason)
    return EndpointChange(name=name, **done)


@router.post("/{name}/rotate-secret", summary="Sign with a further secret, or drop the old one.")
def rotate_secret(session: Admin, name: Named, given: Rotation) -> EndpointSecrets:
    """First `to`: both sign. When every receiver knows the new one, `finish`: it signs alone."""
    if given.to is None and not given.finish:
        raise CommandError(
            "say `to` with the new secret, or `finish` to drop the old one. Nothing was changed.",
            ExitCode.USAGE,
        )
    refuse_references({"secret_refs": [given.to] if given.to else []})
    with session.open(Endpoints) as store:
        refs = store.rotate_secret(name, given.to, finish=given.finish, reason=given.reason)
    return EndpointSecrets(name=name, secret_refs=refs)


@router.post("/{name}/pause", summary="Stop sending to an endpoint.")
def pause_endpoint(session: Operator, name: Named, given: Because) -> EndpointStateNow:
    """Its decisions wait in order. One that is disabled stays so for all but administrators."""
    unless = None if session.may(AccessRole.ADMIN) else EndpointState.DISABLED
    with session.open(Endpoints) as store:
        row = store.set_endpoint_state(name, EndpointState.PAUSED, given.reason, unless=unless)
    return EndpointStateNow.model_validate(row)


@router.post("/{name}/resume", summary="Send to an endpoint again.")
def resume_endpoint(session: Operator, name: Named, given: Because) -> EndpointStateNow:
    """What waited is sent in order. One that is disabled only an administrator resumes."""
    unless = None if session.may(AccessRole.ADMIN) else EndpointState.DISABLED
    with session.open(Endpoints) as store:
        row = store.set_endpoint_state(name, EndpointState.ACTIVE, given.reason, unless=unless)
    return EndpointStateNow.model_validate(row)


@router.post("/{name}/disable", summary="Stop sending until an administrator resumes it.")
def disable_endpoint(session: Admin, name: Named, given: Because) -> EndpointStateNow:
    """As after a 410; its decisions wait in order."""
    with session.open(Endpoints) as store:
        row = store.set_endpoint_state(name, EndpointState.DISABLED, given.reason)
    return EndpointStateNow.model_validate(row)

"""Endpoints: the webhook targets."""

from fastapi import APIRouter
from pydantic import Field

from dispatcher.api.access import Viewer
from dispatcher.api.models import Name
from dispatcher.api.shapes import Count, Shown, Time
from dispatcher.operators.endpoints.store import Endpoints
from sink.contract.states import BreakerState, EndpointState, EnvelopeStyle, OrderPolicy

router = APIRouter(prefix="/endpoints", tags=["endpoints"])


class ListedEndpoint(Shown):
    """An endpoint with its backlog."""

    name: str
    url: str
    state: EndpointState
    state_reason: str | None
    order_policy: OrderPolicy
    types: list[str] = Field(description="That it takes; none means all.")
    secret_refs: list[str] = Field(description="Where a dispatcher finds its secrets.")
    starts_at: Time | None = Field(
        description="When it was added, if it gets what was committed since; null: it gets all."
    )
    waiting_lanes: Count = Field(description="Counted to 10,000.")
    leased_lanes: Count
    dead_letters: Count = Field(description="That nobody has resolved; counted to 10,000.")


class EndpointList(Shown):
    """Every endpoint, by name."""

    endpoints: list[ListedEndpoint]


class Endpoint(ListedEndpoint):
    """Everything about one endpoint. Secrets are named, never shown."""

    id: int
    envelope: EnvelopeStyle
    headers: dict[str, str] = Field(description="Where a dispatcher finds each value.")
    headers_literal: dict[str, str] = Field(description="By name; each value is masked.")
    ca_ref: str | None
    client_cert_ref: str | None
    client_key_ref: str | None
    allow_cidrs: list[str]
    connect_timeout_ms: int
    total_timeout_ms: int
    concurrency: int
    rate_per_second: int | None
    schedule_seconds: list[int] = Field(description="Pauses before each further attempt.")
    budget_seconds: int = Field(description="For how long an entry is tried.")
    breaker_threshold: int
    slow_start_seconds: int
    inquiry_path: str | None
    key_window_seconds: int | None = Field(description="For how long it says it keeps keys.")
    key_window_seen_at: Time | None
    breaker: BreakerState
    breaker_since: Time | None
    breaker_until: Time | None
    breaker_reason: str | None
    failures: Count = Field(description="In a row.")
    held_until: Time | None = Field(description="The receiver asked not to be called before.")
    created_at: Time
    updated_at: Time
    fault: str | None = Field(description="Why nothing could be sent with these settings.")
    stopped_lanes: Count = Field(
        description="That wait behind one of its first 10,000 dead letters."
    )


@router.get("", summary="List endpoints.")
def list_endpoints(session: Viewer) -> EndpointList:
    """Return every endpoint with its backlog."""
    with session.open(Endpoints) as store:
        return EndpointList.model_validate({"endpoints": store.endpoints()})


@router.get("/{name}", summary="Show an endpoint.")
def show_endpoint(session: Viewer, name: Name) -> Endpoint:
    """Return an endpoint's settings, its pace and its backlog."""
    with session.open(Endpoints) as store:
        return Endpoint.model_validate(store.endpoint(name))

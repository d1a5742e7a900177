"""Replays as the API shows them."""

from uuid import UUID

from pydantic import Field

from dispatcher.api.shapes import Count, Json, Seconds, Shown, Time
from sink.contract.states import ReplayState, ReplayVerb


class Replay(Shown):
    """A replay as it was planned, and how it stands."""

    id: UUID
    verb: ReplayVerb
    state: ReplayState
    filter: Json = Field(description="What was asked for.")
    item_count: Count
    item_limit: int | None
    reason: str
    actor: str
    created_at: Time
    applied_at: Time | None
    rate_per_second: int | None
    counts: Json = Field(
        description="What the plan found: entries, kinds, endpoints, no_op_there (delivered with a"
        " signed receipt), outside_window, taken, overlaps, beyond_limit, drain_seconds; repeats,"
        " the business actions that it may repeat, and needs_approval, by a second person."
    )
    plan_sha256: str | None
    outside_window: bool = Field(description="Keys may be sent that the receiver may have lost.")
    person: str = Field(description="Who planned it, whatever token or login they used.")
    approved_by: str | None
    approved_at: Time | None
    cancelled_by: str | None
    cancelled_at: Time | None
    finished_at: Time | None
    obstacles: list[str] = Field(
        description="What keeps it, now, from being sent once it is applied: sentences."
    )


class ReplayProgress(Replay):
    """A replay, and how far it has come."""

    progress: dict[str, int] = Field(description="Items by what became of them.")
    endpoints: list[Json] = Field(description="The same at each endpoint, and what keeps it.")
    drain_seconds: Seconds | None = Field(description="The least that is left, in seconds.")

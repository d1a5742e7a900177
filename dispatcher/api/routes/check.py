"""The check: whether the outbox and its deliveries are consistent."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field

from dispatcher.api.access import Viewer
from dispatcher.api.long_looks import BACK_MAX, long_look
from dispatcher.api.models import Name
from dispatcher.api.paging import Limit, Times
from dispatcher.api.settings import ApiSettings
from dispatcher.api.shapes import Count, KeyText, Shown, Time
from dispatcher.operators.check.actions import check
from dispatcher.operators.check.rules import Checked
from dispatcher.operators.check.store import Checks
from dispatcher.operators.check.views import as_rows

router = APIRouter(prefix="/check", tags=["checks"])


class BrokenRule(Shown):
    """A rule that is violated."""

    invariant: str
    meaning: str


class Violation(Shown):
    """A row that violates a rule; null where it has no such thing."""

    rule: str
    endpoint: str | None
    subject: str | None
    sequence: int | None
    key: KeyText | None
    stream: str | None
    batch_id: int | None
    detail: str


class CheckResult(Shown):
    """What was looked at, and what was found."""

    since: Time
    until: Time
    entries_since: Time = Field(description="Days before were dropped.")
    attempts_since: Time = Field(description="Days before were dropped.")
    endpoint: str | None
    stream: str | None
    holds: bool = Field(description="No rule is violated.")
    counted: dict[str, int] = Field(description="What was looked at, by name.")
    oldest: dict[str, Time]
    violated: dict[str, int] = Field(description="Violations of each rule.")
    rules: dict[str, BrokenRule]
    violations: list[Violation] = Field(description="The first of each rule.")
    violations_kept_of_each: Count


@router.get("", summary="Check that everything is consistent.")
def run_check(
    request: Request,
    session: Viewer,
    times: Times,
    endpoint: Annotated[Name | None, Query(description="Only what concerns this one.")] = None,
    stream: Annotated[Name | None, Query(description="Only batches of this stream.")] = None,
    limit: Limit = 20,
) -> CheckResult:
    """Return whether every rule holds; by default for the last day, which is the most.

    It reads in short pieces, 30 s at most (503), and one at a time (429). Where nothing was
    written in that time, `counted` has no batches.
    """
    settings: ApiSettings = request.app.state.settings
    checked = Checked(limit)
    with long_look(request, session, times.since) as watch, Checks.connect(settings.dsn) as store:
        range_ = store.range(times.since or BACK_MAX, times.until or timedelta(0), endpoint, stream)
        check((store,), range_, checked, watch)
    return CheckResult.model_validate(as_rows(range_, checked))

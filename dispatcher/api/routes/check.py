"""The check: whether the outbox and its deliveries are consistent."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field

from holdfast.dispatcher.api.access import Viewer
from holdfast.dispatcher.api.long_reads import long_read, range_of
from holdfast.dispatcher.api.requests import Limit, Name, Times
from holdfast.dispatcher.api.responses import Count, KeyText, ResponseModel, Time
from holdfast.dispatcher.api.settings import ApiSettings
from holdfast.dispatcher.operators.check.actions import check
from holdfast.dispatcher.operators.check.rules import Checked
from holdfast.dispatcher.operators.check.store import Checks
from holdfast.dispatcher.operators.check.views import as_rows

router = APIRouter(prefix="/check", tags=["checks"])


class BrokenRule(ResponseModel):
    """A rule that is violated."""

    invariant: str
    meaning: str


class Violation(ResponseModel):
    """A row that violates a rule. Members that do not apply are null."""

    rule: str
    endpoint: str | None
    subject: str | None
    sequence: int | None
    key: KeyText | None
    stream: str | None
    batch_id: int | None
    detail: str


class CheckResult(ResponseModel):
    """What was checked, and what was found."""

    since: Time
    until: Time
    entries_since: Time = Field(description="Older partitions are dropped.")
    attempts_since: Time = Field(description="Older partitions are dropped.")
    endpoint: str | None
    stream: str | None
    holds: bool = Field(description="No rule is violated.")
    counted: dict[str, int] = Field(description="Number of checked rows, by kind.")
    oldest: dict[str, Time]
    violated: dict[str, int] = Field(description="Number of violations of each rule.")
    rules: dict[str, BrokenRule]
    violations: list[Violation] = Field(description="The first violations of each rule.")
    violations_kept_of_each: Count


@router.get("", summary="Check that the outbox and its deliveries are consistent.")
def run_check(
    request: Request,
    session: Viewer,
    times: Times,
    endpoint: Annotated[
        Name | None, Query(description="Only checks that concern this endpoint.")
    ] = None,
    stream: Annotated[Name | None, Query(description="Only batches of this stream.")] = None,
    limit: Limit = 20,
) -> CheckResult:
    """Return whether every rule holds, by default and at most for the last day.

    Reads in short transactions, at most 30 s (then 503), one check at a time (else 429). If nothing
    was written in that time, `counted` has no batches.
    """
    settings: ApiSettings = request.app.state.settings
    checked = Checked(limit)
    with long_read(request, session, times.since) as watch, Checks.connect(settings.dsn) as store:
        range_ = store.range(*range_of(times), endpoint, stream)
        check((store,), range_, checked, watch)
    return CheckResult.model_validate(as_rows(range_, checked))

"""What is wrong, in order of harm, each with its likely cause and the next command. Pure.

Triage begins with what the overview says needs a person. It tells endpoints, dead letters and
streams apart, puts what has one cause into one finding, and adds whom each finding touches.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any, NamedTuple

from holdfast.dispatcher.operators.common.text import span
from holdfast.dispatcher.operators.dead_letters.rules import without_answer
from holdfast.dispatcher.operators.overview.rules import (
    BREAKER_SECONDS,
    Need,
    NeedKind,
    answer_of,
)
from holdfast.dispatcher.shared.states import BARRED, CREDENTIALS
from holdfast.dispatcher.shared.text import last_word, one_line
from holdfast.sink.contract.numbers import counted

JOB_STOPPED = "job_stopped"
"""The kind of a finding that is no need: a stream without a sink may have ended on purpose."""

SILENT_SECONDS = 900.0
"""A stream without a sink whose newest batch is older has a job that stopped."""

RETIRED_SECONDS = 86_400.0
"""A stream whose newest batch is older than this was retired, or its stop is known."""


class Cause(NamedTuple):
    """Why something is wrong, as far as the database shows it, and the page to follow."""

    text: str = ""
    """Empty: it differs from row to row."""

    page: str | None = None


CAUSES: Mapping[str, Cause] = {
    NeedKind.CANNOT_WRITE: Cause(
        "a failover is under way, the disk is full, or the DSN names a standby", "database-away"
    ),
    NeedKind.PARTITIONS: Cause("no dispatcher has added days, or it may not"),
    NeedKind.NO_DISPATCHER: Cause(
        "no `holdfast dispatch` was started, its process ended, or it cannot reach or write the"
        " database",
        "database-away",
    ),
    NeedKind.NOT_ROUTED: Cause("a transaction holds what routing needs, or dispatchers hang"),
    NeedKind.CLOCK_BEHIND: Cause("the clock of the database's machine was set back"),
    NeedKind.SCHEMA: Cause("the code was deployed and the database was not upgraded"),
    JOB_STOPPED: Cause("the job ended or cannot reach the database; see its log", "job-stopped"),
    NeedKind.DIVERGED_REPLAYS: Cause(
        "the job's code or input changed between two runs of a batch", "batch-diverged"
    ),
    NeedKind.NOT_CLAIMED: Cause(
        "no dispatcher claims them: it cannot use the secret, a certificate or the URL, or its"
        " clock is wrong; its log has `endpoint.waiting` or `clock.skew`"
    ),
    NeedKind.ADDRESSES_REFUSED: Cause(page="receiver-down"),
    NeedKind.CREDENTIALS_REFUSED: Cause(),
    NeedKind.BREAKERS_OPEN: Cause(page="receiver-down"),
    NeedKind.UNDELIVERED: Cause(page="still-held"),
    NeedKind.DEAD_LETTERS: Cause(page="receiver-down"),
    NeedKind.SILENCED_SUBJECTS: Cause("a source or a person dated a decision wrongly"),
    NeedKind.STALE_ANSWERS: Cause(
        "the receiver or the outbox was restored, or another sender uses the receiver",
        "database-behind",
    ),
    NeedKind.WATERMARK_AHEAD: Cause("the clock of a source is ahead"),
    NeedKind.DISABLED_ENDPOINTS: Cause("a person disabled it, or its receiver answered 410"),
    NeedKind.SUBJECTS_ON_HOLD: Cause("an operator holds them"),
    NeedKind.QUARANTINE: Cause("rows that break a rule of the sink or of the job"),
    NeedKind.REPLAYS_WAITING: Cause("it makes new keys, so a second person decides"),
    NeedKind.PROPOSALS_WAITING: Cause("a person proposed a change that needs another one"),
    NeedKind.OLD_SNAPSHOT: Cause("a session or a prepared transaction was forgotten"),
}
"""By kind, the most harmful first: no decision is stored, none is made, none leaves, some do not
arrive."""

OF_ENDPOINTS = {
    NeedKind.NOT_CLAIMED,
    NeedKind.ADDRESSES_REFUSED,
    NeedKind.CREDENTIALS_REFUSED,
    NeedKind.BREAKERS_OPEN,
    NeedKind.UNDELIVERED,
}
"""What concerns the deliveries of one endpoint: a finding for each endpoint and its cause."""

OF_ROWS = OF_ENDPOINTS | {NeedKind.DEAD_LETTERS, NeedKind.STOPPED_LANES}
"""What has a finding for each endpoint, or for each reason of dead letters."""

STOPS_DELIVERY = (NeedKind.CANNOT_WRITE, NeedKind.NO_DISPATCHER)
"""While one of these lasts nothing leaves, whatever an endpoint does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong."""

    kind: str
    """A `NeedKind`, or `job_stopped`."""

    where: str | None = None
    """The endpoint or the stream; None for all."""

    sentence: str
    cause: str
    since: datetime | None = None
    subjects: int | None = None
    """How many wait because of it; None where that is not known."""

    amounts: Sequence[Mapping[str, Any]] = ()
    """`currency` and `minor` units of the decisions that wait, where their `data` has money."""

    command: str
    page: str | None
    """The page of the runbook."""

    def row(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return asdict(self)


def findings(facts: Mapping[str, Any], needs: Sequence[Need]) -> list[Finding]:
    """Return what is wrong, the most harmful first; among equals, what touches most subjects.

    `facts` has those of `overview_needs` and rows of this package's statements: `waiting`, `dead`,
    `stopped_jobs` (those of `streams` without a sink) and the row `oldest`.
    """
    kinds = {need.kind for need in needs}
    stops = next((kind for kind in STOPS_DELIVERY if kind in kinds), None)
    made = [*_jobs(facts), *_dead(facts)]
    made += _endpoints(facts) if stops is None else []
    for need in needs:
        if need.kind not in OF_ROWS:
            touched = facts["waiting"] if need.kind == stops else []
            made.append(_of_need(need, facts["oldest"], touched))
    order = list(CAUSES)
    return sorted(made, key=lambda each: (order.index(each.kind), -(each.subjects or 0)))


def _of_need(
    need: Need, oldest: Mapping[str, Any], waiting: Sequence[Mapping[str, Any]]
) -> Finding:
    """Return a need as a finding, with what waits at the endpoint where most does."""
    cause = CAUSES[need.kind]
    most = max(waiting, key=itemgetter("subjects"), default=None)
    return Finding(
        kind=need.kind.value,
        sentence=need.sentence,
        cause=cause.text,
        since=oldest.get(need.kind.value),
        subjects=most["subjects"] if most else None,
        amounts=amounts(most["money"]) if most else (),
        command=need.command,
        page=cause.page,
    )


def _jobs(facts: Mapping[str, Any]) -> Iterator[Finding]:
    cause = CAUSES[JOB_STOPPED]
    for row in facts["stopped_jobs"]:
        yield Finding(
            kind=JOB_STOPPED,
            where=row["name"],
            sentence=(
                f"no job writes {row['name']}: its newest batch, {row['batch_id']}, is"
                f" {_age(row['since'], facts)} old, and no sink is connected"
            ),
            cause=cause.text,
            since=row["since"],
            command=f"holdfast stream show {row['name']}",
            page=cause.page,
        )


def _dead(facts: Mapping[str, Any]) -> Iterator[Finding]:
    for row in facts["dead"]:
        letters, more = row["letters"], "" if row["complete"] else "at least "
        are = "letter is" if letters == 1 else "letters are"
        yield Finding(
            kind=NeedKind.DEAD_LETTERS.value,
            where=row["endpoint"],
            sentence=(
                f"{row['endpoint']}: {more}{letters:,} dead {are} open ({row['reason']}), of"
                f" {counted(row['subjects'], 'subject')}; what follows for them waits"
            ),
            cause=f"the newest: {one_line(without_answer(row['detail']))}",
            since=row["since"],
            subjects=row["subjects"],
            amounts=amounts(row["money"]),
            command=f"holdfast dead-letter list --endpoint {row['endpoint']}",
            page="one-rejected" if letters == 1 else CAUSES[NeedKind.DEAD_LETTERS].page,
        )


def _endpoints(facts: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a finding for each endpoint of which something is late, or will be."""
    waiting = {row["endpoint"]: row for row in facts["waiting"]}
    # What waits behind a dead letter alone is that letter's finding.
    late = {
        row["endpoint"]: row
        for row in facts["undelivered"]
        if row["late"] and row["endpoint"] in waiting
    }
    for endpoint in facts["endpoints"]:
        name = endpoint["name"]
        row = waiting.get(name, {"subjects": 0, "since": None, "money": []})
        if (problem := _problem(endpoint, late.get(name), facts)) is None:
            continue
        oldest = f", the first for {_age(row['since'], facts)}" if row["since"] else ""
        verb = "waits" if row["subjects"] == 1 else "wait"
        yield Finding(
            kind=problem.kind.value,
            where=name,
            sentence=f"{name}: {counted(row['subjects'], 'subject')} {verb}{oldest}",
            cause=problem.cause,
            since=row["since"],
            subjects=row["subjects"],
            amounts=amounts(row["money"]),
            command=problem.command,
            page=CAUSES[problem.kind].page,
        )


class Problem(NamedTuple):
    """What keeps an endpoint from delivering, and the command to start with."""

    kind: NeedKind
    cause: str
    command: str


def _problem(
    endpoint: Mapping[str, Any], late: Mapping[str, Any] | None, facts: Mapping[str, Any]
) -> Problem | None:
    """Return the problem of an endpoint; its breaker names one before an answer does."""
    name, reason = endpoint["name"], one_line(endpoint["breaker_reason"] or "")
    open_for = endpoint["breaker_open_seconds"]
    if endpoint["state"] == "disabled":
        return None
    if endpoint["state"] == "paused":
        cause = (
            f"a person paused the endpoint ({one_line(endpoint['state_reason'] or 'no reason')})"
        )
        resume = f"holdfast endpoint resume {name} --reason TEXT"
        return Problem(NeedKind.UNDELIVERED, cause, resume) if late else None
    if open_for is not None and reason.startswith(BARRED):
        return Problem(NeedKind.ADDRESSES_REFUSED, reason, f"holdfast endpoint test {name}")
    if open_for is not None and reason.startswith(CREDENTIALS):
        return Problem(NeedKind.CREDENTIALS_REFUSED, reason, f"holdfast endpoint test {name}")
    if open_for is not None and (late or open_for > BREAKER_SECONDS):
        cause = f"the breaker is open for {span(open_for)}, after {reason or 'failures'}"
        return Problem(NeedKind.BREAKERS_OPEN, cause, f"holdfast endpoint show {name}")
    if endpoint["not_claimed"] and facts["dispatchers_alive"]:
        cause_of_all = CAUSES[NeedKind.NOT_CLAIMED].text
        return Problem(NeedKind.NOT_CLAIMED, cause_of_all, "holdfast config check")
    if late:
        why = f"holdfast why --endpoint {name} {last_word(late['subject'])}"
        return Problem(NeedKind.UNDELIVERED, answer_of(late), why)
    return None


def amounts(money: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the sum of pairs of a currency and minor units for each currency, by its name."""
    sums: dict[str, int] = {}
    for currency, minor in money:
        sums[currency] = sums.get(currency, 0) + int(minor)
    return [{"currency": each, "minor": sums[each]} for each in sorted(sums)]


def _age(moment: datetime, facts: Mapping[str, Any]) -> str:
    return span(max((facts["oldest"]["at"] - moment) / timedelta(seconds=1), 0.0))

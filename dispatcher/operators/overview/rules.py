"""What needs a person, each with the command to begin with; and counts by minute. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from operator import itemgetter
from typing import Any, NamedTuple

from holdfast.dispatcher.operators.common.text import span
from holdfast.dispatcher.operators.why.lock_holders import holders
from holdfast.dispatcher.shared.states import BARRED, CREDENTIALS
from holdfast.dispatcher.shared.text import last_word, one_line
from holdfast.sink.contract.states import Outcome

SNAPSHOT_SECONDS = 300.0
"""A snapshot or open transaction older than this needs a person."""

BREAKER_SECONDS = 600.0
"""A breaker open for longer needs a person: a restart of a receiver takes less."""

ROUTING_SECONDS = 120.0
"""A batch that waits longer for routing needs a person, although a dispatcher is alive."""

CLOCK_SECONDS = 60.0
"""A database clock further behind stored times than this needs a person."""

UNDELIVERED_MINUTES = 15
"""An entry that is not delivered after this time needs a person, whatever it waits for."""

UNDELIVERED_MINUTES_MAX = 99_999

DAYS_AHEAD_MIN = 2
"""Same limit as `holdfast db doctor`."""

NAMED_MAX = 5
"""Maximum number of names in a sentence; the others are counted."""


class NeedKind(StrEnum):
    """The kinds of needs, a stable vocabulary for programs. The most urgent comes first."""

    CANNOT_WRITE = "cannot_write"
    NO_DISPATCHER = "no_dispatcher"
    NOT_ROUTED = "not_routed"
    NOT_CLAIMED = "not_claimed"
    CLOCK_BEHIND = "clock_behind"
    SCHEMA = "schema"
    PARTITIONS = "partitions"
    UNDELIVERED = "undelivered"
    STOPPED_LANES = "stopped_lanes"
    DEAD_LETTERS = "dead_letters"
    SILENCED_SUBJECTS = "silenced_subjects"
    WATERMARK_AHEAD = "watermark_ahead"
    STALE_ANSWERS = "stale_answers"
    ADDRESSES_REFUSED = "addresses_refused"
    CREDENTIALS_REFUSED = "credentials_refused"
    DISABLED_ENDPOINTS = "disabled_endpoints"
    BREAKERS_OPEN = "breakers_open"
    SUBJECTS_ON_HOLD = "subjects_on_hold"
    DIVERGED_REPLAYS = "diverged_replays"
    QUARANTINE = "quarantine"
    REPLAYS_WAITING = "replays_waiting"
    PROPOSALS_WAITING = "proposals_waiting"
    OLD_SNAPSHOT = "old_snapshot"


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that does not resolve by itself."""

    kind: NeedKind
    count: int
    sentence: str
    command: str

    def row(self) -> dict[str, Any]:
        """Return it as JSON can hold it: `kind`, `count`, `sentence`, `command`."""
        return {**asdict(self), "kind": self.kind.value}


def overview_needs(facts: Mapping[str, Any]) -> list[Need]:
    """Return what needs a person, the most urgent first.

    `facts` has the columns of `common/heartbeats` and `overview/counts`, `endpoints` (rows
    of `endpoints`), `undelivered` (rows of the shared `undelivered`; the late ones also with
    the columns of `last_answers`) with `undelivered_seconds`, `stale` (the endpoint of each
    decision that it answered `stale` without an explanation) with `stale_complete`, the columns of
    `ahead`, `days_ahead` (the minimum over entry, attempt and suppressed) and `snapshots` (rows
    of `database/snapshots`).
    """
    made = [*_read_only(facts), *_delivery(facts), *_clock(facts), *_people(facts)]
    made += _partitions(facts["days_ahead"])
    made += _snapshots(facts["snapshots"])
    return _sorted(made)


def database_needs(facts: Mapping[str, Any]) -> list[Need]:
    """Return what needs a person in the database; `facts` is a result of `Database.report`."""
    made = [*_partitions(min(each["days_ahead"] for each in facts["partitions"]))]
    made += _snapshots(facts["snapshots"])
    # A newer one that does not serve this version has refused the session.
    if facts["revision"] < facts["revision_needed"]:
        sentence = (
            f"the schema has revision {facts['revision']}, this version is built for"
            f" {facts['revision_needed']}"
        )
        made.append(Need(NeedKind.SCHEMA, 1, sentence, "holdfast db upgrade"))
    return _sorted(made)


def _read_only(facts: Mapping[str, Any]) -> Iterator[Need]:
    if facts["read_only"]:
        sentence = "the server is read-only or a standby: nothing is written or delivered"
        if alive := facts["dispatchers_alive"]:
            sentence += (
                f"; {_some(alive, 'dispatcher is', 'dispatchers are')} alive and cannot write"
            )
        yield Need(NeedKind.CANNOT_WRITE, 1, sentence, "holdfast database")


def _delivery(facts: Mapping[str, Any]) -> Iterator[Need]:
    endpoints: Sequence[Mapping[str, Any]] = facts["endpoints"]
    due = sum(each["due_lanes"] for each in endpoints if each["state"] == "active")
    waits = due + facts["unrouted_batches"]
    if not facts["dispatchers_alive"]:
        draining = facts["dispatchers_draining"]
        sentence = f"{_some(draining, 'dispatcher is', 'dispatchers are')} draining and " * bool(
            draining
        )
        sentence += "no dispatcher is alive"
        if waits:
            sentence += f", and {_some(due, 'subject is due', 'subjects are due')}"
        else:
            sentence += ": nothing waits now, but a new decision will"
        if facts["unrouted_batches"]:
            sentence += (
                f", {_some(facts['unrouted_batches'], 'batch waits', 'batches wait')} to be routed"
            )
        yield Need(NeedKind.NO_DISPATCHER, max(waits, 1), sentence, "holdfast dispatch")
    elif (facts["unrouted_seconds"] or 0) > ROUTING_SECONDS and not facts["read_only"]:
        batches = facts["unrouted_batches"]
        sentence = (
            f"{_some(batches, 'batch waits', 'batches wait')} to be routed, the oldest for"
            f" {span(facts['unrouted_seconds'])}, although a dispatcher is alive: see its log, and"
            " what blocks the database"
        )
        yield Need(NeedKind.NOT_ROUTED, batches, sentence, "holdfast database")
    yield from _not_claimed(facts)
    yield from _undelivered(facts["undelivered"], facts["undelivered_seconds"])
    if stopped := facts["stopped_lanes"]:
        more = "" if facts["stopped_complete"] else "at least "
        sentence = f"{more}{_some(stopped, 'lane waits', 'lanes wait')} behind a dead letter"
        command = "holdfast subject list --held stopped"
        yield Need(NeedKind.STOPPED_LANES, stopped, sentence, command)
    if dead := facts["dead_letters"]:
        sentence = f"{_some(dead, 'dead letter is', 'dead letters are')} open"
        yield Need(NeedKind.DEAD_LETTERS, dead, sentence, "holdfast dead-letter list")
    yield from _stale(facts)
    yield from _endpoints(endpoints)


def _endpoints(endpoints: Sequence[Mapping[str, Any]]) -> Iterator[Need]:
    disabled = [each["name"] for each in endpoints if each["state"] == "disabled"]
    if disabled:
        sentence = (
            f"{_some(len(disabled), 'endpoint is', 'endpoints are')} disabled: {_names(disabled)}"
        )
        command = f"holdfast endpoint show {disabled[0]}"
        yield Need(NeedKind.DISABLED_ENDPOINTS, len(disabled), sentence, command)
    stopped_at = [each for each in endpoints if each["state"] == "active" and _open(each)]
    barred = [each["name"] for each in stopped_at if _opened_by(each, BARRED)]
    if barred:
        sentence = (
            f"Holdfast refuses the address of {_some(len(barred), 'endpoint', 'endpoints')}:"
            f" {_names(barred)}. Nothing is sent there, and everything waits"
        )
        command = f"holdfast endpoint test {barred[0]}"
        yield Need(NeedKind.ADDRESSES_REFUSED, len(barred), sentence, command)
    refused = [each["name"] for each in stopped_at if _opened_by(each, CREDENTIALS)]
    if refused:
        sentence = (
            f"{_some(len(refused), 'receiver refuses', 'receivers refuse')} our signature or"
            f" credentials: {_names(refused)}. Everything waits, and nothing is given up: compare"
            " the secrets, and the clocks, of both sides"
        )
        command = f"holdfast endpoint test {refused[0]}"
        yield Need(NeedKind.CREDENTIALS_REFUSED, len(refused), sentence, command)
    tripped = [
        each["name"]
        for each in stopped_at
        if each["breaker_open_seconds"] > BREAKER_SECONDS
        and not _opened_by(each, BARRED, CREDENTIALS)
    ]
    if tripped:
        sentence = (
            f"{_some(len(tripped), 'breaker has', 'breakers have')} been open for more than"
            f" {span(BREAKER_SECONDS)}: {_names(tripped)}"
        )
        command = f"holdfast endpoint show {tripped[0]}"
        yield Need(NeedKind.BREAKERS_OPEN, len(tripped), sentence, command)


def _open(endpoint: Mapping[str, Any]) -> bool:
    return endpoint["breaker_open_seconds"] is not None


def _opened_by(endpoint: Mapping[str, Any], *reasons: str) -> bool:
    return (endpoint["breaker_reason"] or "").startswith(reasons)


def _stale(facts: Mapping[str, Any]) -> Iterator[Need]:
    """Yield unexplained `stale` answers; the need ends 24 h after the last one."""
    if stale := facts["stale"]:
        count, names = len(stale), sorted(set(stale))
        more = "" if facts["stale_complete"] else "at least "
        sentence = (
            f"{more}{_some(count, 'delivery', 'deliveries')} of the last 24 h did not apply the"
            f" decision: {_names(names)} answered `stale`, and nothing sent from here"
            " explains it. The receiver may have been restored, or another sender uses it"
        )
        command = f"holdfast receipts --endpoint {names[0]}"
        yield Need(NeedKind.STALE_ANSWERS, count, sentence, command)


def _not_claimed(facts: Mapping[str, Any]) -> Iterator[Need]:
    names = [each["name"] for each in facts["endpoints"] if each["not_claimed"]]
    if names and facts["dispatchers_alive"] and not facts["read_only"]:
        sentence = (
            f"entries are due at {_some(len(names), 'endpoint', 'endpoints')} and no dispatcher"
            f" claims them: {_names(names)}. A dispatcher that cannot use a secret, a certificate"
            " or the URL logs `endpoint.waiting` with the reason, one whose clock is wrong"
            " `clock.skew`"
        )
        yield Need(NeedKind.NOT_CLAIMED, len(names), sentence, "holdfast config check")


def _undelivered(rows: Sequence[Mapping[str, Any]], seconds: float) -> Iterator[Need]:
    late = [row for row in rows if row["late"]]
    if not late:
        return
    oldest = min(late, key=itemgetter("head_created_at"))
    count, names = sum(row["late"] for row in late), [row["endpoint"] for row in late]
    sentence = (
        f"{_some(count, 'subject waits', 'subjects wait')} for an entry that has not been delivered"
        f" to {_names(names)} for more than {span(seconds)}. The oldest is of"
        f" {one_line(oldest['subject'])}, for {span(oldest['age_seconds'])}: {answer_of(oldest)}"
    )
    command = f"holdfast why --endpoint {oldest['endpoint']} {last_word(oldest['subject'])}"
    yield Need(NeedKind.UNDELIVERED, count, sentence, command)


def answer_of(row: Mapping[str, Any]) -> str:
    """Return how the last attempt of a row of `last_answers` ended."""
    if row["outcome"] is None:
        return "no attempt is recorded"
    reply = f"HTTP {row['status']}" if row["status"] else one_line(row["error"] or "no answer")
    return f"attempt {row['number']} ended {row['outcome']} ({reply})"


def _clock(facts: Mapping[str, Any]) -> Iterator[Need]:
    behind = facts["clock_behind_seconds"] or 0
    if behind > CLOCK_SECONDS:
        sentence = (
            f"the database's clock is {span(behind)} behind stored times: it was set back. Entries"
            " due or leased by the old clock wait until then; nothing is lost"
        )
        yield Need(NeedKind.CLOCK_BEHIND, 1, sentence, "holdfast database")


def _on_hold(facts: Mapping[str, Any]) -> Iterator[Need]:
    if held := facts["on_hold"]:
        sentence = (
            f"{_some(held, 'subject is', 'subjects are')} on hold at an endpoint, the first for"
            f" {span(facts['on_hold_seconds'])}"
        )
        if forgotten := facts["on_hold_forgotten"]:
            sentence += (
                f"; {_some(forgotten, 'has', 'have')} been for longer than the receiver keeps keys:"
                " an entry that was tried before becomes a dead letter"
            )
        command = "holdfast subject list --held on_hold"
        yield Need(NeedKind.SUBJECTS_ON_HOLD, held, sentence, command)


def _people(facts: Mapping[str, Any]) -> Iterator[Need]:
    yield from _on_hold(facts)
    if diverged := facts["diverged_replays"]:
        sentence = (
            f"{_some(diverged, 'replay of a batch', 'replays of batches')} diverged from the"
            f" ledger: {_names(facts['diverged_streams'])}"
        )
        command = f"holdfast stream show {facts['diverged_streams'][0]}"
        yield Need(NeedKind.DIVERGED_REPLAYS, diverged, sentence, command)
    if silenced := facts["silenced"]:
        sentence = (
            f"{_some(silenced, 'subject is', 'subjects are')} silenced by a decision dated more"
            " than a day ahead: each later decision of its stream counts as overtaken until then"
        )
        command = "holdfast subject list --silenced"
        yield Need(NeedKind.SILENCED_SUBJECTS, silenced, sentence, command)
    if late := facts["late_ahead"]:
        streams = facts["ahead_streams"]
        sentence = (
            f"{_some(late, 'event was', 'events were')} late in the last 24 h because the watermark"
            f" of {_names(streams)} was up to {span(facts['ahead_seconds'])} ahead of the clock:"
            " an event dated ahead moved it"
        )
        command = f"holdfast late-event list --reason late --stream {streams[0]}"
        yield Need(NeedKind.WATERMARK_AHEAD, late, sentence, command)
    if rows := facts["quarantined"]:
        sentence = f"{_some(rows, 'quarantined row is', 'quarantined rows are')} open"
        yield Need(NeedKind.QUARANTINE, rows, sentence, "holdfast quarantine list")
    if waiting := facts["replays_waiting"]:
        sentence = f"{_some(len(waiting), 'reissue waits', 'reissues wait')} for a second person"
        command = f"holdfast replay approve {str(waiting[0])[:8]} --reason TEXT"
        yield Need(NeedKind.REPLAYS_WAITING, len(waiting), sentence, command)
    yield from _proposals(facts["proposals_planned"], facts["proposals_approved"])


def _proposals(planned: int, approved: int) -> Iterator[Need]:
    parts = []
    if planned:
        parts.append(f"{_some(planned, 'proposal waits', 'proposals wait')} for a second person")
    if approved:
        parts.append(f"{_some(approved, 'proposal is', 'proposals are')} approved and not applied")
    if parts:
        command = "holdfast proposal list"
        yield Need(NeedKind.PROPOSALS_WAITING, planned + approved, ", ".join(parts), command)


def _partitions(days_ahead: int) -> Iterator[Need]:
    if days_ahead < DAYS_AHEAD_MIN:
        sentence = (
            "there is no partition for today: nothing can be written"
            if days_ahead < 0
            else f"partitions are there for {_some(days_ahead, 'day', 'days')} after today only"
        )
        yield Need(NeedKind.PARTITIONS, 1, sentence, "holdfast db upgrade")


def _snapshots(snapshots: Sequence[Mapping[str, Any]]) -> Iterator[Need]:
    old = [each for each in snapshots if each["age_seconds"] > SNAPSHOT_SECONDS]
    if not old:
        return
    first = old[0]
    what = (
        f"the prepared transaction {first['application']!r}"
        if first["kind"] == "prepared"
        else f"pid {first['pid']} ({first['application'] or 'unnamed'}, {first['state']})"
    )
    sentence = (
        f"{what} has held a snapshot for {span(first['age_seconds'])}: VACUUM removes no rows that"
        " died since then"
    )
    yield Need(NeedKind.OLD_SNAPSHOT, len(old), sentence, _ending(first))


def _ending(snapshot: Mapping[str, Any]) -> str:
    if snapshot["kind"] == "prepared":
        return "psql \"$HOLDFAST_DSN\" -c 'SELECT gid, prepared FROM pg_prepared_xacts'"
    (holder,) = holders(
        [
            {
                "pid": snapshot["pid"],
                "application_name": snapshot["application"],
                "state": snapshot["state"],
                "transaction_seconds": snapshot["age_seconds"],
                "query": snapshot["query"],
            }
        ]
    )
    return holder.command


def _sorted(made: list[Need]) -> list[Need]:
    order = list(NeedKind)
    return sorted(made, key=lambda need: order.index(need.kind))


def _some(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _names(names: Sequence[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


class Minute(NamedTuple):
    """Counts of one minute."""

    minute: datetime
    entries: int
    attempts: int
    deliveries: int
    outcomes: dict[str, int]


def series(
    since: datetime,
    at: datetime,
    tried: Iterable[tuple[int, str, int]],
    written: Iterable[tuple[int, int]],
) -> tuple[list[Minute], dict[str, Any]]:
    """Return each minute from `since`, a full minute, to that of `at`, and the sums over all.

    `tried` has (minute since 1970, outcome, attempts), `written` (minute, entries). Counts after
    `at`, which a clock that was set back leaves behind, are ignored.
    """
    first, last = _number(since), _number(at)
    entries: Counter[int] = Counter()
    outcomes: dict[int, Counter[str]] = {}
    for minute, count in written:
        entries[minute] += count
    for minute, outcome, count in tried:
        outcomes.setdefault(minute, Counter())[outcome] += count
    rows = [
        _row(number, entries[number], outcomes.get(number, Counter()))
        for number in range(first, last + 1)
    ]
    total = sum((Counter(row.outcomes) for row in rows), Counter[str]())
    return rows, {
        "entries": sum(row.entries for row in rows),
        "attempts": total.total(),
        "deliveries": total[Outcome.DELIVERED.value],
        "outcomes": _known(total),
    }


def _number(moment: datetime) -> int:
    return int(moment.timestamp()) // 60


def _row(number: int, entries: int, outcomes: Counter[str]) -> Minute:
    minute = datetime.fromtimestamp(0, UTC) + timedelta(minutes=number)
    deliveries = outcomes[Outcome.DELIVERED.value]
    return Minute(minute, entries, outcomes.total(), deliveries, _known(outcomes))


def _known(outcomes: Counter[str]) -> dict[str, int]:
    return {each.value: outcomes[each.value] for each in Outcome if outcomes[each.value]}

"""Status and overview of delivery, at a cost that does not grow with the outbox."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import itemgetter

from holdfast.dispatcher.operators.common.session import OperatorSession, Row
from holdfast.dispatcher.operators.endpoints.store import BACKLOG_MAX
from holdfast.dispatcher.operators.overview.rules import UNDELIVERED_MINUTES, overview_needs, series
from holdfast.sink.contract.exits import CommandError, ExitCode

MINUTES_MAX = 180

ATTEMPTS_MAX = 100_000
"""Maximum number of counted attempts, the newest; `complete_since` says where they begin."""

BATCHES_MAX = 20_000
BATCHES_SHOWN = 10

DELIVERIES_SAMPLED = 1_200
"""Maximum number of deliveries, over all minutes together, for the latency estimate."""

SCANNED_EACH = 5
"""Attempts that are scanned for each sampled delivery of a minute, the newest first."""


COUNTED_MAX = 100_000
"""Maximum count of each kind."""

DEAD_SCANNED = 2_000
"""Open dead letters that are scanned for stopped lanes."""

SNAPSHOTS_SHOWN = 10

LATE_SCANNED = 10_000
"""Maximum number of late events that a need considers, the newest."""

STALE_SCANNED = 100
"""The newest `stale` answers of a day that are checked for an explanation."""


WAITING_SCANNED = 2_000
"""Lanes of an endpoint, the first due and the last due, among which the oldest entry is found."""


class Overview(OperatorSession):
    """Status, overview and what needs a person."""

    def status(self, undelivered_minutes: int = UNDELIVERED_MINUTES) -> Row:
        """Return the totals, `needs` as the overview has them and `degraded` if there is any.

        `streams`, `endpoints` and the `dispatchers` that are alive are lists beside them. With
        `read_only`, the server refuses every write.
        """
        totals, needs = self.totals(), self.needs(undelivered_minutes)
        heartbeats = self._heartbeats()
        return {
            **totals,
            "degraded": bool(needs),
            "read_only": heartbeats["read_only"],
            "needs": needs,
            "streams": self._all("streams/list"),
            "endpoints": self._all("endpoints/list", {"most": BACKLOG_MAX}),
            "dispatchers": self._all("overview/status_dispatchers", heartbeats),
        }

    def totals(self) -> Row:
        """Return the counts that `holdfast status` shows, as of one snapshot.

        Lanes of an endpoint, dead letters and rows are counted to 100,000. The oldest waiting entry
        is searched among the 2,000 lanes of each endpoint that are due first, and the 2,000 last.
        """
        limits = {"most": COUNTED_MAX, "scanned": WAITING_SCANNED}
        return self._one("overview/status_totals", limits)

    def needs(self, undelivered_minutes: int = UNDELIVERED_MINUTES) -> list[Row]:
        """Return what needs a person: `kind` (a `NeedKind`), `count`, `sentence`, `command`.

        The most urgent comes first. Counts end at 100,000; stopped lanes are those of the first
        2,000 dead letters, stale answers the newest 100 of the last 24 h, late events the newest
        10,000. An entry older than `undelivered_minutes` that is not delivered needs a person.
        """
        with self._transaction():
            return _needs(self.facts(undelivered_minutes))

    def overview(self, minutes: int = 60, undelivered_minutes: int = UNDELIVERED_MINUTES) -> Row:
        """Return the state of delivery; rates and latency are of the last `minutes` (1 to 180).

        - `at`, `since`: the database's clock, and the full minute at which the series begins;
        - `oldest_due_age_seconds`: how long the first due lane has been due, over all active
          endpoints; 0 without any;
        - `oldest_undelivered_age_seconds`: the age of the oldest undelivered entry, over all
          endpoints that are not disabled (100,000 lanes of each at most), in whatever state its
          lane is; 0 without any;
        - `series`: a row for each minute from `since` on: `minute`, `entries` (written),
          `attempts`, `deliveries`, `outcomes` (attempts by `Outcome`). The last minute is not over.
          Counts before `complete_since` are incomplete: it is `since`, or later with more than
          100,000 attempts or 20,000 batches;
        - `totals`: the sums of these: `entries`, `attempts`, `deliveries`, `outcomes`;
        - `duration_ms`: `p50`, `p95`, `p99` (None without any) of `of` attempts in that time;
        - `latency_seconds`: the same from the decision's commit to its delivery, of the newest
          deliveries in each minute, 1,200 together at most;
        - `endpoints`: `name`, `state`, `state_reason`, `breaker`, `breaker_since`, `breaker_until`,
          `breaker_reason`, `breaker_open_seconds` (None unless it is open or half open),
          `held_until`, `due_lanes` (10,000 of a priority at most), `oldest_due_age_seconds`,
          `leased_lanes`, `not_claimed` (due for two minutes, nothing in flight, and no breaker,
          hold or rate explains it);
        - `batches`: the last 10 of all streams: `stream`, `query_id`, `batch_id`, `batch_no`,
          `written_at`, `routed_at`, `row_count`, `entry_count`, `duplicate_count`,
          `suppressed_count`, `quarantined_count`;
        - `dispatchers_alive`, `unrouted_batches`, `overtaken_rows` (stored ones, 100,000 at most);
        - `needs`: what needs a person, the most urgent first: `kind` (a `NeedKind`), `count` (at
          most 100,000; stopped lanes of the first 2,000 dead letters), `sentence`, `command`.

        Raises `CommandError` (usage) for another number of minutes.
        """
        if not 1 <= minutes <= MINUTES_MAX:
            raise CommandError(
                f"an overview covers 1 to {MINUTES_MAX} minutes, not {minutes}. Nothing was"
                " changed.",
                ExitCode.USAGE,
                code="invalid_value",
            )
        with self._transaction():
            self._run("overview/memory")
            counts = self._counts()
            at: datetime = counts["at"].astimezone(UTC)
            since = at.replace(second=0, microsecond=0) - timedelta(minutes=minutes - 1)
            tried = self._one("overview/attempts", {"since": since, "most": ATTEMPTS_MAX})
            written = self._one("overview/batches", {"since": since, "most": BATCHES_MAX})
            latency = self._latency(since, at, minutes)
            endpoints = self._all("overview/endpoints")
            undelivered = self._undelivered(undelivered_minutes)
            batches = self._all("overview/last_batches", {"limit": BATCHES_SHOWN})
            needs = _needs(self._facts(counts, endpoints, undelivered))
        rows, totals = series(since, at, tried["minutes"], written["minutes"])
        return {
            "at": at,
            "since": since,
            "complete_since": _complete_since(since, tried, written),
            "oldest_due_age_seconds": _oldest(endpoints),
            "oldest_undelivered_age_seconds": max(
                (each["age_seconds"] for each in undelivered["undelivered"]), default=0.0
            ),
            "series": [each._asdict() for each in rows],
            "totals": totals,
            "duration_ms": _percentiles(tried["durations"], tried["timed"]),
            "latency_seconds": latency,
            "endpoints": endpoints,
            "batches": batches,
            "dispatchers_alive": counts["dispatchers_alive"],
            "unrouted_batches": counts["unrouted_batches"],
            "overtaken_rows": counts["overtaken"],
            "needs": needs,
        }

    def _counts(self) -> Row:
        heartbeats = self._heartbeats()
        limits = {"most": COUNTED_MAX, "dead_scanned": DEAD_SCANNED}
        return heartbeats | self._one("overview/counts", limits | heartbeats)

    def _undelivered(self, minutes: int) -> Row:
        """Return the oldest undelivered entry of each endpoint; of a late one, its answer too."""
        late = 60.0 * minutes
        rows = self._all("undelivered", {"late_seconds": late, "most": COUNTED_MAX})
        if late_rows := [row for row in rows if row["late"]]:
            names = ("endpoint_id", "subject_id", "delivered_sequence", "head_created_at")
            heads = {name: [row[name] for row in late_rows] for name in names}
            answers = self._all("overview/last_answers", heads)
            for row, answer in zip(late_rows, answers, strict=True):
                row.update(answer)
        return {"undelivered": rows, "undelivered_seconds": late}

    def facts(self, undelivered_minutes: int = UNDELIVERED_MINUTES) -> Row:
        """Return what `overview_needs` takes.

        Later statements of the transaction have the rights of the login.
        """
        undelivered = self._undelivered(undelivered_minutes)
        return self._facts(self._counts(), self._all("overview/endpoints"), undelivered)

    def _facts(self, counts: Row, endpoints: list[Row], undelivered: Row) -> Row:
        stale, days_ahead = self._stale(), self._one("days_ahead")["days"]
        watermarks = self._one("overview/ahead", {"most": LATE_SCANNED})
        # The login, not the role, has the right to see other sessions.
        self._run("common/login")
        snapshots = self._all("database/snapshots", {"limit": SNAPSHOTS_SHOWN})
        more = {"endpoints": endpoints, "days_ahead": days_ahead, "snapshots": snapshots}
        return {**counts, **undelivered, **stale, **watermarks, **more}

    def _stale(self) -> Row:
        """Return the endpoint of each decision that it answered `stale` without an explanation.

        The explanations are those of `holdfast receipts`.
        """
        rows = self._all("overview/stale", {"most": STALE_SCANNED})
        unexplained: list[str] = []
        for endpoint_id, group in groupby(rows, key=itemgetter("endpoint_id")):
            name_of = {(row["subject"], row["sequence"]): row["endpoint"] for row in group}
            parameters = {
                "endpoint_id": endpoint_id,
                "subjects": [subject for subject, _ in name_of],
                "sequences": [sequence for _, sequence in name_of],
            }
            explained = self._all("receipts/overtaken", parameters)
            left = name_of.keys() - {(row["subject"], row["sequence"]) for row in explained}
            unexplained += [name_of[each] for each in left]
        return {"stale": unexplained, "stale_complete": len(rows) < STALE_SCANNED}

    def _latency(self, since: datetime, at: datetime, minutes: int) -> Row:
        of_a_minute = DELIVERIES_SAMPLED // minutes
        sample = self._one(
            "overview/latency",
            {
                "since": since,
                "at": at,
                "of_a_minute": of_a_minute,
                "scan": SCANNED_EACH * of_a_minute,
            },
        )
        return _percentiles(sample["seconds"], sample["deliveries"])


def _needs(facts: Row) -> list[Row]:
    return [need.row() for need in overview_needs(facts)]


def _oldest(endpoints: Sequence[Row]) -> float:
    ages = [each["oldest_due_age_seconds"] for each in endpoints if each["state"] == "active"]
    return max(ages, default=0.0)


def _percentiles(values: Sequence[float] | None, of: int) -> Row:
    p50, p95, p99 = values or (None, None, None)
    return {"p50": p50, "p95": p95, "p99": p99, "of": of}


def _complete_since(since: datetime, tried: Row, written: Row) -> datetime:
    cuts: list[datetime] = [tried["oldest"]] if tried["attempts"] == ATTEMPTS_MAX else []
    cuts += [written["oldest"]] if written["batches"] == BATCHES_MAX else []
    return max([since, *cuts])

"""What is on its way and what needs a person, at a cost that does not grow with the outbox."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from dispatcher.operators.common.session import Row, operator_connection
from dispatcher.operators.overview.attention_store import NeedsSession
from dispatcher.operators.overview.series import series
from sink.contract.exits import CommandError, ExitCode

MINUTES_MAX = 180

ATTEMPTS_MAX = 100_000
"""As many attempts are counted, the newest; the moment from which on they are complete is said."""

BATCHES_MAX = 20_000
BATCHES_SHOWN = 10

DELIVERIES_SAMPLED = 1_200
"""Over all minutes together: from how many deliveries the latency is estimated at most."""

LOOK_AT_EACH = 5
"""For each delivery that is wanted of a minute, so many of its newest attempts are looked at."""


class Overview(NeedsSession):
    """The overview; use `overview(dsn)` to get it."""

    def overview(self, minutes: int = 60) -> Row:
        """Return how delivery is doing, over the last `minutes` (1 to 180) where a time is needed.

        - `at`, `since`: the database's clock, and the full minute at which the series begins;
        - `oldest_due_age_seconds`: for how long the first lane that is due has been, over all
          active endpoints; 0 where none is;
        - `series`: one row for each minute from `since` on: `minute`, `entries` (written),
          `attempts`, `deliveries`, `outcomes` (attempts of each `Outcome` that there were). The
          last minute is under way. What was before `complete_since` is not all counted: it is
          `since`, or later where there are more than 100,000 attempts or 20,000 batches;
        - `totals`: the sums of these: `entries`, `attempts`, `deliveries`, `outcomes`;
        - `duration_ms`: `p50`, `p95`, `p99` (None without any) of `of` attempts in that time;
        - `latency_seconds`: the same from the decision's commit to its delivery, of the newest
          deliveries in each minute, 1,200 together at most;
        - `endpoints`: `name`, `state`, `state_reason`, `breaker`, `breaker_since`, `breaker_until`,
          `breaker_reason`, `breaker_open_seconds` (None unless it is open or half open),
          `held_until`, `due_lanes` (10,000 of a priority at most), `oldest_due_age_seconds`,
          `leased_lanes`, `not_claimed` (due for two minutes, none of it is under way, and no
          breaker, hold or rate says why);
        - `batches`: the last 10 of all streams: `stream`, `query_id`, `batch_id`, `batch_no`,
          `written_at`, `routed_at`, `row_count`, `entry_count`, `duplicate_count`,
          `suppressed_count`, `quarantined_count`;
        - `dispatchers_alive`, `unrouted_batches`, `overtaken_rows` (stored ones, 100,000 at most);
        - `needs`: what needs a person, the most urgent first: `kind` (a `NeedKind`), `count`
          (100,000 at most; lanes that are stopped by the first 2,000 dead letters), `sentence`,
          `command`.

        Raises `CommandError` (usage) for another number of minutes.
        """
        if not 1 <= minutes <= MINUTES_MAX:
            raise CommandError(
                f"an overview is of 1 to {MINUTES_MAX} minutes, not {minutes}. Nothing was"
                " changed.",
                ExitCode.USAGE,
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
            batches = self._all("overview/last_batches", {"limit": BATCHES_SHOWN})
            needs = self._needs(counts, endpoints)
        rows, totals = series(since, at, tried["minutes"], written["minutes"])
        return {
            "at": at,
            "since": since,
            "complete_since": _complete_since(since, tried, written),
            "oldest_due_age_seconds": _oldest(endpoints),
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

    def _latency(self, since: datetime, at: datetime, minutes: int) -> Row:
        of_a_minute = DELIVERIES_SAMPLED // minutes
        found = self._one(
            "overview/latency",
            {
                "since": since,
                "at": at,
                "of_a_minute": of_a_minute,
                "look_at": LOOK_AT_EACH * of_a_minute,
            },
        )
        return _percentiles(found["seconds"], found["deliveries"])


@contextmanager
def overview(dsn: str | None) -> Iterator[Overview]:
    """Connect in the operator's role; raises `CommandError` when that is not possible."""
    with operator_connection(dsn) as connection:
        yield Overview(connection)


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

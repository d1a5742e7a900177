"""Replays: planned, shown, applied, watched, cancelled.

A plan is written with all its items in one transaction. Applying evaluates the filter again and
refuses a plan that no longer matches; then dispatchers take the items
(`holdfast.dispatcher.delivery.store.replaying`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid4

from psycopg.types.json import Jsonb

from holdfast.dispatcher.operators.cancellations.rules import never_sent
from holdfast.dispatcher.operators.cancellations.store import Cancellations
from holdfast.dispatcher.operators.common.person import ALONE_MAX, lacks_approval
from holdfast.dispatcher.operators.common.session import Row, actor, person, unknown_id
from holdfast.dispatcher.operators.reissue.rules import never_sent_again
from holdfast.dispatcher.operators.reissue.store import ReissueSettling
from holdfast.dispatcher.operators.replays.repeats import Repeats, second_person
from holdfast.dispatcher.operators.replays.rules import (
    ReplayFilter,
    ReplayFilterError,
    drain_seconds,
    filter_stored,
    obstacles,
    plan_counts,
)
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.failpoints import failpoint
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.numbers import counted
from holdfast.sink.contract.states import ReplayKind, ReplayState, ReplayVerb

ITEMS_MAX = 1_000_000
"""Maximum number of items in a plan: more would hold locks for minutes."""

_NO_BATCH: Row = dict.fromkeys(
    ("first_batch", "last_batch", "first_written_at", "last_written_at")
) | {"first_batch_no": 1, "last_batch_no": 0}


@dataclass(frozen=True, slots=True)
class _Matches:
    """What a filter found, which is in the transaction's temporary table."""

    counts: Row
    items: int
    sha256: bytes


class Replays(ReissueSettling, Repeats):
    """Replays. Every change is one transaction with its audit row."""

    def plan(
        self,
        filter_: ReplayFilter,
        *,
        reason: str,
        rate: int | None = None,
        outside_window: bool = False,
        limit: int | None = None,
        id_: UUID | None = None,
        alone_max: int = ALONE_MAX,
    ) -> Row:
        """Write a plan and return it as `show` does.

        `rate` is items a second over all endpoints, `limit` the maximum number of items.
        `outside_window` permits keys that the receiver may have forgotten: a plan with such keys
        needs a second person beyond `alone_max` actions of one person in 24 hours. An existing plan
        with this `id_` is returned unchanged. Raises `CommandError` for an invalid filter (usage)
        and for one that finds nothing (nothing matched).
        """
        id_ = id_ or uuid4()
        with self._transaction():
            self._run("replays/plan/patience")
            self._run("common/replay_lock")
            if self._maybe("replays/show", {"id": id_}) is None:
                matches = self._find(filter_, id_, limit, as_of=None)
                if not matches.counts["entries"]:
                    self._refuse_reissued(filter_)
                    self._refuse_cancelled(filter_)
                    raise _nothing_matched(filter_)
                if outside_window:
                    repeats = matches.items if matches.counts["outside_window"] else 0
                    matches.counts["repeats"], matches.counts["alone_max"] = repeats, alone_max
                    matches.counts["needs_approval"] = self.needs_second(repeats, alone_max, id_)
                self._add(id_, filter_, matches, reason, rate, limit, outside_window=outside_window)
        return self.show(id_)

    def reissued(self, keys: Sequence[UUID]) -> dict[str, str]:
        """Return the newest key of a reissue for each of `keys` that was reissued."""
        rows = self._all("replays/plan/reissue_of_keys", {"keys": list(keys)})
        return {Key(row["key"]).text: Key(row["new_key"]).text for row in rows}

    def find(self, text: str) -> UUID:
        """Return the id that `text` gives in full or by at least its first 8 hex digits.

        Raises `CommandError`: usage for another text or an ambiguous one; nothing matched.
        """
        return self._find_id(text, "replay", "replays/named")

    def show(self, id_: UUID) -> Row:
        """Return a replay's plan; `counts` is a result of `plan_counts`.

        `obstacles` are sentences: what would prevent sending now, once it is applied. Raises
        `CommandError` (nothing matched) for an unknown id.
        """
        row = self._maybe("replays/show", {"id": id_})
        if row is None:
            raise unknown_id("replay", id_.hex[:8])
        sha256 = row["plan_sha256"] and row["plan_sha256"].hex()
        return {**row, "plan_sha256": sha256, "obstacles": self._obstacles(row)}

    def list(self, *, limit: int, before: datetime | None = None) -> Sequence[Row]:
        """Return replays, the newest first, all created before a moment if given."""
        return self._all("replays/list", {"limit": limit, "before": before})

    def items(self, id_: UUID, *, after: int = 0, limit: int) -> Sequence[Row]:
        """Return items in sending order, after the place `after`."""
        return self._all("replays/items", {"id": id_, "after": after, "limit": limit})

    def overlaps(self, id_: UUID) -> Sequence[Row]:
        """Return other replays, planned or applying, that share items with a plan."""
        return self._all("replays/overlaps_stored", {"id": id_})

    def status(self, id_: UUID) -> Row:
        """Return `show` with the progress.

        `progress` has counts over all endpoints: items, settled, released, hastened, sent,
        delivered, failed, needless, in_flight, waiting, retrying; `endpoints` has the same for
        each, with its obstacles. `drain_seconds` is the minimum remaining time.
        """
        shown = self.show(id_)
        rows = self._all("replays/status", {"id": id_})
        names = [name for name, value in rows[0].items() if isinstance(value, int)] if rows else []
        names = [name for name in names if name != "rate_per_second"]
        progress = {name: sum(row[name] for row in rows) for name in names}
        left = {row["endpoint"]: row["waiting"] + row["in_flight"] for row in rows}
        rates = {row["endpoint"]: row["rate_per_second"] for row in rows}
        estimate = drain_seconds(left, rates, shown["rate_per_second"])
        return {**shown, "progress": progress, "endpoints": rows, "drain_seconds": estimate}

    def apply(self, id_: UUID, reason: str | None = None) -> Row:
        """Release a plan to the dispatchers; return it as `show` does.

        The audit trail gets `reason`, or the plan's reason. A plan that is applying already is
        returned unchanged. Raises `CommandError` for a plan that has ended, has nothing to send, no
        longer matches, or has keys that a receiver may have forgotten without `outside_window`.
        """
        with self._transaction():
            self._run("replays/plan/patience")
            self._run("common/replay_lock")
            row = self._locked(id_)
            if row["verb"] != ReplayVerb.REDELIVER:
                raise CommandError(
                    f"replay {id_.hex[:8]} is a reissue: nothing was changed here; see `holdfast"
                    " reissue --help`.",
                    code="wrong_replay_kind",
                )
            match row["state"]:
                case ReplayState.APPLYING:
                    return self.show(id_)
                case ReplayState.APPLIED | ReplayState.CANCELLED as state:
                    raise CommandError(
                        f"replay {id_.hex[:8]} is {state}: nothing was changed. Plan again with"
                        " `holdfast replay plan`.",
                        code="replay_not_open",
                    )
            shown = self.show(id_)
            counts = self._repeats(shown, self._forgotten_now(shown))
            self._run("replays/apply", {"id": id_, "counts": Jsonb(counts)})
            why, items = reason or shown["reason"], {"items": shown["item_count"]}
            self._audit("replay.apply", f"replay {id_}", why, items)
        return self.show(id_)

    def cancel(self, id_: UUID, reason: str) -> Row:
        """Cancel a replay that is planned or applying; return its `status`.

        Requests in flight end and are recorded. Entries of a reissue that a crashed process wrote
        are settled as written; if those are all, the reissue is applied. Raises `CommandError` for
        a replay that has ended.
        """
        with self._transaction():
            row = self._locked(id_)
            if row["state"] not in (ReplayState.PLANNED, ReplayState.APPLYING):
                raise CommandError(
                    f"replay {id_.hex[:8]} is {row['state']}: there is nothing to cancel. Nothing"
                    " was changed; see `holdfast replay status`.",
                    code="replay_not_open",
                )
            if row["verb"] == ReplayVerb.REISSUE and self._settle_written(id_):
                return self.status(id_)
            self._run("replays/cancel", {"id": id_, "actor": actor()})
            failpoint("O3")
            self._audit("replay.cancel", f"replay {id_}", reason, {"was": row["state"]})
        return self.status(id_)

    def _obstacles(self, row: Row) -> Sequence[str]:
        under_way = row["state"] in (ReplayState.PLANNED, ReplayState.APPLYING)
        if row["verb"] != ReplayVerb.REDELIVER or not row["item_count"] or not under_way:
            return []
        names = list(row["counts"].get("items_at", ()))
        return [*obstacles(self._all("replays/obstacles", {"names": names, **self._heartbeats()}))]

    def _locked(self, id_: UUID) -> Row:
        row = self._maybe("common/replay_take", {"id": id_})
        if row is None:
            raise unknown_id("replay", id_.hex[:8])
        return row

    def _find(
        self, filter_: ReplayFilter, id_: UUID, limit: int | None, as_of: datetime | None
    ) -> _Matches:
        """Evaluate the filter into this transaction's temporary tables."""
        try:
            filter_.check()
        except ReplayFilterError as error:
            raise CommandError(
                f"{error}. Nothing was planned.", ExitCode.USAGE, code="invalid_filter"
            ) from None
        parameters = self._parameters(filter_)
        self._run("replays/plan/stage")
        self._run("replays/plan/stage_found")
        self._run("replays/plan/stage_cancelled")
        self._run(_source(filter_), parameters)
        self._run("replays/plan/analyze")
        if self.beside(Cancellations).known():
            self._run("replays/plan/find_cancelled")
        judged = {
            **parameters,
            "id": id_,
            "as_of": as_of,
            "states": [each.value for each in filter_.states],
            "named": bool(filter_.keys),
        }
        self._run("replays/plan/order_items", judged)
        beyond = self._run("replays/plan/limit", {"limit": limit}).rowcount if limit else 0
        counts = plan_counts(
            self._all("replays/plan/counts"), self._all("replays/plan/overlaps", {"id": id_})
        )
        counts["beyond_limit"] = beyond
        items = sum(counts["kinds"].values()) - counts["kinds"].get(ReplayKind.NOTHING.value, 0)
        if items > ITEMS_MAX:
            raise CommandError(
                f"the filter finds {items} entries to replay, and a plan holds at most {ITEMS_MAX}."
                " Nothing was planned: use a shorter time, or --limit.",
                code="plan_too_large",
            )
        return _Matches(counts, items, self._one("replays/plan/digest")["sha256"])

    def _parameters(self, filter_: ReplayFilter) -> Row:
        if filter_.stream is not None:
            self._known_stream(filter_.stream)
        batches: Row = dict(_NO_BATCH)
        if filter_.stream is not None:
            batch_range = {
                "stream": filter_.stream,
                "first_batch": filter_.first_batch,
                "last_batch": filter_.last_batch,
            }
            batches = {**batch_range, **self._one("replays/plan/range", batch_range)}
        return {
            "endpoint": filter_.endpoint,
            "subject": filter_.subject,
            "stream": filter_.stream,
            "since": filter_.since,
            "until": filter_.until,
            "types": list(filter_.types),
            "keys": list(filter_.keys),
            **batches,
        }

    def _add(
        self,
        id_: UUID,
        filter_: ReplayFilter,
        matches: _Matches,
        reason: str,
        rate: int | None,
        limit: int | None,
        *,
        outside_window: bool,
    ) -> None:
        estimate = drain_seconds(matches.counts["items_at"], matches.counts["rates"], rate)
        counts = {**matches.counts, "drain_seconds": estimate}
        self._run(
            "replays/plan/add",
            {
                "id": id_,
                "filter": Jsonb(filter_.stored()),
                "item_count": matches.items,
                "reason": reason,
                "actor": actor(),
                "person": person(),
                "rate": rate,
                "counts": Jsonb(counts),
                "sha256": matches.sha256,
                "outside_window": outside_window,
                "limit": limit,
            },
        )
        failpoint("O1")
        self._run("replays/plan/add_items", {"id": id_})
        failpoint("O2")
        detail = {"filter": filter_.stored(), "kinds": counts["kinds"], "rate": rate}
        self._audit("replay.plan", f"replay {id_}", reason, detail)

    def _refuse_reissued(self, filter_: ReplayFilter) -> None:
        """Raise `CommandError` when nothing was found because the keys were reissued."""
        for key, new_key in self.reissued(filter_.keys).items():
            raise CommandError(
                f"{key} {never_sent_again(new_key)}. Nothing was planned; see"
                f" `holdfast why {new_key}`.",
                ExitCode.NOTHING_MATCHED,
                code="already_reissued",
            )

    def _refuse_cancelled(self, filter_: ReplayFilter) -> None:
        """Raise `CommandError` when nothing was found because a key is cancelled."""
        for key in filter_.keys:
            if cancelled := self.beside(Cancellations).of_key(Key(key)):
                raise never_sent(Key(key).text, cancelled[0])

    def _repeats(self, shown: Row, forgotten: int) -> Row:
        """Return how many actions a plan may repeat now; raises if that needs a second person.

        Receivers forget keys while a plan waits, so the counts of the plan are not enough.
        """
        if not shown["outside_window"]:
            return {}
        repeats, limit = shown["item_count"] if forgotten else 0, shown["counts"].get("alone_max")
        limit = ALONE_MAX if limit is None else limit
        more = self.needs_second(repeats, limit, shown["id"], shown["person"])
        if lacks_approval(shown) or (more and shown["approved_by"] is None):
            raise second_person(shown, repeats or shown["counts"]["repeats"])
        return {"repeats": repeats}

    def _forgotten_now(self, shown: Row) -> int:
        """Return how many entries receivers may have forgotten.

        Raises `CommandError` when the filter no longer finds exactly the plan.
        """
        id_ = shown["id"]
        if not shown["item_count"]:
            raise CommandError(
                f"replay {id_.hex[:8]} has nothing to do: what it found is sent in any case."
                " Nothing was changed.",
                ExitCode.NOTHING_MATCHED,
                code="nothing_to_replay",
            )
        filter_ = filter_stored(shown["filter"])
        matches = self._find(filter_, id_, shown["item_limit"], shown["created_at"])
        if matches.sha256.hex() != shown["plan_sha256"]:
            changed = self._one("replays/plan/changed", {"id": id_})
            taken = f" {changed['taken']} are now in another replay." if changed["taken"] else ""
            raise CommandError(
                f"replay {id_.hex[:8]} is no longer what was planned:"
                f" {counted(changed['added'], 'entry')} came and"
                f" {changed['missing']} went since.{taken} Nothing was sent; plan again with"
                " `holdfast replay plan`.",
                code="plan_outdated",
            )
        forgotten = matches.counts["outside_window"]
        if forgotten and not shown["outside_window"]:
            raise CommandError(
                f"{counted(forgotten, 'entry')} first tried longer ago than the receiver keeps"
                " keys would be sent again, which could repeat the action. Nothing was sent;"
                " compare with `holdfast receipts`, or plan again with --outside-window.",
                code="outside_window",
            )
        return int(forgotten)


def _nothing_matched(filter_: ReplayFilter) -> CommandError:
    where = (
        "`holdfast why KEY` shows which endpoints take an entry, and from when on; `holdfast"
        " endpoint list` has the names."
        if filter_.keys
        else "See `holdfast entry list`, and `holdfast endpoint list` for the names."
    )
    message = f"no entry matches this filter; nothing was planned. {where}"
    return CommandError(message, ExitCode.NOTHING_MATCHED, code="nothing_matched")


def _source(filter_: ReplayFilter) -> str:
    """Return the statement with the fewest candidates for the filter."""
    if filter_.keys:
        return "replays/plan/from_keys"
    if [each.value for each in filter_.states] == ["dead"]:
        return "replays/plan/from_dead"
    return "replays/plan/from_entries"

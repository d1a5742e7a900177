"""Decisions made again under a new key: previewed, planned, approved, written and recorded.

The plan is stored before anything is written, and the new key follows from the old one. After a
crash at any point, a repeated run writes nothing twice.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID, uuid4

from psycopg.types.json import Jsonb

from holdfast.dispatcher.operators.common.overtaking import may_overtake, overtaken, overtaken_text
from holdfast.dispatcher.operators.common.person import ALONE_MAX, lacks_approval
from holdfast.dispatcher.operators.common.session import (
    OperatorSession,
    Row,
    actor,
    person,
)
from holdfast.dispatcher.operators.entries.rules import Stage
from holdfast.dispatcher.operators.entries.store import Entries
from holdfast.dispatcher.operators.reissue.rules import parts_of
from holdfast.dispatcher.operators.replays.repeats import Repeats, second_person
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.requeue import Overtakes
from holdfast.sink.contract.states import ReplayKind, ReplayState


class ReissueSettling(OperatorSession):
    """Records written reissues, in the caller's transaction."""

    def _settle(self, id_: UUID, item: Row, detail: str) -> list[int]:
        """Mark an entry as written and resolve the dead letters of the old one, with an audit row.

        Returns the ids of these dead letters. An item that is marked already stays unchanged.
        """
        key, new_key = Key(item["key"]).text, Key(item["new_key"]).text
        done = {"id": id_, "place": item["place"], "detail": detail}
        if not self._run("reissue/settle", done).rowcount:
            return []
        ids = [row["id"] for row in self._all("reissue/dead", item)]
        parameters = {"ids": ids, "actor": actor()}
        self._run("dead_letters/lock", parameters)
        buried = [row["id"] for row in self._all("reissue/bury", parameters)]
        self._run("dead_letters/pass", {"ids": buried})
        self._run("reissue/finish", {"id": id_})
        audited = {"new_key": new_key, "replay": id_, "dead_letters": buried}
        self._audit("reissue", key, item["reason"], audited)
        return buried

    def _settle_written(self, id_: UUID) -> bool:
        """Record what a crashed process wrote and did not record; return whether that was all."""
        for item in self._all("reissue/written", {"id": id_}):
            self._settle(id_, item, "was written before, and recorded when it was cancelled")
        return bool(self._one("common/replay_take", {"id": id_})["state"] == ReplayState.APPLIED)


_SETTLED = (Stage.DELIVERED, Stage.DEAD, Stage.PASSED, Stage.CANCELLED)


def actions_of(previews: Sequence[Row]) -> int:
    """Return the count of repeated actions: each entry at each endpoint that gets it."""
    return sum(len(preview["endpoints"]) for preview in previews)


class Reissues(Entries, ReissueSettling, Repeats):
    """Reissues. A change and its audit row commit together."""

    def preview(self, key: Key) -> Row:
        """Return an entry as `entry` does, with what a person must know before a reissue.

        `new_key`; `endpoints` that get it; `delivered` with receipts; `newest` of its subject;
        `overtakes`, a result of `overtaken`; `earlier` reissues. Raises `CommandError`
        for an entry that is not stored, that is still to be delivered, that is in an unfinished
        reissue, or that no endpoint takes.
        """
        entry = self.entry(key)
        earlier = self._all("reissue/known", {"key": key.digest})
        for each in earlier:
            if each["state"] == ReplayState.PLANNED:
                id_ = each["id"].hex[:8]
                raise CommandError(
                    f"{key.text} is in reissue {id_} by {each['actor']}, which is not finished."
                    f" Nothing was changed: continue with `holdfast replay apply {id_}`, or end it"
                    f" with `holdfast replay cancel {id_} --reason TEXT`.",
                    code="replay_in_progress",
                )
        self._require_settled(entry)
        endpoints = [
            row["name"] for row in self._all("reissue/endpoints", {**entry["batch"], **entry})
        ]
        if not endpoints:
            raise CommandError(
                f"no endpoint takes {entry['type']} of its stream, so nobody would get it. Nothing"
                " was changed; see `holdfast endpoint list`.",
                ExitCode.NOTHING_MATCHED,
                code="no_endpoint_takes_type",
            )
        ordinal = 1 + len({each["new_key"] for each in earlier})
        return {
            **entry,
            "new_key": Key.of(parts_of(key, ordinal)).text,
            "endpoints": endpoints,
            "delivered": self._all("reissue/receipts", entry),
            "newest": self._one("reissue/subject", entry),
            "overtakes": self._overtaken(entry),
            "earlier": [Key(each["new_key"]).text for each in earlier],
        }

    def plan(
        self,
        previews: Sequence[Row],
        reason: str,
        *,
        limit: int = ALONE_MAX,
        needs_approval: bool = False,
        id_: UUID | None = None,
    ) -> UUID:
        """Record a plan of reissues, from results of `preview`; write no entry yet.

        It needs a second person with `needs_approval`, when one of them overtakes a newer decision,
        or when this person would repeat more than `limit` actions (see `actions_of`) in 24 hours
        with it. Raises `CommandError` when another
        replay has this `id_`.
        """
        id_ = id_ or uuid4()
        keys, actions = [each["key"] for each in previews], actions_of(previews)
        overtakes = {each["key"]: each["overtakes"] for each in previews if each["overtakes"]}
        with self._transaction():
            self._run("common/replay_lock")
            if self._maybe("replays/show", {"id": id_}) is not None:
                raise CommandError(
                    f"there is a replay {id_.hex[:8]} already. Nothing was changed; see `holdfast"
                    f" replay show {id_.hex[:8]}`.",
                    code="id_in_use",
                )
            needs_approval = (
                needs_approval or bool(overtakes) or self.needs_second(actions, limit, id_)
            )
            self._run(
                "reissue/add",
                {
                    "id": id_,
                    "filter": Jsonb({"keys": keys}),
                    "item_count": actions,
                    "reason": reason,
                    "actor": actor(),
                    "person": person(),
                    "counts": Jsonb(
                        {
                            "entries": len(previews),
                            "kinds": {ReplayKind.REISSUE.value: len(previews)},
                            "needs_approval": needs_approval,
                            "repeats": actions,
                            "overtakes": overtakes,
                        }
                    ),
                },
            )
            for place, each in enumerate(previews, 1):
                digests = {name: Key.parse(each[name]).digest for name in ("key", "new_key")}
                self._run("reissue/add_item", {**each, **digests, "id": id_, "place": place})
            detail = {"keys": keys, "new_keys": [each["new_key"] for each in previews]}
            self._audit("reissue.plan", f"replay {id_}", reason, detail)
        return id_

    def left(self, id_: UUID) -> list[Row]:
        """Return what is still to be written, a row for each entry.

        Raises `CommandError` for a reissue that has ended or lacks an approval, and when one of its
        entries was sent again under its own key since the plan.
        """
        row = self._one("replays/show", {"id": id_})
        self._require_planned(row)
        if lacks_approval(row):
            raise second_person(row, row["item_count"])
        left = self._all("reissue/items", {"id": id_})
        planned = {"planned_at": row["created_at"], "plan": row}
        left = [{**item, **planned} for item in left]
        for item in left:
            self._require_undelivered_since(id_, item)
        return left

    @contextmanager
    def lock_item(self, id_: UUID, item: Row) -> Iterator[bool]:
        """Exclude plans, applications and cancellations while the block writes and settles an item.

        Yields False when another process has written it. Raises `CommandError`, as `left`
        does, when the item may no longer be written.
        """
        with self._transaction():
            self._run("common/replay_lock")
            # Held to the end, so that a cancellation sees what was recorded.
            row = self._one("common/replay_take", {"id": id_})
            if not self._one("reissue/is_left", {"id": id_, **item})["is_left"]:
                yield False
                return
            self._require_planned(row)
            self._require_undelivered_since(id_, item)
            yield True

    def overtakes(self, entry: Row, item: Row) -> Overtakes | None:
        """Return the newer decision that the entry of an item would follow, for the sink.

        None for one that is written already. Raises `CommandError` for one that was not approved
        with the plan.
        """
        if self._maybe("common/entry_key_find", {"key": item["new_key"]}) is not None:
            return None
        newer, plan = self._overtaken(entry), item["plan"]
        now = may_overtake(newer)
        approved = may_overtake(plan["counts"].get("overtakes", {}).get(entry["key"]))
        # Another revision of its window may be in the same plan, and be written before it.
        latest = approved.occurred_at if approved else entry["occurred_at"]
        if newer and now and not (plan["approved_by"] and now.occurred_at <= latest):
            id_ = plan["id"].hex[:8]
            raise CommandError(
                f"{entry['key']} would overtake {overtaken_text(newer)}, for which reissue"
                f" {id_} has no approval. Nothing more was changed: end it with `holdfast replay"
                f" cancel {id_} --reason TEXT`, and plan again if you still want it.",
                code="would_overtake",
            )
        return now

    def last_sequence(self, entry: Row) -> int:
        """Return the last sequence of an entry's subject, to read before `overtakes`."""
        return self._last_sequence(entry["subject"], entry["batch"]["stream"], entry["type"])

    def _overtaken(self, entry: Row) -> Row | None:
        newest = self._newest_decision(entry["subject"], entry["batch"]["stream"], entry["type"])
        return overtaken(newest, entry["occurred_at"], entry["type"], sequence=entry["sequence"])

    def settle(self, id_: UUID, item: Row, detail: str) -> list[int]:
        """Mark an entry of `left` as written, and resolve the dead letters of the old one.

        Their lanes continue. Returns the ids of these dead letters. An item that another process
        marked first stays unchanged, without a second audit row.
        """
        with self._transaction():
            return self._settle(id_, item, detail)

    def _require_planned(self, row: Row) -> None:
        """Raise `CommandError` for a reissue that has ended."""
        if row["state"] != ReplayState.PLANNED:
            id_ = row["id"].hex[:8]
            raise CommandError(
                f"reissue {id_} is {row['state']}. Nothing more was changed; see `holdfast replay"
                f" show {id_} --items`.",
                code="replay_not_open",
            )

    def _require_settled(self, entry: Row) -> None:
        """Raise `CommandError` for an entry that is still, or again, sent under its own key."""
        for each in entry["delivery"]:
            if Stage(each["state"]) not in _SETTLED:
                raise CommandError(
                    f"{entry['key']} is still to be delivered to {each['endpoint']!r} under its own"
                    f" key (it is {each['state']}); with a reissue the action would happen twice."
                    f" Nothing was changed; see `holdfast entry show {entry['key']}`.",
                    code="delivery_pending",
                )
        for each in self._all("reissue/resent", entry):
            id_ = each["id"].hex[:8]
            raise CommandError(
                f"{entry['key']} is being sent again under its own key by replay {id_} of"
                f" {each['actor']}; with a reissue the action would happen twice. Nothing was"
                f" changed; see `holdfast replay status {id_}`.",
                code="replay_in_progress",
            )

    def _require_undelivered_since(self, id_: UUID, item: Row) -> None:
        """Raise `CommandError` for an entry that is sent again, or was delivered since the plan."""
        key, planned_at = Key(item["key"]), item["planned_at"]
        entry = self.entry(key)
        self._require_settled(entry)
        for each in self._all("reissue/receipts", entry):
            if each["delivered_at"] > planned_at:
                raise CommandError(
                    f"{key.text} was delivered to {each['endpoint']!r} under its own key on"
                    f" {rfc3339(each['delivered_at'])}, after reissue {id_.hex[:8]} was planned;"
                    " with it the action would happen twice. Nothing was changed: end it with"
                    f" `holdfast replay cancel {id_.hex[:8]} --reason TEXT`, and plan again if you"
                    " still want it.",
                    code="already_delivered",
                )

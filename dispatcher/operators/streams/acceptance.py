"""A diverged replay that a person accepts: the sink writes its new keys when it comes again."""

from uuid import UUID

from holdfast.dispatcher.operators.common.person import needs_approval
from holdfast.dispatcher.operators.common.session import Row, person
from holdfast.dispatcher.operators.proposals.store import Proposals
from holdfast.dispatcher.operators.streams.store import Streams
from holdfast.sink.contract.exits import CommandError, ExitCode

VERB = "batch.accept"

ROWS_SHOWN = 100


class Acceptances(Proposals):
    """Acceptances of diverged replays. The sink compares the replay's digest with an accepted one.

    Each new key is a business action. So a person accepts a limited number of them in 24 hours, and
    none that is older than the newest decision of its subject; a second person decides the others.
    """

    def preview(
        self, stream: str, batch_id: int, query_id: UUID | None, number: int | None, limit: int
    ) -> Row:
        """Return a diverged replay as `Streams.divergence` does, and what accepting it means.

        That is `overtaking` (the number of new keys that are older than the newest decision of
        their subject) and `needs_approval`. Without a `number` it is the one that is not accepted.
        Raises `CommandError` where the batch has no such replay or several, where it is accepted,
        where the query has continued since, and for a stream of entries written by hand.
        """
        streams = self.beside(Streams)
        if number is None:
            batch = streams.batch(stream, batch_id, query_id)
            number = _chosen(batch)
        row = streams.divergence(stream, batch_id, query_id, number=number, limit=ROWS_SHOWN)
        divergence = row["divergence"]
        if divergence["accepted_at"] is not None:
            raise _accepted(row)
        facts = self._one(
            "streams/accept_facts", {**row["batch"], "id": divergence["id"], "person": person()}
        )
        if facts["acts_for"] is not None:
            raise CommandError(
                f"stream {stream!r} holds decisions written by hand for {facts['acts_for']!r}, one"
                " in a batch; a job does not bring them again. Nothing was changed.",
                code="stream_written_by_hand",
            )
        if facts["next_batch_id"] is not None:
            raise CommandError(
                f"the query wrote batch {facts['next_batch_id']} after this replay of batch"
                f" {batch_id}, so Spark does not bring the batch again. Nothing was changed, and"
                " nothing waits for this: the job continues. What only the replay has, a new"
                " checkpoint writes that reads it again: docs/spark/backfill.md.",
                code="batch_not_replayed",
            )
        new, overtaking = divergence["new_count"], facts["overtaking"]
        second = overtaking > 0 or needs_approval(new, facts["used"], limit)
        return {**row, "overtaking": overtaking, "needs_approval": second}

    def accept(
        self,
        stream: str,
        batch_id: int,
        query_id: UUID | None,
        number: int | None,
        reason: str,
        limit: int,
    ) -> Row:
        """Accept a diverged replay, or propose it; return what `preview` does, without rows.

        `accepted` is whether it is accepted; otherwise `proposal`, `planned_by` and `approved_by`
        are those of the proposal. Raises what `preview` raises.
        """
        with self._transaction():
            self._run("common/replay_lock")
            self._take_stream(stream)
            row = self.preview(stream, batch_id, query_id, number, limit)
            if not row["needs_approval"]:
                return self._accept(row, reason)
            made = self.propose(VERB, target(row["batch"]), _detail(row), reason)
        people = {"planned_by": made["actor"], "approved_by": made["approved_by"]}
        return {**_facts(row), **people, "accepted": False, "proposal": made["id"]}

    def proposed(self, stream: str, batch_id: int, proposal: UUID) -> Row:
        """Return what an approved proposal accepts, as `preview` does, and needs no approval."""
        with self._transaction():
            plan = self.approved(proposal, VERB, f"batch {stream} {batch_id}")
            return self._of_plan(stream, batch_id, plan) | {"needs_approval": False}

    def _of_plan(self, stream: str, batch_id: int, plan: Row) -> Row:
        detail = plan["detail"]
        query_id, number = UUID(detail["query_id"]), detail["divergence"]
        return self.preview(stream, batch_id, query_id, number, limit=0)

    def apply(self, stream: str, batch_id: int, proposal: UUID, reason: str) -> Row:
        """Accept what a second person approved; return it as `accept` does."""
        with self.applying(proposal, VERB, f"batch {stream} {batch_id}") as plan:
            self._take_stream(stream)
            row = self._of_plan(stream, batch_id, plan)
            people = {"planned_by": plan["actor"], "approved_by": plan["approved_by"]}
            return self._accept(row, reason, {**people, "proposal": proposal})

    def _accept(self, row: Row, reason: str, approval: Row | None = None) -> Row:
        parameters = {"id": row["divergence"]["id"], "person": person()}
        accepted = {**row["divergence"], **self._one("streams/accept", parameters)}
        self._audit(VERB, target(row["batch"]), reason, {**_detail(row), **(approval or {})})
        return {**_facts(row), **(approval or {}), "divergence": accepted, "accepted": True}


def _facts(row: Row) -> Row:
    return {name: row[name] for name in ("batch", "divergence", "overtaking")}


def target(batch: Row) -> str:
    """Return the target of proposals and audit rows about a batch."""
    return f"batch {batch['stream']} {batch['batch_id']}"


def _detail(row: Row) -> Row:
    """Return what is accepted, as JSON: the replay by its digest."""
    batch, divergence = row["batch"], row["divergence"]
    return {
        "divergence": divergence["id"],
        "query_id": str(batch["query_id"]),
        "batch_no": batch["batch_no"],
        "digest": divergence["digest"],
        "new_count": divergence["new_count"],
        "differing_count": divergence["differing_count"],
        "overtaking": row["overtaking"],
    }


def _chosen(batch: Row) -> int | None:
    """Return the one diverged replay of a batch that is not accepted; None where there is none."""
    open_ = [each["id"] for each in batch["divergences"] if each["accepted_at"] is None]
    if len(open_) > 1:
        raise CommandError(
            f"{len(open_)} replays of batch {batch['batch_id']} of stream {batch['stream']!r}"
            f" diverged. Nothing was changed; choose one with --divergence"
            f" {' or '.join(map(str, sorted(open_)))}, as `holdfast batch diff {batch['stream']}"
            f" {batch['batch_id']} --divergence ID` compares it.",
            ExitCode.USAGE,
            code="several_divergences",
        )
    return open_[0] if open_ else None


def _accepted(row: Row) -> CommandError:
    batch, divergence = row["batch"], row["divergence"]
    waits = "" if divergence["added"] else ", and is written when the job brings it again"
    return CommandError(
        f"replay {divergence['id']} of batch {batch['batch_id']} of stream {batch['stream']!r} is"
        f" accepted already, by {divergence['accepted_by']}{waits}. Nothing was changed; see"
        f" `holdfast batch show {batch['stream']} {batch['batch_id']}`.",
        code="already_accepted",
    )

"""Proposals: planned by one person, approved by a second one, applied once and unchanged.

A store with such a change derives from `Proposals`: it calls `propose`, and makes the change inside
`applying`, in the same transaction.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from uuid import UUID, uuid4

from psycopg.types.json import Jsonb

from holdfast.dispatcher.operators.common.session import (
    OperatorSession,
    Row,
    actor,
    person,
    unknown_id,
)
from holdfast.sink.contract.canonical import NotCanonical, canonical_json
from holdfast.sink.contract.exits import CommandError, ExitCode


class Proposals(OperatorSession):
    """Proposals. A change and its audit row commit together."""

    def propose(self, verb: str, target: str, detail: Row, reason: str) -> Row:
        """Record exactly what is to be done; return it as `proposal` does.

        `detail` is JSON without floats, and never changes. An open proposal of the same verb,
        target and detail, by any person, is returned instead of a new one.
        """
        try:
            sha256 = _digest(verb, target, detail)
        except NotCanonical as error:
            raise CommandError(
                f"this cannot be proposed: {error}. Nothing was changed.",
                ExitCode.USAGE,
                code="invalid_proposal",
            ) from None
        parameters = {"id": uuid4(), "verb": verb, "target": target, "sha256": sha256}
        with self._transaction():
            made = {"detail": Jsonb(detail), "reason": reason, "actor": actor(), "person": person()}
            added = self._maybe("proposals/add", {**parameters, **made})
            if added is None:
                return self.proposal(self._one("proposals/open", parameters)["id"])
            audited = {"proposal": added["id"], "verb": verb, "sha256": sha256.hex()}
            self._audit("proposal.add", target, reason, audited)
        return self.proposal(added["id"])

    def approve(self, id_: UUID, reason: str) -> Row:
        """Approve a proposal; raises `CommandError` for the person who planned it."""
        with self._transaction():
            row = self._open(id_)
            short = id_.hex[:8]
            if row["state"] == "approved":
                raise CommandError(
                    f"proposal {short} is approved already, by {row['approved_by']}. Nothing was"
                    " changed.",
                    code="already_approved",
                )
            if row["person"] == person():
                raise CommandError(
                    f"proposal {short} was planned by {row['actor']}, and that is you. Nothing was"
                    " changed: another person approves it under a login of their own, or by the API"
                    f" with their own token: POST /api/v1/proposals/{id_}/approve.",
                    code="approver_is_planner",
                )
            self._require_intact(row)
            self._run("proposals/approve", {"id": id_, "actor": actor(), "person": person()})
            detail = {
                **_named(row),
                "planned_by": row["actor"],
                "planned_by_person": row["person"],
                "person": person(),
            }
            self._audit("proposal.approve", row["target"], reason, detail)
        return self.proposal(id_)

    @contextmanager
    def applying(self, id_: UUID, verb: str, target: str) -> Iterator[Row]:
        """Yield an approved proposal, locked, and mark it applied when the block succeeds.

        Call it in the transaction that makes the change of `detail`: nothing else was approved.
        Raises `CommandError` when it has another verb or target, is not approved, or has ended.
        """
        with self._transaction():
            yield self.approved(id_, verb, target)
            self._run("proposals/apply", {"id": id_, "actor": actor()})

    def approved(self, id_: UUID, verb: str, target: str) -> Row:
        """Return an approved proposal, locked in a transaction; raises what `applying` raises."""
        row = self._open(id_)
        short = id_.hex[:8]
        if (row["verb"], row["target"]) != (verb, target):
            raise CommandError(
                f"proposal {short} is of {row['verb']} of {row['target']}, and not of {verb} of"
                f" {target}. Nothing was changed.",
                code="proposal_mismatch",
            )
        if row["state"] != "approved":
            raise CommandError(
                f"proposal {short} needs a second person: somebody other than {row['actor']}"
                f" runs `holdfast proposal approve {short} --reason TEXT`. Nothing was"
                " changed.",
                code="second_person_required",
            )
        self._require_intact(row)
        return row

    def lock_open(self, id_: UUID) -> bool:
        """Lock a proposal in a transaction; return whether it is neither applied nor cancelled."""
        return bool(self._one("proposals/lock", {"id": id_})["is_open"])

    def cancel(self, id_: UUID, reason: str) -> Row:
        """Cancel a proposal, approved or not; raises `CommandError` for one that has ended."""
        with self._transaction():
            row = self._open(id_)
            self._run("proposals/cancel", {"id": id_, "actor": actor()})
            self._audit("proposal.cancel", row["target"], reason, _named(row))
        return self.proposal(id_)

    def proposal(self, id_: UUID) -> Row:
        """Return a proposal with its `detail` and `state`: planned, approved, applied, cancelled.

        Raises `CommandError` (nothing matched) for an unknown id.
        """
        row = self._maybe("proposals/show", {"id": id_})
        if row is None:
            raise unknown_id("proposal", id_.hex[:8])
        return row

    def proposals(
        self,
        *,
        limit: int,
        before: datetime | None = None,
        target: str | None = None,
        open_: bool = True,
    ) -> list[Row]:
        """Return proposals without details, the newest first; `open_`: only those not ended."""
        parameters = {"limit": limit, "before": before, "target": target, "open": open_}
        return self._all("proposals/list", parameters)

    def find_proposal(self, text: str) -> UUID:
        """Return the id that `text` gives in full or by at least its first 8 hex digits.

        Raises `CommandError`: usage for another text or an ambiguous one; nothing matched.
        """
        return self._find_id(text, "proposal", "proposals/named")

    def _open(self, id_: UUID) -> Row:
        """Lock a proposal and return it; raises `CommandError` for one that has ended."""
        self._run("proposals/lock", {"id": id_})
        row = self.proposal(id_)
        if row["state"] in ("applied", "cancelled"):
            raise CommandError(
                f"proposal {id_.hex[:8]} is {row['state']}. Nothing was changed; see `holdfast"
                f" proposal show {id_.hex[:8]}`.",
                code="proposal_not_open",
            )
        return row

    def _require_intact(self, row: Row) -> None:
        """Raise `CommandError` when its detail differs from the recorded digest."""
        if _digest(row["verb"], row["target"], row["detail"]).hex() != row["sha256"]:
            raise CommandError(
                f"the detail of proposal {row['id'].hex[:8]} is not what was proposed and approved:"
                " its SHA-256 differs. Nothing was changed; cancel it, and find out who changed the"
                " table.",
                code="proposal_altered",
            )


def _digest(verb: str, target: str, detail: Row) -> bytes:
    return hashlib.sha256(canonical_json([verb, target, detail])).digest()


def _named(row: Row) -> Row:
    return {"proposal": row["id"], "verb": row["verb"], "sha256": row["sha256"]}

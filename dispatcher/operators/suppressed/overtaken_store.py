"""Decisions that were overtaken: written after all, by two people, once.

The sink writes the entry in a transaction of its own, under a key that follows from the old one.
Where somebody dies between that and the booking here, applying the proposal again books it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from dispatcher.operators.common.session import Row, operator_connection
from dispatcher.operators.proposals.store import Proposals
from dispatcher.operators.quarantine.corrected import sha256
from dispatcher.operators.suppressed.overtaken import (
    new_key_of,
    obsolete,
    require_writable,
    state_said,
    text_of,
)
from dispatcher.operators.suppressed.store import SuppressedDecisions
from sink.contract.canonical import rfc3339
from sink.contract.exits import CommandError
from sink.contract.key import Key

VERB = "suppressed.write"


class OvertakenDecisions(SuppressedDecisions, Proposals):
    """Overtaken decisions to write; use `overtaken(dsn)` to get it."""

    def propose_write(self, key: Key, reason: str, *, despite_later: bool = False) -> Row:
        """Propose to write an overtaken decision; nothing of it is written.

        Returns the decision as `decision` does, with `new_key`; `newest` of the subject in all
        streams (`last_sequence`, `last_type`, `last_occurred_at`); `later`, how many decisions of
        the subject in this stream occurred later and were suppressed too, and `newest_later` of
        them; `sha256` of the entry; `proposal`, `planned_by`, `approved_by`. Raises `CommandError`
        where it is not to be written, or (nothing matched) is not stored.
        """
        found = self.decision(key)
        detail = self._detail(key, found)
        require_writable(found)
        if detail["later"] and not despite_later:
            raise obsolete(found, detail)
        made = self.propose(VERB, target(key), detail, reason)
        return {
            **found,
            **{name: detail[name] for name in ("new_key", "sha256", "later", "newest_later")},
            "newest": self._one("reissue/subject", found),
            "proposal": made["id"],
            "planned_by": made["actor"],
            "approved_by": made["approved_by"],
        }

    @contextmanager
    def writing(self, key: Key, proposal: UUID, reason: str) -> Iterator[tuple[Row, str]]:
        """Yield the decision and its entry's text while the block writes it; then book that.

        Raises `CommandError` where no approved proposal is of exactly this, or where the subject's
        state is not the one that was approved; one that was written before is only booked.
        """
        with self.applying(proposal, VERB, target(key)) as plan:
            found, detail = self.decision(key), plan["detail"]
            text = text_of(found)
            if (sha256(text), new_key_of(key).text) != (detail["sha256"], detail["new_key"]):
                raise CommandError(
                    f"{key.text} is not what proposal {proposal.hex[:8]} was made for. Nothing was"
                    " changed; propose it again."
                )
            if found["written_as"] is None:
                if self._detail(key, found) != detail:
                    raise _moved(found, proposal)
                require_writable(found)
            self.try_audit()
            yield found, text
            said = {name: detail[name] for name in ("subject", "type", "new_key", "sha256")}
            who = {"planned_by": plan["actor"], "approved_by": plan["approved_by"]}
            self._audit(VERB, key.text, reason, {**said, "proposal": proposal, **who})

    def _detail(self, key: Key, found: Row) -> Row:
        """Return exactly what would be written, and what of the subject was seen for it."""
        stream = found["batch"]["stream"]
        later = self._maybe("suppressed/later", {**found, "stream": stream})
        return {
            **{name: found[name] for name in ("subject", "type")},
            "occurred_at": rfc3339(found["occurred_at"]),
            "stream": stream,
            "new_key": new_key_of(key).text,
            "sha256": sha256(text_of(found)),
            "state": state_said(found["state"]),
            "later": 0 if later is None else later["count"],
            "newest_later": later and _said(later),
        }


@contextmanager
def overtaken(dsn: str | None) -> Iterator[OvertakenDecisions]:
    """Connect in the operator's role; raises `CommandError` when that is not possible."""
    with operator_connection(dsn) as connection:
        yield OvertakenDecisions(connection)


def target(key: Key) -> str:
    """Return how proposals name a suppressed decision."""
    return f"suppressed {key.text}"


def _said(row: Row) -> Row:
    said = {name: row[name] for name in ("type", "cause")}
    return {"key": Key(row["key"]).text, "occurred_at": rfc3339(row["occurred_at"]), **said}


def _moved(found: Row, proposal: UUID) -> CommandError:
    short = proposal.hex[:8]
    return CommandError(
        f"the subject is not as proposal {short} was made for: a decision of it was written or"
        " suppressed since, or it was repaired. Nothing was changed; end the proposal with"
        f" `holdfast proposal cancel {short} --reason TEXT`, look at `holdfast suppressed show"
        f" {found['key']}`, and propose again where that is meant."
    )

"""Corrected rows that are another decision than the kept one: proposed, approved, then written.

The text is compared where it is written, under the lock of the kept row; what was compared before
only serves to say early what is missing.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from dispatcher.operators.common.session import Row
from dispatcher.operators.quarantine.corrected import Difference, differences, identity, sha256
from dispatcher.operators.quarantine.store import Quarantine
from sink.contract.exits import CommandError, ExitCode

VERB = "quarantine.requeue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How rows go back, which is part of what is approved."""

    suppress_repeats: bool = True
    into: str | None = None
    """The job's directory; None for entries, which go to the outbox."""


def target(number: int) -> str:
    """Return how the audit trail and proposals name a row."""
    return f"quarantine {number}"


def proposed(
    store: Quarantine, rows: Sequence[Row], texts: Mapping[int, str], reason: str, way: Way
) -> list[Row]:
    """Propose those rows that are decided by hand; returns `id`, `proposal`, `differs`, `approve`.

    Nothing of them is written. `approve` is the command for the second person, `apply` the one for
    afterwards.
    """
    found = []
    for row in rows:
        text = texts[row["id"]]
        differs = [each._asdict() for each in differences(row, text)]
        if not differs:
            continue
        detail = {
            "text": text,
            "sha256": sha256(text),
            "kept_sha256": sha256(row["row"]),
            "differs": differs,
            "suppress_repeats": way.suppress_repeats,
            "into": way.into,
        }
        made = store.propose(VERB, target(row["id"]), detail, reason)
        short = made["id"].hex[:8]
        command = f"holdfast quarantine requeue {row['id']} --proposal {short} --reason TEXT"
        found.append(
            {
                "id": row["id"],
                "proposal": made["id"],
                "planned_by": made["actor"],
                "approved_by": made["approved_by"],
                "differs": differs,
                "approve": f"holdfast proposal approve {short} --reason TEXT",
                "apply": command,
            }
        )
    return found


def planned(store: Quarantine, id_: UUID, number: int) -> tuple[str, Way]:
    """Return the text that a proposal would put back for a row, and how.

    Raises `CommandError` where it is of something else.
    """
    row = store.proposal(id_)
    if (row["verb"], row["target"]) != (VERB, target(number)):
        raise CommandError(
            f"proposal {id_.hex[:8]} is of {row['verb']} of {row['target']}, and not of row"
            f" {number}. Nothing was changed; see `holdfast proposal show {id_.hex[:8]}`."
        )
    detail = row["detail"]
    way = Way(suppress_repeats=detail["suppress_repeats"], into=detail["into"])
    return detail["text"], way


@contextmanager
def allowed(
    store: Quarantine, row: Row, text: str, way: Way, proposal: UUID | None
) -> Iterator[Row]:
    """Yield what the audit row says of a text, if it may be written for a row that is locked.

    Raises `CommandError` where it is decided by hand and no approved proposal has exactly it.
    """
    said: Row = {"kept": identity(row, row["row"]), "written": identity(row, text)}
    if proposal is None:
        differs = differences(row, text)
        if differs:
            raise _by_hand(row, differs)
        yield said
        return
    with store.applying(proposal, VERB, target(row["id"])) as plan:
        detail = plan["detail"]
        exactly = (sha256(text), sha256(row["row"]), way.suppress_repeats, way.into)
        names = ("sha256", "kept_sha256", "suppress_repeats", "into")
        if exactly != tuple(detail[name] for name in names):
            raise CommandError(
                f"this is not what was approved: proposal {proposal.hex[:8]} is of another text or"
                " goes another way. Nothing was changed; see `holdfast proposal show"
                f" {proposal.hex[:8]}`."
            )
        yield {
            **said,
            "proposal": proposal,
            "planned_by": plan["actor"],
            "approved_by": plan["approved_by"],
        }


def _by_hand(row: Row, differs: Sequence[Difference]) -> CommandError:
    names = ", ".join(each.member for each in differs)
    return CommandError(
        f"the corrected row {row['id']} is another decision than the kept one ({names}), which"
        " needs a second person. Nothing was changed; propose it with `holdfast quarantine requeue"
        f" {row['id']} --row FILE --reason TEXT`.",
        ExitCode.FAILED,
    )

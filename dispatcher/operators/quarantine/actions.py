"""Rows of the quarantine put back to the outbox as entries, or closed.

A corrected row that is another decision than the kept one, and a row that would overtake a newer
decision of its subject, is proposed by one person and approved by a second one. Both are compared
again where the entry is written, under the locks of the kept row and of the subject.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from holdfast.dispatcher.operators.common.overtaking import may_overtake, overtaken_text
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.text import visible
from holdfast.dispatcher.operators.quarantine.rules import (
    Difference,
    differences,
    identity,
    is_entry,
    sha256,
    why_not_as_kept,
)
from holdfast.dispatcher.operators.quarantine.store import Quarantine
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.requeue import Requeued, writer
from holdfast.sink.contract.states import QuarantineResolution

WHY = ("resolution", "resolved_at", "resolved_by", "resolution_reason")
"""The result for a row that was resolved before."""


class _RefusedAgain(Exception):
    """The row stays open, and so does its proposal."""


def open_among(store: Quarantine, ids: Sequence[int]) -> tuple[list[Row], list[Row]]:
    """Return the open ones of some rows, and the resolutions of the others.

    An open row also has `put_back`: its entry is written, and only the resolution is missing.
    Raises `CommandError` (nothing matched) for an unknown id, or when none of them is open.
    """
    rows = store.take(ids)
    resolved = [row for row in rows if row["resolution"] is not None]
    if len(resolved) == len(rows):
        raise all_resolved(resolved)
    left = [row for row in rows if row["resolution"] is None]
    written = store.put_back([row["id"] for row in left])
    return [{**row, "put_back": row["id"] in written} for row in left], resolved_among(rows)


def resolved_among(rows: Sequence[Row]) -> list[Row]:
    """Return the resolutions of those rows that are resolved."""
    names = ("id", *WHY)
    return [{name: row[name] for name in names} for row in rows if row["resolution"] is not None]


def resolved_text(row: Row) -> str:
    """Return how a row was resolved, for a person."""
    why = row["resolution_reason"]
    at = rfc3339(row["resolved_at"])
    return f"{row['resolution']} already, on {at} by {row['resolved_by']}" + (
        f" ({visible(why)})" if why else ""
    )


def only_entries(rows: Sequence[Row]) -> None:
    """Raise `CommandError` (usage) for a source row, which never became an entry."""
    for row in rows:
        if not is_entry(row):
            raise CommandError(
                f"row {row['id']} was refused before it was an entry ({row['reason']}). Nothing was"
                " changed; give it back to the job with `holdfast quarantine requeue --into` and"
                " the directory that the job reads.",
                ExitCode.USAGE,
                code="wrong_destination",
            )


def can_go_back(rows: Sequence[Row], texts: Mapping[int, str]) -> None:
    """Raise `CommandError` (usage) for a row that must be corrected first, and is not."""
    for row in rows:
        why = None if row.get("put_back") else why_not_as_kept(row)
        if why is not None and texts[row["id"]] == row["row"]:
            raise CommandError(
                f"row {row['id']} cannot be put back as it was kept: {why}. Nothing was changed;"
                " let its source send it again and dismiss it here, or give the full row with"
                " --row FILE.",
                ExitCode.USAGE,
                code="row_needs_correction",
            )


def put_entries(
    dsn: str,
    store: Quarantine,
    rows: list[Row],
    texts: Mapping[int, str],
    reason: str,
    *,
    suppress_repeats: bool,
    before: list[Row] | None = None,
    proposal: UUID | None = None,
) -> tuple[list[Row], list[Row]]:
    """Write rows as entries, one by one, each locked until it is written and resolved.

    A text with another decision than the kept row, or one that overtakes a newer decision, needs an
    approved `proposal` of exactly that. Returns the rows put back and those refused again, each as
    `id`, `detail`. A row that was resolved meanwhile is not written; it is added to `before` (the
    second list of `open_among`), or to the refused ones. Raises `CommandError` when a row cannot be
    written or resolved; it reports what was done before. Also raises when all rows were resolved
    meanwhile.
    """
    store.try_audit()
    write = partial(writer(), dsn, suppress_repeats=suppress_repeats)
    way = Way(suppress_repeats=suppress_repeats)
    done: list[Row] = []
    refused: list[Row] = []
    meanwhile: list[Row] = []
    for row in rows:
        number = row["id"]
        try:
            with store.alone([number]) as [now]:
                if now["resolution"] is not None:
                    meanwhile.append(now)
                    continue
                now["put_back"] = store.put_back([number]).get(number)
                with allowed(store, now, texts[number], way, proposal) as said:
                    over = partial(write, overtakes=may_overtake(said["overtakes"]))
                    detail = _put_back(over, now, texts[number])
                    if now["put_back"] and texts[number] == now["row"]:
                        said["written"] = None  # The existing entry may be of a corrected row.
                    store.resolve(
                        [number], QuarantineResolution.REQUEUED, reason, {"detail": detail, **said}
                    )
        except _RefusedAgain as again:
            refused.append({"id": number, "detail": str(again)})
            continue
        except CommandError as error:
            raise _stopped(error, number, done, rows) from None
        done.append({"id": number, "detail": detail})
    if rows and len(meanwhile) == len(rows):
        raise all_resolved(meanwhile)
    if before is None:
        refused += [{"id": each["id"], "detail": resolved_text(each)} for each in meanwhile]
    else:
        before += resolved_among(meanwhile)
    return done, refused


def _put_back(write: Callable[..., Iterator[Requeued]], row: Row, text: str) -> str:
    """Write a locked row, or find that it is written already; return how.

    Raises `_RefusedAgain`.
    """
    number = row["id"]
    stream = row["put_back"]
    if stream is not None and text == row["row"]:
        # The text is not corrected this time: the entry may be of an earlier, corrected text.
        return f"was written before in stream {stream}"
    [outcome] = write(str(row["stream"]), {number: text})
    if not outcome.written:
        raise _RefusedAgain(outcome.detail)
    return outcome.detail


def _stopped(error: CommandError, number: int, done: list[Row], rows: list[Row]) -> CommandError:
    """Return the error for row `number`, with what was done before it."""
    left = len(rows) - 1 - [row["id"] for row in rows].index(number)
    ids = ", ".join(str(row["id"]) for row in done)
    before = {
        0: "No row was put back before it",
        1: f"1 row was put back before it (row {ids})",
    }.get(len(done), f"{len(done)} rows were put back before it (rows {ids})")
    after = f", and {left} after it {'was' if left == 1 else 'were'} not tried" if left else ""
    return CommandError(
        f"row {number} was not recorded as put back: {str(error).rstrip('.')}. {before}{after};"
        " run the same command again when the cause is gone.",
        error.exit_code,
        code=error.code,
    )


def all_resolved(rows: Sequence[Row]) -> CommandError:
    """Return the error for rows that are all resolved already."""
    return CommandError(
        "; ".join(f"row {row['id']} is {resolved_text(row)}" for row in rows)
        + ". Nothing was changed.",
        ExitCode.NOTHING_MATCHED,
        code="already_resolved",
    )


VERB = "quarantine.requeue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How rows are put back; it is part of what is approved."""

    suppress_repeats: bool = True
    into: str | None = None
    """The job's input directory; None for entries, which go to the outbox."""


def target(number: int) -> str:
    """Return the name of a row in the audit trail and in proposals."""
    return f"quarantine {number}"


def proposed(
    store: Quarantine, rows: Sequence[Row], texts: Mapping[int, str], reason: str, way: Way
) -> list[Row]:
    """Propose the rows that need a second person; write nothing yet.

    Returns `id`, `proposal`, `planned_by`, `approved_by`, `differs`, `overtakes` (the newer
    decision that it would follow, or None), `approve` (the command for the second person) and
    `apply` (the command for afterwards) of each.
    """
    found = []
    for row in rows:
        text = texts[row["id"]]
        differs = [each._asdict() for each in differences(row, text)]
        overtakes = store.overtakes(row, text, suppress_repeats=way.suppress_repeats)
        if not differs and overtakes is None:
            continue
        detail = {
            "text": text,
            "sha256": sha256(text),
            "kept_sha256": sha256(row["row"]),
            "differs": differs,
            "suppress_repeats": way.suppress_repeats,
            "into": way.into,
            **({"overtakes": overtakes} if overtakes else {}),
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
                "overtakes": overtakes,
                "approve": f"holdfast proposal approve {short} --reason TEXT",
                "apply": command,
            }
        )
    return found


def put_back(
    dsn: str,
    store: Quarantine,
    rows: Sequence[Row],
    texts: Mapping[int, str],
    reason: str,
    way: Way,
    before: list[Row],
) -> tuple[list[Row], list[Row], list[Row]]:
    """Propose the rows that need a second person, and write the others as entries.

    Returns the rows put back and those refused again, as `put_entries`, and those proposed, as
    `proposed`.
    """
    waiting = proposed(store, rows, texts, reason, way)
    ids = {each["id"] for each in waiting}
    left = [row for row in rows if row["id"] not in ids]
    if not left:
        return [], [], waiting
    repeats = way.suppress_repeats
    written = put_entries(dsn, store, left, texts, reason, suppress_repeats=repeats, before=before)
    return *written, waiting


def planned(store: Quarantine, id_: UUID, number: int) -> tuple[str, Way]:
    """Return the text that a proposal would put back for a row, and how.

    Raises `CommandError` for a proposal of something else.
    """
    row = store.proposal(id_)
    if (row["verb"], row["target"]) != (VERB, target(number)):
        raise CommandError(
            f"proposal {id_.hex[:8]} is of {row['verb']} of {row['target']}, and not of row"
            f" {number}. Nothing was changed; see `holdfast proposal show {id_.hex[:8]}`.",
            code="proposal_mismatch",
        )
    detail = row["detail"]
    way = Way(suppress_repeats=detail["suppress_repeats"], into=detail["into"])
    return detail["text"], way


@contextmanager
def allowed(
    store: Quarantine, row: Row, text: str, way: Way, proposal: UUID | None
) -> Iterator[Row]:
    """Yield the audit detail of a text that may be written for a locked row.

    Raises `CommandError` for another decision, and for one that overtakes a newer decision, without
    an approved proposal of exactly this.
    """
    overtakes = store.overtakes(row, text, suppress_repeats=way.suppress_repeats)
    said: Row = {
        "kept": identity(row, row["row"]),
        "written": identity(row, text),
        "overtakes": overtakes,
    }
    if proposal is None:
        differs = differences(row, text)
        if differs or overtakes is not None:
            raise _by_hand(row, differs, overtakes)
        yield said
        return
    with store.applying(proposal, VERB, target(row["id"])) as plan:
        detail = plan["detail"]
        exactly = (sha256(text), sha256(row["row"]), way.suppress_repeats, way.into)
        names = ("sha256", "kept_sha256", "suppress_repeats", "into")
        if exactly != tuple(detail[name] for name in names):
            raise CommandError(
                f"this is not what was approved: proposal {proposal.hex[:8]} has another text or"
                " other options. Nothing was changed; see `holdfast proposal show"
                f" {proposal.hex[:8]}`.",
                code="proposal_mismatch",
            )
        if overtakes != detail.get("overtakes") and not row.get("put_back"):
            raise CommandError(
                f"the decisions of its subject have changed since proposal {proposal.hex[:8]}."
                " Nothing was changed; end it with `holdfast proposal cancel"
                f" {proposal.hex[:8]} --reason TEXT`, and propose again if row {row['id']} should"
                " still be put back.",
                code="proposal_outdated",
            )
        yield {
            **said,
            "proposal": proposal,
            "planned_by": plan["actor"],
            "approved_by": plan["approved_by"],
        }


def why_two(differs: Sequence[Mapping[str, Any]], overtakes: Row | None) -> str:
    """Return why a row needs a second person; the arguments are as in `proposed`."""
    why = []
    if differs:
        names = ", ".join(each["member"] for each in differs)
        why.append(f"is another decision than the kept one ({names}), or that cannot be read")
    if overtakes is not None:
        why.append(
            f"would overtake the newest decision of its subject, {overtaken_text(overtakes)}"
        )
    return ", and ".join(why)


def _by_hand(row: Row, differs: Sequence[Difference], overtakes: Row | None) -> CommandError:
    why = why_two([each._asdict() for each in differs], overtakes)
    return CommandError(
        f"row {row['id']} {why}, which needs a second person. Nothing was changed; propose it"
        f" with `holdfast quarantine requeue {row['id']} --reason TEXT` and the same options.",
        ExitCode.FAILED,
        code="second_person_required",
    )

"""Rows of the quarantine put back to the outbox as entries, or closed.

A corrected row that is another decision than the kept one, and a row that would overtake a newer
decision of its subject, is proposed by one person and approved by a second one. Both are compared
again where the entry is written, under the locks of the kept row and of the subject.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from holdfast.dispatcher.operators.common.overtaking import may_overtake, overtaken_text
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.text import visible
from holdfast.dispatcher.operators.quarantine.rules import (
    Difference,
    differences,
    identity,
    is_entry,
    reason_text,
    sha256,
    why_not_as_kept,
)
from holdfast.dispatcher.operators.quarantine.store import Quarantine
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.requeue import Opened, Requeued, writer
from holdfast.sink.contract.states import QuarantineResolution

WHY = ("resolution", "resolved_at", "resolved_by", "resolution_reason")
"""The result for a row that was resolved before."""


class RefusedAgain(Exception):
    """The row stays open, and so does its proposal."""


Permit = Callable[[Row, str], AbstractContextManager[Row]]
"""Yields the audit detail of a text that may be written for a locked row.

Raises `RefusedAgain` for one that may not, and `CommandError` for one that ends the command.
"""


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


def dismiss(store: Quarantine, ids: Sequence[int], reason: str) -> tuple[list[int], list[Row]]:
    """Dismiss the open ones of some rows; return their ids, and the resolutions of the others.

    Raises what `open_among` raises.
    """
    rows, before = open_among(store, ids)
    ids = [row["id"] for row in rows]
    done = store.resolve(ids, QuarantineResolution.DISMISSED, reason)
    meanwhile = sorted(set(ids) - set(done))
    return done, before + (resolved_among(store.take(meanwhile)) if meanwhile else [])


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
                f"row {row['id']} was refused before it was an entry ({reason_text(row)}). Nothing"
                " was changed; give it back to the job with `holdfast quarantine requeue --into`"
                " and the directory that the job reads.",
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
    permit: Permit | None = None,
) -> tuple[list[Row], list[Row]]:
    """Write rows as entries, one by one, each locked until it is written and resolved.

    A text with another decision than the kept row, or one that overtakes a newer decision, needs an
    approved `proposal` of exactly that, or what `permit` asks for. Returns the rows put back and
    those refused again, each as `id`, `detail`. A row that was resolved meanwhile is not written;
    it is added to `before` (the second list of `open_among`), or to the refused ones. Raises
    `CommandError` when a row cannot be written or resolved; it reports what was done before. Also
    raises when all rows were resolved meanwhile.
    """
    store.try_audit()
    way = Way(suppress_repeats=suppress_repeats)
    permit = permit or partial(allowed, store, way=way, proposal=proposal)
    done: list[Row] = []
    refused: list[Row] = []
    meanwhile: list[Row] = []
    with closing(Opened()) as opened:
        write = partial(writer(), dsn, suppress_repeats=suppress_repeats, opened=opened)
        for row in rows:
            number = row["id"]
            try:
                with store.locked([number]) as [now]:
                    if now["resolution"] is not None:
                        meanwhile.append(now)
                        continue
                    detail = _written(store, write, now, texts[number], permit, reason)
            except RefusedAgain as again:
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


def _written(
    store: Quarantine,
    write: Callable[..., Iterator[Requeued]],
    row: Row,
    text: str,
    permit: Permit,
    reason: str,
) -> str:
    """Write a locked row and resolve it; return how. Raises what `permit` and `_put_back` raise."""
    number = row["id"]
    row["put_back"] = store.put_back([number]).get(number)
    sequence = store.last_sequence(row, text)
    with permit(row, text) as audited:
        newer = may_overtake(audited["overtakes"])
        detail = _put_back(partial(write, overtakes=newer, last_sequence=sequence), row, text)
        if row["put_back"] and text == row["row"]:
            audited["written"] = None  # The existing entry may be of a corrected row.
        store.resolve(
            [number], QuarantineResolution.REQUEUED, reason, {"detail": detail, **audited}
        )
    return detail


def _put_back(write: Callable[..., Iterator[Requeued]], row: Row, text: str) -> str:
    """Write a locked row, or find that it is written already; return how.

    Raises `RefusedAgain`.
    """
    number = row["id"]
    stream = row["put_back"]
    if stream is not None and text == row["row"]:
        # The text is not corrected this time: the entry may be of an earlier, corrected text.
        return f"was written before in stream {stream}"
    [outcome] = write(str(row["stream"]), {number: text})
    if not outcome.written:
        raise RefusedAgain(outcome.detail)
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
    waiting = []
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
        waiting.append(
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
    return waiting


class PutBack(NamedTuple):
    """The result of putting rows back."""

    done: list[Row]
    refused: list[Row]
    """Rows that were refused again, and stay open."""
    proposed: list[Row]
    """Rows that wait for a second person, as `proposed` returns them."""
    before: list[Row]
    """Rows that were resolved already, as `resolved_among` returns them."""


WriteLines = Callable[[Path, Mapping[int, str]], list[Path]]
"""Writes lines, each by its row's id, to files of a directory that a job reads."""


def put_back(
    store: Quarantine,
    dsn: str,
    ids: Sequence[int],
    reason: str,
    texts: Callable[[list[Row]], Mapping[int, str]],
    way: Way,
    *,
    proposal: UUID | None = None,
    write_lines: WriteLines | None = None,
) -> PutBack:
    """Put rows back: write those that may be written, propose those that need a second person.

    `texts` returns the text of each open row, or raises for one that cannot go that way. With
    `proposal`, the one row gets the text and the way that were approved. Without `write_lines`,
    rows of a job's source are refused. Raises what `open_among` and `put_entries` raise.
    """
    rows, before = open_among(store, ids)
    if write_lines is None:
        only_entries(rows)
    waiting: list[Row] = []
    if proposal is not None:
        [number] = ids
        text, way = planned(store, proposal, number)
        ready: Mapping[int, str] = {number: text}
    else:
        ready = texts(rows)
        waiting = proposed(store, rows, ready, reason, way)
        waits = {each["id"] for each in waiting}
        rows = [row for row in rows if row["id"] not in waits]
    if not rows:
        return PutBack([], [], waiting, before)
    if way.into is None or write_lines is None:
        repeats = way.suppress_repeats
        done, refused = put_entries(
            *(dsn, store, rows, ready, reason),
            suppress_repeats=repeats,
            before=before,
            proposal=proposal,
        )
        return PutBack(done, refused, waiting, before)
    lines = {row["id"]: ready[row["id"]] for row in rows}
    paths = put_lines(store, lines, Path(way.into), reason, before, write_lines, proposal)
    done = [{"id": each, "detail": f"in {path}"} for each, path in paths.items()]
    return PutBack(done, [], waiting, before)


def entry_texts(rows: Sequence[Row], corrected: Mapping[int, str | None]) -> dict[int, str]:
    """Return the text to put back for each row, by its id: the corrected row, else the stored one.

    Raises `CommandError` (usage) for a row that must be corrected first, and is not.
    """
    texts = {row["id"]: corrected.get(row["id"]) or row["row"] for row in rows}
    can_go_back(rows, texts)
    return texts


def put_lines(
    store: Quarantine,
    texts: Mapping[int, str],
    directory: Path,
    reason: str,
    before: list[Row],
    write_lines: WriteLines,
    proposal: UUID | None = None,
    permit: Permit | None = None,
) -> dict[int, Path]:
    """Write source lines for the job, one file each, and resolve their rows; return the files by
    id.

    A text that is a different event than the stored row is written only by an approved `proposal`
    of exactly that text. A row that was resolved meanwhile is not written, and is added to
    `before`. Raises `CommandError` if all were.
    """
    way = Way(into=str(directory.absolute()))
    permit = permit or partial(allowed, store, way=way, proposal=proposal)
    with store.locked(list(texts)) as rows:
        left = [row for row in rows if row["resolution"] is None]
        if not left:
            raise all_resolved(rows)
        ids = [row["id"] for row in left]
        with ExitStack() as stack:
            details = [stack.enter_context(permit(row, texts[row["id"]])) for row in left]
            paths = write_lines(directory, {number: texts[number] for number in ids})
            for number, path, each in zip(ids, paths, details, strict=True):
                detail = {"files": [str(path.absolute())], **each}
                store.resolve([number], QuarantineResolution.REQUEUED, reason, detail)
    before += resolved_among(rows)
    return dict(zip(ids, paths, strict=True))


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
    audited: Row = {
        "kept": identity(row, row["row"]),
        "written": identity(row, text),
        "overtakes": overtakes,
    }
    if proposal is None:
        differs = differences(row, text)
        if differs or overtakes is not None:
            raise _by_hand(row, differs, overtakes)
        yield audited
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
            **audited,
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

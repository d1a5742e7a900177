"""Rows of the quarantine that a filter finds: judged, then put back or dismissed, all or in part.

What is done is a list of ids: of the rows that were judged, so a row that comes later is not in it.
Beyond a limit of rows, and over a newer decision of a subject, that list is a proposal. It can be
applied again after a crash: a row that is resolved is passed over, and a key is written once.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.quarantine.actions import (
    PutBack,
    RefusedAgain,
    Way,
    WriteLines,
    allowed,
    put_entries,
    put_lines,
    resolved_among,
)
from holdfast.dispatcher.operators.quarantine.rules import (
    ENTRY_REASONS,
    identity,
    is_entry,
    placing,
    sha256,
    why_not_as_kept,
)
from holdfast.dispatcher.operators.quarantine.store import ACTIONS, MANY, Filter, Quarantine
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.requeue import Outcome, writer
from holdfast.sink.contract.states import QuarantineReason, QuarantineResolution

ROWS: Final = 1_000
"""Default of the rows of one command."""

ROWS_MAX: Final = 10_000
ALONE_ROWS_MAX: Final = 100
"""Rows that one person resolves by filters within 24 hours without a second person."""

CHUNK: Final = 100
"""Rows that are read, and judged, at a time: a row has up to 64 KiB."""

SUBJECTS_SHOWN: Final = 5

READY, RECORDED, OVERTAKES, BEHIND = "ready", "written_before", "overtakes", "behind"
NOT_AS_KEPT, OTHER_WAY = "not_as_kept", "other_way"
MEANS: Final = {
    READY: "can be resolved by this command",
    RECORDED: "written before, and only to be recorded",
    OVERTAKES: "would overtake a newer decision of its subject: a second person decides",
    BEHIND: "stays: another row of its subject has to be decided first",
    OTHER_WAY: "is an entry with --into, or a row of the job's source without it",
    NOT_AS_KEPT: "cannot be put back as kept (cut, not UTF-8, or line breaks)",
    Outcome.UNFIT: "would be refused again as it is",
    Outcome.FUTURE_DATED: "is still dated too far ahead",
    Outcome.KEY_RECORDED: "its key is recorded with the same content: dismiss it",
    Outcome.KEY_CONFLICT: "its key is recorded with different content",
    Outcome.REPEATED: "repeats its subject's type, or is older than its newest entry",
    Outcome.NEWER_DECISION: "its subject has a newer decision",
}
"""What becomes of a row, by its fate."""


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be done with rows, and how."""

    resolution: QuarantineResolution
    way: Way = field(default_factory=Way)

    @property
    def verb(self) -> str:
        """The name of the action in proposals and in the audit trail."""
        return ACTIONS[self.resolution]

    @property
    def reasons(self) -> Iterable[QuarantineReason]:
        """The reasons that rows can have which go this way; of those rejected, some do not."""
        if self.resolution is QuarantineResolution.DISMISSED:
            return QuarantineReason
        if self.way.into is None:
            return ENTRY_REASONS | {QuarantineReason.REJECTED}
        return set(QuarantineReason) - ENTRY_REASONS


@dataclass(frozen=True, slots=True)
class Judged:
    """An open row, and what would become of it alone."""

    id: int
    reason: str
    subject: str | None
    at: datetime | None
    sha256: str
    """Of its text."""

    fate: str
    overtakes: Row | None = None

    @property
    def order(self) -> tuple[datetime, int]:
        """The order in which rows are written: by event time, so that none overtakes another."""
        return (self.at or datetime.max.replace(tzinfo=UTC), self.id)


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows that a filter found, in the order in which they are written."""

    filter: Row
    matching: int
    """How many rows the filter finds; `rows` has at most the limit of the command."""

    rows: list[Judged]

    def of(self, *fates: str) -> list[Judged]:
        """Return the rows with one of these fates."""
        return [each for each in self.rows if each.fate in fates]

    def preview(self) -> Row:
        """Return the counts, as JSON: by fate, and by reason with some subjects."""
        subjects: dict[str, dict[str, None]] = {}
        for each in self.rows:
            names = subjects.setdefault(each.reason, {})
            if each.subject is not None and len(names) < SUBJECTS_SHOWN:
                names[each.subject] = None
        reasons = Counter(each.reason for each in self.rows)
        return {
            "filter": self.filter,
            "matching": self.matching,
            "taken": len(self.rows),
            "fates": dict(Counter(each.fate for each in self.rows)),
            "reasons": [
                {"reason": reason, "rows": count, "subjects": list(subjects[reason])}
                for reason, count in sorted(reasons.items())
            ],
        }


Step = Callable[[int], None]
"""Called with the count of rows of each finished part."""


def select(
    store: Quarantine, dsn: str, filter_: Filter, task: Task, *, limit: int, step: Step
) -> Selection:
    """Judge the oldest open rows that a filter finds, at most `limit`; change nothing.

    Each row is judged by itself: of two rows with one key, the second is refused when it is
    written. Raises `CommandError`: usage for a filter that has nothing, nothing matched if it finds
    none.
    """
    stored = _stored(filter_)
    if not stored:
        raise CommandError(
            "name the rows: their ids, or --reason-is, --stream, --since or --until. Nothing was"
            " changed; `holdfast quarantine list` shows them.",
            ExitCode.USAGE,
            code="invalid_filter",
        )
    ids = store.matching(filter_, task.reasons, limit=ROWS_MAX + 1)
    if not ids:
        raise CommandError(
            "no open row that can go this way matches. Nothing was changed; see `holdfast"
            " quarantine list`, and for rows of the job's source --into.",
            ExitCode.NOTHING_MATCHED,
            code="nothing_matched",
        )
    judged: list[Judged] = []
    for part in _parts(ids[:limit]):
        judged += _judged(store, dsn, part, task)
        step(len(part))
    return Selection(stored, len(ids), _one_of_a_subject(sorted(judged, key=lambda e: e.order)))


def _stored(filter_: Filter) -> Row:
    """Return the given members of a filter as JSON."""
    members = {
        "stream": filter_.stream,
        "reason": filter_.reason,
        "since": filter_.since and filter_.since.isoformat(),
        "until": filter_.until and filter_.until.isoformat(),
    }
    return {name: value for name, value in members.items() if value is not None}


def _judged(store: Quarantine, dsn: str, ids: Sequence[int], task: Task) -> Iterator[Judged]:
    rows = [row for row in store.take(ids) if row["resolution"] is None]
    written = store.put_back(ids)
    rows = [{**row, "put_back": written.get(row["id"])} for row in rows]
    fates = dict(_fates(dsn, rows, task))
    for row in rows:
        place, fate, overtakes = placing(row, row["row"]), fates[row["id"]], None
        if fate in (READY, Outcome.NEWER_DECISION) and task.way.into is None and place is not None:
            if task.resolution is QuarantineResolution.REQUEUED:
                repeats = task.way.suppress_repeats
                overtakes = store.overtakes(row, row["row"], suppress_repeats=repeats)
            fate = fate if overtakes is None else OVERTAKES
        yield Judged(
            row["id"],
            row["reason"],
            None if place is None else place.subject,
            None if place is None else place.occurred_at,
            sha256(row["row"]),
            fate,
            overtakes,
        )


def _fates(dsn: str, rows: Sequence[Row], task: Task) -> Iterator[tuple[int, str]]:
    dismissed = task.resolution is QuarantineResolution.DISMISSED
    streams: dict[str, dict[int, str]] = {}
    for row in rows:
        if row["put_back"] is not None:
            yield row["id"], RECORDED
        elif dismissed:
            yield row["id"], READY
        elif is_entry(row) != (task.way.into is None):
            yield row["id"], OTHER_WAY
        elif why_not_as_kept(row) is not None or row["stream"] is None:
            yield row["id"], NOT_AS_KEPT
        elif not is_entry(row):
            yield row["id"], READY
        else:
            streams.setdefault(row["stream"], {})[row["id"]] = row["row"]
    for stream, texts in streams.items():
        repeats = task.way.suppress_repeats
        for each in writer()(dsn, stream, texts, suppress_repeats=repeats, foresee=True):
            yield each.quarantine_id, READY if each.written else each.outcome.value


def _one_of_a_subject(rows: list[Judged]) -> list[Judged]:
    """Leave, of a subject with a row that overtakes, only the oldest such row.

    What is approved is the state of the subject in which it is written, and each row changes that.
    """
    decided: dict[str | None, int] = {}
    for each in rows:
        if each.fate == OVERTAKES:
            decided.setdefault(each.subject, each.id)
    return [
        Judged(each.id, each.reason, each.subject, each.at, each.sha256, BEHIND)
        if each.fate in (READY, OVERTAKES) and decided.get(each.subject, each.id) != each.id
        else each
        for each in rows
    ]


def divided(
    store: Quarantine, selection: Selection, task: Task, reason: str, *, alone: int
) -> tuple[list[int], Row | None]:
    """Return the ids that this person may resolve now, and the proposal of the others, if any.

    Records both. At most `alone` rows of a person within 24 hours need no second person; a row that
    overtakes a newer decision always does.
    """
    ready = selection.of(READY) if _dismisses(task) else selection.of(READY, RECORDED)
    detail = _detail(selection, task, ready)
    if ready and store.begin_alone(task.verb, reason, detail, limit=min(alone, ALONE_ROWS_MAX)):
        rest = selection.of(OVERTAKES)
    else:
        rest, ready = sorted([*ready, *selection.of(OVERTAKES)], key=lambda e: e.order), []
    proposal = None
    if rest:
        proposal = store.propose(task.verb, MANY, _detail(selection, task, rest), reason)
    return [each.id for each in ready], proposal


def _dismisses(task: Task) -> bool:
    return task.resolution is QuarantineResolution.DISMISSED


def _detail(selection: Selection, task: Task, rows: Sequence[Judged]) -> Row:
    """Return what a proposal, or the audit row of a person alone, has of rows to resolve."""
    return {
        "filter": selection.filter,
        "rows": len(rows),
        "reasons": dict(Counter(each.reason for each in rows)),
        "ids": ranges(each.id for each in rows),
        "texts_sha256": _digest((each.id, each.sha256) for each in rows),
        "suppress_repeats": task.way.suppress_repeats,
        "into": task.way.into,
        "overtakes": {str(each.id): each.overtakes for each in rows if each.overtakes},
    }


def ranges(ids: Iterable[int]) -> str:
    """Return ids as text, in ascending order.

    >>> ranges([4, 3, 9, 5]), ids_in("3-5,9")
    ('3-5,9', [3, 4, 5, 9])
    """
    bounds: list[list[int]] = []
    for each in sorted(ids):
        if bounds and each == bounds[-1][1] + 1:
            bounds[-1][1] = each
        else:
            bounds.append([each, each])
    return ",".join(f"{low}-{high}" if low < high else str(low) for low, high in bounds)


def ids_in(text: str) -> list[int]:
    """Return the ids of a text that `ranges` wrote."""
    parts = [each.partition("-") for each in text.split(",")]
    return [n for low, _, high in parts for n in range(int(low), int(high or low) + 1)]


def _digest(rows: Iterable[tuple[int, str]]) -> str:
    lines = "".join(f"{number} {text_sha256}\n" for number, text_sha256 in sorted(rows))
    return hashlib.sha256(lines.encode()).hexdigest()


def resolve(
    store: Quarantine,
    dsn: str,
    ids: Sequence[int],
    task: Task,
    reason: str,
    *,
    write_lines: WriteLines,
    plan: Row | None = None,
) -> Iterator[PutBack]:
    """Resolve rows that `divided` returned, or those of an approved `plan`; yield each part's.

    A row that may no longer be resolved stays open, among those refused.
    """
    work = _Work(store, dsn, task, reason, write_lines, plan)
    for part in _parts(ids):
        yield work.resolved(part)


@dataclass(frozen=True, slots=True)
class _Work:
    """What resolves rows: those of a person alone, or of an approved `plan`."""

    store: Quarantine
    dsn: str
    task: Task
    reason: str
    write_lines: WriteLines
    plan: Row | None

    def resolved(self, ids: Sequence[int]) -> PutBack:
        """Resolve what is open of these rows, in their order."""
        rows = self.store.take(ids)
        before = resolved_among(rows)
        rows = [row for row in rows if row["resolution"] is None]
        if _dismisses(self.task):
            done, refused = self._dismissed([row["id"] for row in rows])
        elif rows:
            order = {number: place for place, number in enumerate(ids)}
            rows.sort(key=lambda row: order[row["id"]])
            done, refused = self._put_back(rows, before)
        else:
            done, refused = [], []
        return PutBack(done, refused, [], before)

    def _put_back(self, rows: list[Row], before: list[Row]) -> tuple[list[Row], list[Row]]:
        texts = {row["id"]: row["row"] for row in rows}
        way, store = self.task.way, self.store
        try:
            if way.into is not None:
                paths = put_lines(
                    *(store, texts, Path(way.into), self.reason, before, self.write_lines),
                    permit=self._permitted,
                )
                return [{"id": n, "detail": f"in {path}"} for n, path in paths.items()], []
            return put_entries(
                *(self.dsn, store, rows, texts, self.reason),
                suppress_repeats=way.suppress_repeats,
                before=before,
                permit=self._permitted,
            )
        except CommandError as error:
            if error.code != "already_resolved":
                raise
            before += resolved_among(store.take(list(texts)))
            return [], []

    @contextmanager
    def _permitted(self, row: Row, text: str) -> Iterator[Row]:
        """As `actions.Permit`."""
        store, way, plan = self.store, self.task.way, self.plan
        if plan is None:
            try:
                with allowed(store, row, text, way, None) as audited:
                    yield audited
            except CommandError as error:
                if error.code != "second_person_required":
                    raise
                raise RefusedAgain(f"{error}") from None
            return
        _require_open(store, plan)
        overtakes = store.overtakes(row, text, suppress_repeats=way.suppress_repeats)
        if overtakes != plan["detail"]["overtakes"].get(str(row["id"])) and not row.get("put_back"):
            raise RefusedAgain("the decisions of its subject have changed since it was proposed")
        yield {
            "kept": identity(row, row["row"]),
            "written": identity(row, text),
            "overtakes": overtakes,
            **_by(plan),
        }

    def _dismissed(self, ids: Sequence[int]) -> tuple[list[Row], list[Row]]:
        with self.store.locked(ids) as rows:
            if self.plan is not None:
                _require_open(self.store, self.plan)
            written = self.store.put_back(ids)
            left = [row["id"] for row in rows if row["id"] not in written]
            resolution, by = QuarantineResolution.DISMISSED, _by(self.plan)
            done = self.store.resolve(left, resolution, self.reason, by)
        refused = [{"id": n, "detail": "was put back already"} for n in written]
        return [{"id": n, "detail": "dismissed"} for n in done], refused


def _by(plan: Row | None) -> Row:
    if plan is None:
        return {}
    return {
        "proposal": plan["id"],
        "planned_by": plan["actor"],
        "approved_by": plan["approved_by"],
    }


def _require_open(store: Quarantine, plan: Row) -> None:
    """Lock a proposal; raise `CommandError` if it was cancelled, or applied by another process."""
    if not store.lock_open(plan["id"]):
        short = plan["id"].hex[:8]
        raise CommandError(
            f"proposal {short} was cancelled or applied meanwhile. What was resolved before stands;"
            f" see `holdfast proposal show {short}`.",
            code="proposal_not_open",
        )


def approved(store: Quarantine, id_: UUID, resolution: QuarantineResolution) -> tuple[Row, Task]:
    """Return an approved proposal of many rows, with `ids` in the order of writing, and its task.

    Raises `CommandError` for another proposal, one without an approval, and where the rows are not
    those that were approved.
    """
    plan = store.approved(id_, ACTIONS[resolution], MANY)
    detail: dict[str, Any] = plan["detail"]
    digests: list[tuple[int, str]] = []
    order: dict[int, datetime] = {}
    for part in _parts(ids_in(detail["ids"])):
        for row in store.take(part):
            digests.append((row["id"], sha256(row["row"])))
            place = placing(row, row["row"])
            order[row["id"]] = place.occurred_at if place else datetime.max.replace(tzinfo=UTC)
    if _digest(digests) != detail["texts_sha256"]:
        raise CommandError(
            f"the rows of proposal {id_.hex[:8]} are not those that were approved: the SHA-256 of"
            " their texts differs. Nothing was changed; cancel it, and find out who changed the"
            " table.",
            code="proposal_altered",
        )
    way = Way(suppress_repeats=detail["suppress_repeats"], into=detail["into"])
    ids = sorted(order, key=lambda number: (order[number], number))
    return {**plan, "ids": ids}, Task(resolution, way)


def finish(store: Quarantine, plan: Row) -> None:
    """Mark a proposal applied whose rows were all tried, unless another process did."""
    try:
        with store.applying(plan["id"], plan["verb"], MANY):
            pass
    except CommandError as error:
        if error.code != "proposal_not_open":
            raise


def _parts(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    return (ids[start : start + CHUNK] for start in range(0, len(ids), CHUNK))

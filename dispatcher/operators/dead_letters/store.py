"""Dead letters: reads, and dismissals by operators."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

from holdfast.dispatcher.operators.common import verbs
from holdfast.dispatcher.operators.common.session import OperatorSession, Row, actor
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.states import DeadReason

ATTEMPTS_SHOWN = 20

DISMISS = "dead.dismiss"
"""The action in the audit trail."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of dead letters; None means any."""

    endpoint: verbs.OfEndpoint = None
    subject: verbs.OfSubject = None
    reason: Annotated[
        DeadReason | None, verbs.Param("Only dead letters with this reason.", label="Died of")
    ] = None
    open: verbs.Open = True
    resolved: verbs.Resolved = False

    @property
    def unresolved(self) -> bool:
        """Whether only unresolved ones match."""
        return self.open and not self.resolved


class DeadLetters(OperatorSession):
    """Reads dead letters, and dismisses them."""

    def newest(self, wanted: Filter, *, limit: int, before: int | None = None) -> list[Row]:
        """Return dead letters without bodies, the newest first, with ids below `before`.

        Raises `CommandError` (nothing matched) for an unknown endpoint or subject.
        """
        parameters = {**self._scope(wanted), "limit": limit, "before": before}
        return self._with_reasons(self._all("dead_letters/list", parameters))

    @contextmanager
    def export(self, wanted: Filter) -> Iterator[tuple[int, Iterator[Row]]]:
        """Yield the count of dead letters, and these with bodies, the oldest first.

        A body is None when its partition was dropped. Raises `CommandError` (nothing matched) for
        an unknown endpoint or subject.
        """
        scope = self._scope(wanted)
        with self._export("dead_letters/count", "dead_letters/export", scope) as (count, rows):
            yield count, map(_with_key_text, rows)

    def one(self, number: int) -> Row:
        """Return a dead letter with its body, the count of what waits behind it, its attempts.

        Raises `CommandError` (nothing matched) for an unknown id.
        """
        [row] = self._with_reasons(self._taken([number]))
        tried = self._all("dead_letters/attempts", {**row, "limit": ATTEMPTS_SHOWN})
        return {**_without_ids(row), "newest_attempts": tried}

    def dismiss(
        self, ids: Sequence[int], reason: str, *, skip: bool
    ) -> tuple[list[Row], list[Row]]:
        """Dismiss dead letters; return those that were open, and those resolved before.

        A lane that one of them held continues after it, which `skip` permits. Raises `CommandError`
        and changes nothing for an unknown id, when all are resolved, and when one holds its lane
        and `skip` is not set.
        """
        with self._transaction():
            self._run("dead_letters/lock", {"ids": list(ids)})
            rows = self._taken(ids)
            before = [row for row in rows if row["resolution"] is not None]
            open_ = [row for row in rows if row["resolution"] is None]
            if not open_:
                raise CommandError(
                    "; ".join(f"dead letter {row['id']} is {resolved(row)}" for row in before)
                    + ". Nothing was changed.",
                    ExitCode.NOTHING_MATCHED,
                    code="already_resolved",
                )
            if not skip:
                _require_no_lane_held(open_)
            marked = {row["id"] for row in self._all("dead_letters/dismiss", _of(open_))}
            done = [row for row in open_ if row["id"] in marked]
            passed = {row["id"] for row in self._all("dead_letters/pass", _of(done))}
            for row in done:
                detail = {"key": row["key"], "endpoint": row["endpoint"], "skip": skip}
                self._audit(DISMISS, f"dead letter {row['id']}", reason, detail)
        return (
            [{**_without_ids(row), "lane_goes_on": row["id"] in passed} for row in done],
            [_without_ids(row) for row in before],
        )

    def _taken(self, ids: Sequence[int]) -> list[Row]:
        rows = self._all("dead_letters/take", {"ids": list(ids)})
        missing = sorted(set(ids) - {row["id"] for row in rows})
        if missing:
            raise CommandError(
                f"there is no dead letter {', '.join(map(str, missing))}. Nothing was changed; see"
                " `holdfast dead-letter list --all`.",
                ExitCode.NOTHING_MATCHED,
                code="unknown_dead_letter",
            )
        return [_with_key_text(row) for row in rows]

    def _scope(self, wanted: Filter) -> Row:
        found = self._one(
            "dead_letters/scope", {"endpoint": wanted.endpoint, "subject": wanted.subject}
        )
        for what, where in (("endpoint", "endpoint list"), ("subject", "entry list")):
            name = getattr(wanted, what)
            if name is not None and found[f"{what}_id"] is None:
                raise CommandError(
                    f"there is no {what} {name!r}; nothing was changed. Names are compared exactly:"
                    f" see `holdfast {where}`.",
                    ExitCode.NOTHING_MATCHED,
                    code="unknown_endpoint" if what == "endpoint" else "unknown_subject",
                )
        return {
            **found,
            "reason": wanted.reason,
            "open": wanted.unresolved,
            "resolved": wanted.resolved,
        }

    def _with_reasons(self, rows: list[Row]) -> list[Row]:
        """Add `resolution_reason`: the reason of a dismissal, else None."""
        targets = [f"dead letter {row['id']}" for row in rows if row["resolution"] is not None]
        reasons = self._reasons(targets, [DISMISS])
        return [
            {**_with_key_text(row), "resolution_reason": reasons.get(f"dead letter {row['id']}")}
            for row in rows
        ]


def resolved(row: Row) -> str:
    """Return how a dead letter was resolved, for a person."""
    return f"{row['resolution']} already, on {rfc3339(row['resolved_at'])} by {row['resolved_by']}"


def _require_no_lane_held(rows: list[Row]) -> None:
    holding = [row for row in rows if row["holds_lane"]]
    if holding:
        first = holding[0]
        raise CommandError(
            f"dead letter {first['id']} holds the lane of {first['subject']!r} at"
            f" {first['endpoint']!r}, with {first['waiting']} later entries behind it. After a"
            " dismissal the receiver never gets this decision, and gets the later ones without it."
            " Nothing was changed; add --skip if you want that, or send it again with `holdfast"
            f" redeliver {first['key']} --reason TEXT`.",
            ExitCode.USAGE,
            code="skip_required",
        )


def _of(rows: Sequence[Row]) -> Row:
    return {"ids": [row["id"] for row in rows], "actor": actor()}


def _with_key_text(row: Row) -> Row:
    key = row["key"]
    return row if isinstance(key, str) else {**row, "key": Key(key).text}


def _without_ids(row: Row) -> Row:
    return {name: value for name, value in row.items() if not name.endswith("_id")}

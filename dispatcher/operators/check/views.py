"""The result of a check, as JSON."""

from typing import Any

from holdfast.dispatcher.operators.check.rules import INVARIANT, MEANING, Checked, Rule, Violation
from holdfast.dispatcher.operators.check.store import Range


def as_rows(range_: Range, checked: Checked) -> dict[str, Any]:
    """Return the result as JSON can hold it."""
    return {
        "since": range_.since,
        "until": range_.until,
        "entries_since": range_.entries_since,
        "attempts_since": range_.attempts_since,
        "endpoint": range_.endpoint,
        "stream": range_.stream,
        "holds": checked.holds,
        "counted": dict(checked.counted),
        "oldest": checked.oldest,
        "violated": {rule.value: checked.violated[rule] for rule in violated(checked)},
        "rules": {
            rule.value: {"invariant": INVARIANT[rule], "meaning": MEANING[rule]}
            for rule in violated(checked)
        },
        "violations": [_row(each) for rule in violated(checked) for each in checked.kept[rule]],
        "violations_kept_of_each": checked.limit,
    }


def violated(checked: Checked) -> list[Rule]:
    """Return the rules that are violated, in their order."""
    return [rule for rule in Rule if checked.violated[rule]]


def _row(violation: Violation) -> dict[str, Any]:
    return {
        "rule": violation.rule.value,
        "endpoint": violation.endpoint,
        "subject": violation.subject,
        "sequence": violation.sequence,
        "key": violation.key,
        "stream": violation.stream,
        "batch_id": violation.batch_id,
        "detail": violation.detail,
    }

"""The answers of `holdfast why` as JSON."""

from typing import Any

from holdfast.dispatcher.operators.why.rules import Answer
from holdfast.dispatcher.operators.why.store import Explanation


def as_row(what: str, explanation: Explanation) -> dict[str, Any]:
    """Return the result as JSON can hold it."""
    only = None if explanation.answer is None else _row(explanation.answer)
    return {
        "asked": what,
        "verdict": explanation.verdict.value,
        "needs_a_person": explanation.needs_a_person,
        "entry": explanation.entry,
        "answer": only,
        "endpoints": [
            {
                "endpoint": each.endpoint,
                **_row(each.answer),
                "entry": each.entry,
                "facts": each.facts,
            }
            for each in explanation.at_endpoints
        ],
        "notes": explanation.notes,
    }


def _row(answer: Answer) -> dict[str, Any]:
    head, holder = answer.behind, answer.holder
    return {
        "verdict": answer.verdict.value,
        "needs_a_person": answer.needs_a_person,
        "sentence": answer.sentence,
        "also": list(answer.also),
        "command": answer.command,
        "behind": head and {"key": head.key, "sequence": head.sequence, **_row(head.answer)},
        "holder": holder
        and {
            "pid": holder.pid,
            "application": holder.application,
            "state": holder.state,
            "seconds": holder.seconds,
            "query": holder.query,
        },
    }

"""The answers of `holdfast why` as JSON."""

from typing import Any

from holdfast.dispatcher.operators.why.rules import Answer
from holdfast.dispatcher.operators.why.store import Explained


def as_row(what: str, found: Explained) -> dict[str, Any]:
    """Return the result as JSON can hold it."""
    alone = None if found.answer is None else _row(found.answer)
    return {
        "asked": what,
        "verdict": found.verdict.value,
        "needs_a_person": found.needs_a_person,
        "entry": found.entry,
        "answer": alone,
        "endpoints": [
            {
                "endpoint": each.endpoint,
                **_row(each.answer),
                "entry": each.entry,
                "facts": each.facts,
            }
            for each in found.at_endpoints
        ],
        "notes": found.notes,
    }


def _row(answer: Answer) -> dict[str, Any]:
    ahead, holder = answer.behind, answer.holder
    return {
        "verdict": answer.verdict.value,
        "needs_a_person": answer.needs_a_person,
        "sentence": answer.sentence,
        "also": list(answer.also),
        "command": answer.command,
        "behind": ahead and {"key": ahead.key, "sequence": ahead.sequence, **_row(ahead.answer)},
        "holder": holder
        and {
            "pid": holder.pid,
            "application": holder.application,
            "state": holder.state,
            "seconds": holder.seconds,
            "query": holder.query,
        },
    }

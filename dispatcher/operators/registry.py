"""The declared groups of verbs, by the first word of their commands."""

from collections.abc import Iterator
from importlib import import_module

from holdfast.dispatcher.operators.common.verbs import Group

_MODULES = {
    "audit": "audit.verbs",
    "batch": "streams.batches",
    "database": "database.verbs",
    "dead-letter": "dead_letters.verbs",
    "decide": "decisions.verbs",
    "dispatcher": "dispatchers.verbs",
    "entry": "cancellations.verbs",
    "late-event": "late_events.verbs",
    "proposal": "proposals.verbs",
    "quarantine": "quarantine.verbs",
    "redeliver": "replays.redelivery",
    "reissue": "reissue.verbs",
    "replay": "replays.verbs",
    "stream": "streams.verbs",
    "subject": "subjects.hold_verbs",
    "suppressed": "suppressed.verbs",
    "token": "tokens.verbs",
    "triage": "triage.verbs",
}


ALIASES = {
    "entries": "entry",
    "attempts": "attempt",
    "subjects": "subject",
    "dispatchers": "dispatcher",
    "dead": "dead-letter",
    "late": "late-event",
}
"""First words of commands in earlier versions, which continue to work."""


def group(word: str) -> Group:
    """Return a declared group; only its module is imported, for short commands."""
    declared: Group = import_module(f"holdfast.dispatcher.operators.{_MODULES[word]}").GROUP
    return declared


def groups() -> Iterator[Group]:
    """Return every declared group."""
    return map(group, _MODULES)

"""The declared groups of verbs, by the first word of their commands."""

from collections.abc import Iterator
from importlib import import_module

from holdfast.dispatcher.operators.common.verbs import Group

_MODULES = {
    "audit": "audit.verbs",
    "batch": "streams.batches",
    "database": "database.verbs",
    "dead": "dead_letters.verbs",
    "dispatchers": "dispatchers.verbs",
    "entries": "entries.verbs",
    "late": "late_events.verbs",
    "proposal": "proposals.verbs",
    "quarantine": "quarantine.verbs",
    "redeliver": "replays.redelivery",
    "reissue": "reissue.verbs",
    "replay": "replays.verbs",
    "stream": "streams.verbs",
    "subjects": "subjects.verbs",
    "suppressed": "suppressed.verbs",
    "token": "tokens.verbs",
}


def group(word: str) -> Group:
    """Return a declared group; only its module is imported, for short commands."""
    declared: Group = import_module(f"holdfast.dispatcher.operators.{_MODULES[word]}").GROUP
    return declared


def groups() -> Iterator[Group]:
    """Return every declared group."""
    return map(group, _MODULES)

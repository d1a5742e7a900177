"""Keys of entries, as a person writes them."""

from collections.abc import Sequence
from uuid import UUID

from dispatcher.operators.replays.filter import KEYS_MAX
from sink.contract.canonical import NotCanonical
from sink.contract.exits import CommandError, ExitCode
from sink.contract.key import Key


def keys_of(texts: Sequence[str]) -> tuple[UUID, ...]:
    """Return keys, each once; raises `CommandError` (usage) for what is none."""
    try:
        return tuple(dict.fromkeys(Key.parse(text).digest for text in texts))
    except NotCanonical as error:
        raise CommandError(f"{error}. Nothing was changed.", ExitCode.USAGE) from None


def few_keys_of(texts: Sequence[str]) -> tuple[UUID, ...]:
    """Return keys as `keys_of` does; raises `CommandError` (usage) for more than a filter takes."""
    wanted = keys_of(texts)
    if len(wanted) > KEYS_MAX:
        raise CommandError(
            f"{len(wanted)} keys are too many, {KEYS_MAX} at most. Nothing was changed; use"
            " `holdfast replay plan` with a time, a batch or a state.",
            ExitCode.USAGE,
        )
    return wanted

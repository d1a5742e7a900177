"""Who somebody is, and what one person may do alone. Pure."""

import re
from collections.abc import Mapping
from typing import Any, Final

ALONE_MAX: Final = 10
"""Business actions that one person may repeat alone within 24 hours, where nothing else is set."""

TOKEN: Final = "token "  # noqa: S105 - how actors that act by a token are named
OWNER: Final = re.compile(r"[a-z0-9][a-z0-9_.@+-]{0,126}")
"""As ck_access_token_owner: ASCII in lower case, so that no two spellings look alike."""


def person_of(actor: str) -> str:
    """Return the person of a login name, or of an actor that is recorded without its person.

    >>> person_of("token alice"), person_of(" Alice ")
    ('alice', 'alice')
    """
    return " ".join(actor.removeprefix(TOKEN).split()).casefold()


def needs_approval(asked: int, used: int, limit: int) -> bool:
    """Return whether `asked` repeated actions, after `used` in 24 hours, need a second person."""
    return asked > 0 and used + asked > limit


def lacks_approval(row: Mapping[str, Any]) -> bool:
    """Return whether a plan, as `Replays.show` has it, waits for a second person."""
    return bool(row["counts"].get("needs_approval")) and row["approved_by"] is None

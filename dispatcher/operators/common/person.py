"""Who acts, and what one person may do alone. Pure."""

import re
from collections.abc import Mapping
from typing import Any, Final

ALONE_MAX: Final = 10
"""Default of the business actions that one person may repeat alone within 24 hours."""

TOKEN: Final = "token "  # noqa: S105 - the prefix of an actor that acts by a token
OWNER: Final = re.compile(r"[a-z0-9][a-z0-9_.@+-]{0,126}")
"""As ck_access_token_owner: lower-case ASCII, so that no two names look alike."""


def person_of(actor: str) -> str:
    """Return the person of a login name, or of an actor that is recorded without its person.

    >>> person_of("token alice"), person_of(" Alice ")
    ('alice', 'alice')
    """
    return " ".join(actor.removeprefix(TOKEN).split()).casefold()


def needs_approval(actions: int, used: int, limit: int) -> bool:
    """Return whether repeating `actions`, after `used` in 24 hours, needs a second person."""
    return actions > 0 and used + actions > limit


def lacks_approval(row: Mapping[str, Any]) -> bool:
    """Return whether a plan, a row of `Replays.show`, waits for a second person."""
    return bool(row["counts"].get("needs_approval")) and row["approved_by"] is None

"""The screens, in the order of the menu."""

from typing import NamedTuple


class Screen(NamedTuple):
    """One of the menu: its name, where it is, and the key that follows `g`."""

    name: str
    path: str
    key: str
    group: str


SCREENS = (
    Screen("Overview", "/", "o", "Now"),
    Screen("Entries", "/entries", "e", "Decisions"),
    Screen("Subjects", "/subjects", "s", "Decisions"),
    Screen("Batches", "/batches", "b", "Decisions"),
    Screen("Quarantine", "/quarantine", "q", "Decisions"),
    Screen("Suppressed", "/suppressed", "u", "Decisions"),
    Screen("Dead letters", "/dead", "d", "Delivery"),
    Screen("Replays", "/replays", "r", "Delivery"),
    Screen("Endpoints", "/endpoints", "n", "Delivery"),
    Screen("Dispatchers", "/dispatchers", "i", "System"),
    Screen("Database", "/database", "t", "System"),
    Screen("Audit", "/audit", "a", "System"),
)

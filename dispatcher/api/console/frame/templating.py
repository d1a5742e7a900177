"""The templates, the static files that pages load, and the menu."""

import hashlib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from holdfast.dispatcher.api.console.rendering import filters
from holdfast.dispatcher.operators.entries.store import SCAN_MAX

HERE = Path(__file__).parents[1]
STATIC = HERE / "static"
HASH_DIGITS = 12
IMMUTABLE = "public, max-age=31536000, immutable"


class Screen(NamedTuple):
    """An item of the menu: its name, its path, the key to press after `g`, and its group."""

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


class Files(StaticFiles):
    """Static files; a browser caches one that is requested with its hash."""

    def __init__(self) -> None:
        super().__init__(directory=STATIC)

    async def get_response(self, path: str, scope: Any) -> Response:
        """Return a file."""
        answer = await super().get_response(path, scope)
        if scope["query_string"].startswith(b"v="):
            answer.headers["Cache-Control"] = IMMUTABLE
        return answer


@cache
def asset(name: str) -> str:
    """Return the URL of a static file; it contains a hash of the content."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:HASH_DIGITS]
    return f"/static/{name}?v={digest}"


@cache
def environment() -> Environment:
    """Return the template environment: all values are escaped, and an unknown name is an error."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=filters.finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(filters.ALL)
    made.globals.update(
        asset=asset,
        entries_scanned=SCAN_MAX,
        link=filters.link,
        screens=SCREENS,
        shapes=filters.SHAPES,
        page_of=filters.page_of,
        detail_text=filters.detail_text,
    )
    return made

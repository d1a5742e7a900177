"""The templates, and the files that pages load."""

import hashlib
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from dispatcher.api.console.frame.navigation import SCREENS
from dispatcher.api.console.rendering import filters

HERE = Path(__file__).parents[1]
STATIC = HERE / "static"
HASH_DIGITS = 12


@cache
def asset(name: str) -> str:
    """Return the address of a static file; it changes with the file."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:HASH_DIGITS]
    return f"/static/{name}?v={digest}"


def link(path: str, **query: Any) -> str:
    """Return an address; what is None or empty is left out of its query.

    >>> link("/entries", subject="a b", type=None)
    '/entries?subject=a+b'
    """
    given = {name: value for name, value in query.items() if value is not None and value != ""}
    return f"{quote(path)}?{urlencode(given)}" if given else quote(path)


@cache
def environment() -> Environment:
    """Return the templates: everything is escaped, and a name that is unknown is an error."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=filters.finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(filters.ALL)
    made.globals.update(asset=asset, link=link, screens=SCREENS, shapes=filters.SHAPES)
    return made

"""A walk over every screen of the console: by its links, in a browser, with what was seen there."""

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, urljoin, urlsplit

from fastapi.routing import APIRoute

from holdfast.dispatcher.api.console import routes
from tests.support.console.browser import HEIGHT, NARROW, WIDTH, Window

INSPECT = Path(__file__).with_name("browser_inspect.js").read_text()
BEYOND = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")

ROUTES = [
    route
    for router in routes.ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute) and "GET" in route.methods
]
"""Every page of the console, in the order in which addresses are matched."""


@dataclass
class Visit:
    """One page as it was seen, and how far it reaches beyond the right edge, in pixels."""

    address: str
    route: str
    status: int
    seen: dict[str, Any] = field(repr=False)
    beyond: int
    beyond_narrow: int = 0
    """Of the first page of each kind, in a narrow window."""

    faint: dict[str, list[str]] = field(default_factory=dict)
    """Text that is hard to read, by theme; of the first page of each route."""


def route_of(address: str) -> str:
    """Return the pattern that an address matches; "" for one that is no page of the console."""
    path = urlsplit(address).path
    return next((each.path for each in ROUTES if each.path_regex.fullmatch(path)), "")


def walk(
    window: Window, begin: Iterable[str], *, closely: bool, pictures: Path | None = None
) -> list[Visit]:
    """Follow links from `begin` to a page of each kind, or `closely` to two.

    Of a kind are pages of one route whose addresses have the same parameters. A close look is also
    one in both themes and in a narrow window; `pictures` is the folder for pictures of the first
    page of each route.
    """
    return list(_visits(window, deque(begin), closely, pictures))


def _visits(
    window: Window, ahead: deque[str], closely: bool, pictures: Path | None
) -> Iterator[Visit]:
    known, kinds, drawn = set(ahead), Counter[tuple[str, ...]](), set[str]()
    while ahead:
        address = ahead.popleft()
        kind = _kind(address)
        kinds[kind] += 1
        if kinds[kind] > 1 + closely:
            continue
        visit = _look(window, address)
        new = visit.route not in drawn
        picture = pictures / _name(visit.route) if pictures and new else None
        if new and closely:
            _draw(window, visit, picture)
        if kinds[kind] == 1 and closely:
            _squeeze(window, visit, picture)
        drawn.add(visit.route)
        yield visit
        for link in visit.seen["links"]:
            url = urljoin(address, link).partition("#")[0]
            if url not in known and link.startswith("/"):
                known.add(url)
                ahead.append(url)


def _kind(address: str) -> tuple[str, ...]:
    names = sorted({name for name, _ in parse_qsl(urlsplit(address).query)})
    return (route_of(address), *names)


def _name(route: str) -> str:
    return "-".join(re.findall(r"[a-z]+", route)) or "overview"


def _look(window: Window, address: str) -> Visit:
    answer = window.page.goto(address)
    assert answer is not None
    seen, beyond = window.page.evaluate(INSPECT), window.page.evaluate(BEYOND)
    return Visit(address, route_of(address), answer.status, seen, beyond)


def _draw(window: Window, visit: Visit, picture: Path | None) -> None:
    for theme in THEMES:
        window.page.emulate_media(color_scheme=theme)
        visit.faint[theme] = window.page.evaluate(INSPECT)["faint"]
        _keep(window, picture, theme)
    window.page.emulate_media(color_scheme="light")


def _squeeze(window: Window, visit: Visit, picture: Path | None) -> None:
    window.page.set_viewport_size({"width": NARROW, "height": HEIGHT})
    visit.beyond_narrow = window.page.evaluate(BEYOND)
    _keep(window, picture, "narrow")
    window.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})


def _keep(window: Window, picture: Path | None, kind: str) -> None:
    if picture is not None:
        path = picture.with_name(f"{picture.name}.{kind}.jpg")
        window.page.screenshot(path=path, full_page=True, type="jpeg", quality=85)

"""The console for tests: somebody logged in, as a browser without scripts sees it."""

import html
import re
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from tests.support.console.admin_api import Api

CSRF = re.compile(r'name="csrf" value="([0-9a-f]{64})"')
TAGS = re.compile(r"<[^>]*>")


@contextmanager
def logged_in(api: Api, role: str = "admin") -> Iterator[httpx.Client]:
    """Log in with a role's token."""
    with httpx.Client(base_url=api.url, timeout=60) as browser:
        answer = browser.post("/login", data={"token": api.secrets[role], "next": "/"})
        assert answer.status_code == 303, answer.text
        yield browser


def csrf_of(page: httpx.Response) -> str:
    """Return the token that the page's forms carry."""
    match = CSRF.search(page.text)
    assert match is not None, page.text
    return match[1]


def text_of(page: httpx.Response) -> str:
    """Return what a page says, without its tags, with single spaces."""
    return " ".join(html.unescape(TAGS.sub(" ", page.text)).split())


def link_to(page: httpx.Response, name: str) -> str | None:
    """Return where the link of this name leads, if it is there."""
    match = re.search(rf'<a [^>]*href="([^"]*)"[^>]*>{re.escape(name)}</a>', page.text)
    return None if match is None else html.unescape(match[1])

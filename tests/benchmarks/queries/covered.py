"""Checks that every page and every read of the API is measured."""

import re
from collections.abc import Iterable

from fastapi.routing import APIRoute

from holdfast.dispatcher.api.app import application
from holdfast.dispatcher.api.console import routes
from holdfast.dispatcher.api.console.frame import login
from holdfast.dispatcher.api.settings import ApiSettings
from tests.benchmarks.queries.query import Query
from tests.benchmarks.queries.reads import LONG

PARAMETER = re.compile(r"\{[^}]+\}")
PROBES = ("/metrics", "/healthz")


def missed(queries: Iterable[Query]) -> list[str]:
    """Return the paths of routes that none of the queries goes to; files and probes are none."""
    left = {*_pages(), *_reads()}
    asked = {each.ask[0].partition("?")[0] for each in queries if each.kind != "cli"} | LONG
    # A path that is written out comes before one with a parameter in its place.
    order = sorted(left, key=lambda path: len(PARAMETER.findall(path)))
    for path in asked:
        for route in order:
            if re.fullmatch(PARAMETER.sub("[^/]+", route), path):
                left.discard(route)
                break
    return sorted(left)


def _pages() -> Iterable[str]:
    for router in (login.router, *routes.ROUTERS):
        for route in router.routes:
            if isinstance(route, APIRoute) and "GET" in route.methods:
                yield route.path


def _reads() -> Iterable[str]:
    for path, methods in application(ApiSettings("")).openapi()["paths"].items():
        if "get" in methods and not path.startswith(PROBES):
            yield path

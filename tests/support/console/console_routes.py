"""Every address of the console, with names of what `api_world` has."""

import re
from uuid import UUID

from fastapi.routing import APIRoute

from holdfast.dispatcher.api.console import routes
from holdfast.dispatcher.api.console.frame import login
from tests.support.console.api_world import key_text

NAMES = {
    "key": key_text("m_1"),
    "id": str(UUID(int=1)),
    "id_": str(UUID(int=1)),
    "number": "1",
    "name": "payouts",
    "do": "pause",
}

PATHS = {
    (method, route.path)
    for router in (login.router, *routes.ROUTERS)
    for route in router.routes
    if isinstance(route, APIRoute)
    for method in route.methods
}
CHANGES = sorted(path for method, path in PATHS if method == "POST" and path != "/login")
PAGES = sorted(path for method, path in PATHS if method == "GET" and path != "/login")


def filled(path: str) -> str:
    """Return the address of something that is there, or could be."""
    return re.sub(r"\{(\w+)\}", lambda match: NAMES[match[1]], path)

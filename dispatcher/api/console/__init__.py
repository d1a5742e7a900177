"""The operators' console: pages rendered on the server, filters in the URL."""

from fastapi import FastAPI

from holdfast.dispatcher.api.console import routes
from holdfast.dispatcher.api.console.frame import errors, guard, login, templating
from holdfast.dispatcher.api.console.routes import live


def install(app: FastAPI) -> None:
    """Add the console's pages to the application."""
    guard.install(app)
    live.install(app)
    for router in (login.router, *routes.ROUTERS):
        app.include_router(router, include_in_schema=False)
    app.mount("/static", templating.Files(), name="static")
    errors.install(app)

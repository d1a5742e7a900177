"""The application: the API under /api/v1, the console under /, health and metrics endpoints."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import APIRouter, Depends, FastAPI, Request
from starlette.concurrency import run_in_threadpool

from holdfast.dispatcher.api import console, health, metrics, problems, routes
from holdfast.dispatcher.api.access import Failures, bearer_of, is_doubtful
from holdfast.dispatcher.api.console.frame.guard import LOGIN_PATH, person
from holdfast.dispatcher.api.long_reads import ExclusiveRun
from holdfast.dispatcher.api.requests import no_others
from holdfast.dispatcher.api.settings import ApiSettings
from holdfast.dispatcher.api.shield import Shield
from holdfast.dispatcher.operators.common.pool import OperatorPool

PREFIX = "/api/v1"


def _authenticate(request: Request) -> bool:
    """Return True for a caller with a token or a login; False where the body has the token.

    Raises what the route would raise, and raises it before the body is read.
    """
    if request.url.path.startswith(PREFIX):
        bearer_of(request)
    elif request.url.path == LOGIN_PATH:
        return False
    else:
        person(request)
    return True


def _is_doubtful(request: Request) -> bool:
    return request.url.path.startswith(PREFIX) and is_doubtful(request)


def application(settings: ApiSettings) -> FastAPI:
    """Return the application. It connects to the database when it starts."""
    pool = OperatorPool(settings.dsn, settings.connections)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        pool.open()
        try:
            yield
        finally:
            await run_in_threadpool(pool.close)

    app = FastAPI(
        title="Holdfast",
        version=version("holdfast"),
        summary="See it, explain it, replay it.",
        lifespan=lifespan,
        docs_url=None,  # its page loads scripts from another origin
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.settings = settings
    app.state.pool = pool
    app.state.failures = Failures()
    app.state.long_reads = ExclusiveRun()
    problems.install(app)
    health.install(app, pool)
    api = APIRouter(prefix=PREFIX, dependencies=[Depends(no_others)], responses=problems.RESPONSES)
    for router in routes.ROUTERS:
        api.include_router(router)
    app.include_router(api)
    console.install(app)
    problems.describe(app)
    app.add_middleware(
        Shield, settings=settings, authenticate=_authenticate, is_doubtful=_is_doubtful
    )
    # The outermost middleware, so that requests refused by the shield are counted too.
    metrics.install(app, pool.counts, PREFIX)
    return app

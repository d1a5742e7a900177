"""No parameter that a route does not know, or that nothing can match.

A filter with a typo is no filter, and the database holds no text with a NUL character.
"""

from http import HTTPStatus

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException


def no_others(request: Request) -> None:
    """Refuse a parameter that the route does not know, or is there twice, or has a NUL (422)."""
    route = request.scope["route"]
    known = _names(route.dependant) if isinstance(route, APIRoute) else set()
    names = [name for name, _ in request.query_params.multi_items()]
    odd = sorted({name for name in names if name not in known or names.count(name) > 1})
    if odd:
        raise HTTPException(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            f"query parameters that are unknown here or repeated: {len(odd)}, the first is"
            f" {odd[0][:100]!r}. This takes {', '.join(sorted(known)) or 'none'}. Nothing was"
            " changed.",
        )
    if any("\0" in value for value in request.query_params.values()):
        raise HTTPException(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "a text has no NUL character. Nothing was changed; correct the address.",
        )


def _names(dependant: Dependant) -> set[str]:
    own = {field.alias for field in dependant.query_params}
    return own.union(*(_names(each) for each in dependant.dependencies))

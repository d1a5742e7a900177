"""Subjects: listed, shown, explained, repaired.

A name may contain any character, so it is a query parameter and not a part of the path.
"""

from typing import Annotated

from fastapi import APIRouter, Query

from holdfast.dispatcher.api import verbs
from holdfast.dispatcher.api.access import Viewer
from holdfast.dispatcher.api.requests import Name, Number, Text
from holdfast.dispatcher.api.routes.why import Why, explaining
from holdfast.dispatcher.operators import registry
from holdfast.dispatcher.operators.why.store import Why as Explains

GROUP = registry.group("subject")
FIRST = (GROUP["list"], GROUP["show"])
"""Before the route of this module, as the description has them; the others after it."""

router = APIRouter(prefix=GROUP.path, tags=[GROUP.tag])
for _verb in FIRST:
    verbs.add(router, _verb)

SubjectName = Annotated[Text, Query(description="The exact name of the subject.", min_length=1)]


@router.get("/named/why", summary="Explain a subject.")
def explain_subject(
    session: Viewer,
    name: SubjectName,
    sequence: Annotated[
        Number | None, Query(description="Only the entry with this sequence.")
    ] = None,
    endpoint: Annotated[Name | None, Query(description="Only this endpoint.")] = None,
) -> Why:
    """Return what it waits for: the head of its lane at each endpoint, or one entry."""
    with explaining(session, Explains) as store:
        if sequence is None:
            found = store.explain_subject(name, endpoint)
        else:
            found = store.explain_sequence(name, sequence, endpoint)
    return Why.of(name, found)


for _verb in GROUP.verbs:
    if _verb not in FIRST:
        verbs.add(router, _verb)

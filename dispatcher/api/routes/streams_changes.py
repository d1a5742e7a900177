"""Streams: another checkpoint accepted."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path
from pydantic import Field

from dispatcher.api.access import Admin
from dispatcher.api.models import Given, Reason
from dispatcher.api.paging import Text
from dispatcher.api.shapes import Shown, Time
from dispatcher.operators.streams.store import Streams

router = APIRouter(prefix="/streams", tags=["streams"])


class Adoption(Given):
    """A checkpoint whose batches are accepted from now on."""

    query_id: Annotated[UUID, Field(strict=False)] = Field(
        description="The id in the new checkpoint's `metadata` file."
    )
    force: bool = Field(
        False,
        description="Believe the id, though the stream has no batch of it. The server looks into no"
        " checkpoint: the command does.",
    )
    reason: Reason


class AdoptedStream(Shown):
    """A stream, and the query id that it accepts."""

    name: str
    query_id: UUID | None
    previous_query_id: UUID | None
    epoch: int
    adopted_at: Time | None
    changed: bool = Field(description="False: it was so already.")


@router.post("/{name:path}/adopt", summary="Accept batches of another checkpoint.")
def adopt_checkpoint(
    session: Admin, name: Annotated[Text, Path(description="Of the stream.")], given: Adoption
) -> AdoptedStream:
    """Decisions made before keep their keys: none repeats. The run in progress is fenced."""
    with session.open(Streams) as store:
        row = store.adopt(
            name, given.query_id, given.reason, found_in=lambda _: None, force=given.force
        )
    return AdoptedStream.model_validate(row)

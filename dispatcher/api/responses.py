"""What answers are made of. Times are RFC 3339 in UTC, keys as receivers get them, numbers whole.

Amounts of money are in minor units (cents), as in the bodies.
"""

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, Field, PlainSerializer, WithJsonSchema

from sink.contract.canonical import rfc3339

Time = Annotated[
    datetime,
    PlainSerializer(rfc3339, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
KeyText = Annotated[str, Field(description="The key as receivers get it: hf_...")]
Seconds = Annotated[float, Field(description="In seconds.")]
Count = Annotated[int, Field(ge=0)]
Json = dict[str, Any]


class ResponseModel(BaseModel):
    """An answer, or a part of one."""


class Receipt(ResponseModel):
    """What a receiver says of a key, signed by it and verified by us."""

    outcome: str = Field(description="`applied`, `duplicate` or `stale`.")
    applied_at: str = Field(description="By the receiver's clock, as it wrote it.")


class Paged(ResponseModel):
    """A page; the rows stand beside it."""

    next_before: str | None = Field(
        description="`before` of the next page; null where nothing is left."
    )


class PagedByNumber(ResponseModel):
    """A page of what has numbers; the rows stand beside it."""

    next_before: int | None = Field(
        description="`before` of the next page; null where nothing is left."
    )

"""Types that responses share. Times are RFC 3339 in UTC, keys are as receivers get them.

Amounts of money are in minor units (cents), as in the bodies.
"""

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, Field, PlainSerializer, WithJsonSchema

from holdfast.sink.contract.canonical import rfc3339

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
    """A response, or a part of one."""


class Receipt(ResponseModel):
    """A receiver's receipt for a key: signed by the receiver, verified by the dispatcher."""

    outcome: str = Field(description="`applied`, `duplicate` or `stale`.")
    applied_at: str = Field(description="By the receiver's clock, unparsed.")


class OnePage(ResponseModel):
    """A list that has one page; a subclass adds its rows."""

    next_before: None = Field(default=None, description="Null: there is one page.")


class Paged(ResponseModel):
    """A page; a subclass adds its rows."""

    next_before: str | None = Field(
        description="`before` of the next page; null if this is the last."
    )


class PagedByNumber(ResponseModel):
    """A page of rows with ids; a subclass adds its rows."""

    next_before: int | None = Field(
        description="`before` of the next page; null if this is the last."
    )

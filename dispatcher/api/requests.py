"""What requests have in common: query parameters and members of bodies. Invalid ones get 422.

A list is paged by position: `next_before` of one page is `before` of the next. Rows written in
between shift nothing, so no row comes twice and none is omitted.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Query, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
)
from starlette.exceptions import HTTPException

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.numbers import whole_number


def storable(text: str) -> str:
    """Return a text that the database can hold; raises `ValueError` for any other.

    It has no NUL character and no half of a surrogate pair.
    """
    text.encode()
    if "\0" in text:
        raise ValueError("a text must not contain a NUL character")
    return text


Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]{0,62}$")]

TEXT = r"^[^\x00-\x08\x0b-\x1f\x7f]*$"
"""No control characters except tab and line feed, because the audit trail is read on terminals."""

Reason = Annotated[
    str,
    StringConstraints(min_length=1, max_length=2000, strip_whitespace=True, pattern=TEXT),
    AfterValidator(storable),
    Field(description="Why; kept in the audit trail."),
]

Ids = Annotated[
    list[Annotated[int, Field(ge=1, le=2**63 - 1)]],
    Field(min_length=1, max_length=1000, description="Ids, as the list shows them."),
]

Keys = Annotated[
    list[Annotated[str, StringConstraints(pattern="^hf_[0-9a-f]{32}$")]],
    Field(min_length=1, max_length=1000, description="Keys as receivers get them: hf_..."),
]


Rate = Annotated[
    int,
    Field(
        ge=1,
        le=1_000_000,
        description="Maximum number of entries per second, over all dispatchers.",
    ),
]


class RequestBody(BaseModel):
    """A request body. Unknown members and values of another type are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Because(RequestBody):
    """A body that contains only the reason."""

    reason: Reason


LIMIT_MAX = 500

NUMBER_MAX = 2**63 - 1

NAME_CHARACTERS_MAX = 1024

YEARS = range(1970, 9999)


def _written_out(value: object) -> object:
    """Refuse a number, which would be parsed as seconds since 1970, and a date without a time."""
    if not isinstance(value, str) or "T" not in value.upper():
        raise ValueError("a time must be written with its zone: 2026-11-02T12:15:00Z")
    return value


def _digits(value: object) -> object:
    return whole_number(value) if isinstance(value, str) else value


def _in_utc(moment: datetime) -> datetime:
    if moment.year not in YEARS:
        raise ValueError(f"a time must be in the years {YEARS[0]} to {YEARS[-1]}")
    return moment.astimezone(UTC)


Text = Annotated[str, AfterValidator(storable), Field(max_length=NAME_CHARACTERS_MAX)]
"""A name or a type, compared exactly."""

DIGITS = BeforeValidator(_digits)
"""Of a number in a URL: digits and nothing else."""

Limit = Annotated[int, Field(ge=1, le=LIMIT_MAX, description="Maximum number of rows."), DIGITS]

Number = Annotated[int, Field(ge=1, le=NUMBER_MAX), DIGITS]

BatchId = Annotated[int, Field(ge=0, le=NUMBER_MAX, description="Spark's batch id."), DIGITS]

KeyText = Annotated[
    str, Field(pattern="^hf_[0-9a-f]{32}$", description="The key as receivers get it: hf_...")
]

Cursor = Annotated[
    str,
    Field(
        pattern=r"^[0-9]{1,18}(\.[0-9]{1,18}){2,4}$",
        description="`next_before` of the page before this one.",
    ),
]

NumberBefore = Annotated[
    int,
    Field(ge=1, le=NUMBER_MAX, description="`next_before` of the page before this one."),
    DIGITS,
]

Moment = Annotated[AwareDatetime, BeforeValidator(_written_out), AfterValidator(_in_utc)]
"""RFC 3339 with a zone; converted to UTC."""

AskBody = Annotated[
    bool,
    Query(
        description="Include bodies and receivers' responses. Requires the role operator and is"
        " recorded in the audit trail."
    ),
]


@dataclass(frozen=True, slots=True)
class Between:
    """A time range from `since` (inclusive) to `until` (exclusive); None: open on that side."""

    since: datetime | None
    until: datetime | None


def _between(
    since: Annotated[
        Moment | None, Query(description="Start, inclusive (RFC 3339 with a zone).")
    ] = None,
    until: Annotated[
        Moment | None, Query(description="End, exclusive (RFC 3339 with a zone).")
    ] = None,
) -> Between:
    if since is not None and until is not None and since >= until:
        raise CommandError(
            "`since` must be before `until`. Nothing was changed.",
            ExitCode.USAGE,
            code="invalid_time_range",
        )
    return Between(since, until)


Times = Annotated[Between, Depends(_between)]


def no_others(request: Request) -> None:
    """Refuse a query parameter that is unknown to the route, repeated, or contains a NUL (422)."""
    route = request.scope["route"]
    known = _names(route.dependant) if isinstance(route, APIRoute) else set()
    names = [name for name, _ in request.query_params.multi_items()]
    odd = sorted({name for name in names if name not in known or names.count(name) > 1})
    if odd:
        raise HTTPException(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            f"unknown or repeated query parameters: {len(odd)}, the first is {odd[0][:100]!r}."
            f" Accepted are: {', '.join(sorted(known)) or 'none'}. Nothing was changed.",
        )
    if any("\0" in value for value in request.query_params.values()):
        raise HTTPException(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "a text must not contain a NUL character. Nothing was changed; correct the address.",
        )


def _names(dependant: Dependant) -> set[str]:
    own = {field.alias for field in dependant.query_params}
    return own.union(*(_names(each) for each in dependant.dependencies))

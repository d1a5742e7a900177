"""Parameters that many reads share: pages, times, keys, names. What does not fit is refused (422).

A list is read by places: `next_before` of one page is `before` of the next. What is written
meanwhile moves nothing, so that no row comes twice and none is left out.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, Query
from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field

from sink.contract.canonical import NotCanonical
from sink.contract.exits import CommandError, ExitCode
from sink.contract.key import Key

LIMIT_MAX = 500
NUMBER_MAX = 2**63 - 1
NAME_CHARACTERS_MAX = 1024

YEARS = range(1970, 9999)


def _text(given: str) -> str:
    """Refuse what the database cannot hold."""
    given.encode()
    if "\0" in given:
        raise ValueError("a text has no NUL character")
    return given


def _written_out(given: object) -> object:
    """Refuse a number that would be read as seconds since 1970, and a day without a time."""
    if not isinstance(given, str) or "T" not in given.upper():
        raise ValueError("a time is written out, with its zone: 2026-11-02T12:15:00Z")
    return given


def _in_utc(given: datetime) -> datetime:
    if given.year not in YEARS:
        raise ValueError(f"a time is in the years {YEARS[0]} to {YEARS[-1]}")
    return given.astimezone(UTC)


Text = Annotated[str, AfterValidator(_text), Field(max_length=NAME_CHARACTERS_MAX)]
"""A name or a type, compared to the letter."""

Limit = Annotated[int, Field(ge=1, le=LIMIT_MAX, description="As many rows at most.")]
Number = Annotated[int, Field(ge=1, le=NUMBER_MAX)]
BatchId = Annotated[int, Field(ge=0, le=NUMBER_MAX, description="Spark's number of the batch.")]
KeyText = Annotated[
    str, Field(pattern="^hf_[0-9a-f]{32}$", description="As receivers get it: hf_...")
]
Cursor = Annotated[
    str,
    Field(
        pattern=r"^[0-9]{1,18}(\.[0-9]{1,18}){2,4}$",
        description="`next_before` of the page before this one.",
    ),
]
NumberBefore = Annotated[
    int, Field(ge=1, le=NUMBER_MAX, description="`next_before` of the page before this one.")
]
Moment = Annotated[AwareDatetime, BeforeValidator(_written_out), AfterValidator(_in_utc)]
"""RFC 3339 with a zone; in UTC once it is read."""

AskBody = Annotated[
    bool,
    Query(
        description="With bodies, and what receivers answered: needs the role operator, and is"
        " noted in the audit trail."
    ),
]


@dataclass(frozen=True, slots=True)
class Between:
    """A time: from `since` on, before `until`; None: without that end."""

    since: datetime | None
    until: datetime | None


def _between(
    since: Annotated[
        Moment | None, Query(description="At this moment or later (RFC 3339 with a zone).")
    ] = None,
    until: Annotated[
        Moment | None, Query(description="Before this moment (RFC 3339 with a zone).")
    ] = None,
) -> Between:
    if since is not None and until is not None and since >= until:
        raise CommandError(
            "`since` is not before `until`. Nothing was changed.",
            ExitCode.USAGE,
        )
    return Between(since, until)


Times = Annotated[Between, Depends(_between)]


def key_of(text: str) -> Key:
    """Return a key; raises `CommandError` (usage) for what is none."""
    try:
        return Key.parse(text)
    except NotCanonical as error:
        raise CommandError(f"{error}. Nothing was changed.", ExitCode.USAGE) from None

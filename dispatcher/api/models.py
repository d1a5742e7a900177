"""What every body that the API takes has in common."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints


def _text(given: str) -> str:
    """Refuse what is no Unicode text: half of a surrogate pair."""
    given.encode()
    return given


Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]{0,62}$")]
TEXT = r"^[^\x00-\x08\x0b-\x1f\x7f]*$"
"""No control character but tab and line feed: the audit trail is read on terminals."""

Reason = Annotated[
    str,
    StringConstraints(min_length=1, max_length=2000, strip_whitespace=True, pattern=TEXT),
    AfterValidator(_text),
    Field(description="Why; kept in the audit trail."),
]

Ids = Annotated[
    list[Annotated[int, Field(ge=1, le=2**63 - 1)]],
    Field(min_length=1, max_length=1000, description="Numbers, as the list shows them."),
]
Keys = Annotated[
    list[Annotated[str, StringConstraints(pattern="^hf_[0-9a-f]{32}$")]],
    Field(min_length=1, max_length=1000, description="As receivers get them: hf_..."),
]


class Given(BaseModel):
    """A body of a request: an unknown field is refused, and nothing is made to fit."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Because(Given):
    """A body that says no more than why."""

    reason: Reason

"""Access tokens of this API."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, status
from pydantic import BaseModel, Field

from holdfast.dispatcher.api.access import Admin
from holdfast.dispatcher.api.requests import Because, Name, Reason, RequestBody, Text
from holdfast.dispatcher.api.responses import OnePage
from holdfast.dispatcher.operators.tokens.store import Tokens
from holdfast.sink.contract.states import AccessRole

router = APIRouter(prefix="/tokens", tags=["tokens"])

DAYS_MAX = 3650


class Token(BaseModel):
    """A token, without its secret."""

    id: UUID
    name: str
    owner: str = Field(description="The person who holds it.")
    role: AccessRole
    state: str
    logins: int
    created_at: datetime
    created_by: str
    expires_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


class TokenList(OnePage):
    """Every token, by name."""

    tokens: list[Token]


class NewToken(RequestBody):
    """A token to create."""

    name: Name
    role: Annotated[AccessRole, Field(strict=False)]
    owner: Text | None = Field(
        None, description="Login name of the person who holds it; null: same as `name`."
    )
    days: int = Field(ge=1, le=DAYS_MAX, description="Days until it expires.")
    reason: Reason


class MadeToken(BaseModel):
    """A created token. Its secret is shown only here."""

    id: UUID
    name: str
    owner: str
    role: AccessRole
    secret: str
    created_at: datetime
    created_by: str
    expires_at: datetime


class RevokedToken(BaseModel):
    """A revoked token."""

    id: UUID
    name: str
    role: AccessRole


@router.get("", summary="List tokens.")
def list_tokens(session: Admin) -> TokenList:
    """Return every token without its secret, including revoked and expired ones."""
    with session.open(Tokens) as tokens:
        return TokenList.model_validate({"tokens": tokens.tokens()})


@router.post("", status_code=status.HTTP_201_CREATED, summary="Create a token.")
def add_token(session: Admin, given: NewToken) -> MadeToken:
    """Create a token. Its secret is only in this response."""
    with session.open(Tokens) as tokens:
        row = tokens.add(
            given.name, given.role, days=given.days, reason=given.reason, owner=given.owner
        )
    return MadeToken.model_validate(row)


@router.post("/{name}/revoke", summary="Revoke a token and its logins.")
def revoke_token(
    session: Admin,
    name: Annotated[Name, Path(description="Name of a valid token.")],
    given: Because,
) -> RevokedToken:
    """Revoke a token immediately."""
    with session.open(Tokens) as tokens:
        return RevokedToken.model_validate(tokens.revoke(name, given.reason))

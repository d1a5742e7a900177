"""Tokens: who may use this API."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, status
from pydantic import BaseModel, Field

from dispatcher.api.access import Admin
from dispatcher.api.requests import Because, Name, Reason, RequestBody, Text
from dispatcher.operators.tokens.store import Tokens
from sink.contract.states import AccessRole

router = APIRouter(prefix="/tokens", tags=["tokens"])

DAYS_MAX = 3650


class Token(BaseModel):
    """A token, without its secret."""

    id: UUID
    name: str
    owner: str = Field(description="The person whose token it is.")
    role: AccessRole
    state: str
    logins: int
    created_at: datetime
    created_by: str
    expires_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


class TokenList(BaseModel):
    """Every token, by name."""

    tokens: list[Token]


class NewToken(RequestBody):
    """A token to be made."""

    name: Name
    role: Annotated[AccessRole, Field(strict=False)]
    owner: Text | None = Field(None, description="Whose it is, by login name; null: as `name`.")
    days: int = Field(ge=1, le=DAYS_MAX, description="How long it lasts.")
    reason: Reason


class MadeToken(BaseModel):
    """A token that was made; its secret is shown this once."""

    id: UUID
    name: str
    owner: str
    role: AccessRole
    secret: str
    created_at: datetime
    created_by: str
    expires_at: datetime


class RevokedToken(BaseModel):
    """A token that was ended, with all its logins."""

    id: UUID
    name: str
    role: AccessRole


@router.get("", summary="List tokens.")
def list_tokens(session: Admin) -> TokenList:
    """Return every token without its secret, revoked and expired ones too."""
    with session.open(Tokens) as tokens:
        return TokenList.model_validate({"tokens": tokens.tokens()})


@router.post("", status_code=status.HTTP_201_CREATED, summary="Make a token.")
def add_token(session: Admin, given: NewToken) -> MadeToken:
    """Make a token; its secret is in this answer and nowhere else."""
    with session.open(Tokens) as tokens:
        row = tokens.add(
            given.name, given.role, days=given.days, reason=given.reason, owner=given.owner
        )
    return MadeToken.model_validate(row)


@router.post("/{name}/revoke", summary="End a token and its logins.")
def revoke_token(
    session: Admin, name: Annotated[Name, Path(description="Of a living token.")], given: Because
) -> RevokedToken:
    """End a token now."""
    with session.open(Tokens) as tokens:
        return RevokedToken.model_validate(tokens.revoke(name, given.reason))

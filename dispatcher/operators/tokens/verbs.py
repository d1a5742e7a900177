"""Access tokens: what an administrator can do about them."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from typing_extensions import TypedDict

from holdfast.dispatcher.operators.common import verbs
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.verbs import Kind, Param
from holdfast.dispatcher.operators.tokens.store import Tokens
from holdfast.sink.contract.numbers import counted
from holdfast.sink.contract.states import AccessRole

GROUP = verbs.Group(
    "token",
    help="Access tokens for the admin API: add, list, revoke.",
    store=Tokens,
    path="/tokens",
    tag="tokens",
)

_COLUMNS = ("name", "owner", "role", "state", "expires_at", "last_used_at", "logins", "created_by")


class Token(TypedDict):
    """A token, without its secret."""

    id: UUID
    name: str
    owner: Annotated[str, verbs.Doc("The person who holds it.")]
    role: AccessRole
    state: str
    logins: int
    created_at: datetime
    created_by: str
    expires_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


class MadeToken(TypedDict):
    """A created token. Its secret is shown only here."""

    id: UUID
    name: str
    owner: str
    role: AccessRole
    secret: str
    created_at: datetime
    created_by: str
    expires_at: datetime


class RevokedToken(TypedDict):
    """A revoked token."""

    id: UUID
    name: str
    role: AccessRole


NAMED = "The token's name, as the audit trail shows it."
OWNED = "Login name of the person who holds it; null: same as `name`."
HOLDS = "The login name of the person who holds it. Default: NAME."


@GROUP.verb(
    "list",
    of=verbs.List,
    help="List tokens without their secrets, including revoked and expired ones.\n\nExit code 3:"
    " there are none.",
    text=lambda page, _: [verbs.Table(page.rows, _COLUMNS, "Tokens", ("created_by", "logins"))],
    least=AccessRole.ADMIN,
    route=verbs.Route("List tokens."),
    rows="tokens",
    result=Token,
    page=verbs.Model("TokenList", "Every token, by name."),
    empty="no token exists; `holdfast token add NAME --role viewer` creates one.",
)
def list_tokens(store: Tokens) -> verbs.Page:
    """Return every token without its secret, including revoked and expired ones."""
    return verbs.Page(store.tokens())


def _added(row: Row, values: Row) -> verbs.Text:
    yield row["secret"]
    yield verbs.Aside(
        f"token {row['name']} ({row['role']}) of {row['owner']} expires in"
        f" {counted(values['days'], 'day')}. Keep it safe: it is not shown again."
    )


@GROUP.verb(
    "add",
    changes=True,
    help="Create a token. Its secret is printed once; only its hash is stored.\n\nAll tokens of one"
    " owner count as one person where a second person has to approve.",
    text=_added,
    least=AccessRole.ADMIN,
    route=verbs.Route("Create a token.", status=201),
    body=verbs.Model("NewToken", "A token to create."),
    result=MadeToken,
)
def add_token(
    store: Tokens,
    *,
    name: Annotated[str, Param("", Kind.NAME, NAMED, argument="NAME")],
    role: Annotated[AccessRole, Param(command_help="The role of its holder.")],
    owner: Annotated[str | None, Param(OWNED, Kind.TEXT, HOLDS)] = None,
    days: Annotated[int, Param("Days until it expires.", limits=(1, 3650), command_default=90)],
    reason: Annotated[str, Param(verbs.WHY, Kind.REASON, command_default="added")],
) -> Row:
    """Create a token. Its secret is only in this response."""
    return store.add(name, role, days=days, reason=reason, owner=owner)


@GROUP.verb(
    "revoke",
    changes=True,
    help="Revoke a token and every login that was made with it, immediately.",
    text=lambda row, _: [f"token {row['name']} is revoked, and so is every login made with it"],
    least=AccessRole.ADMIN,
    route=verbs.Route("Revoke a token and its logins.", "/{name}/revoke"),
    result=RevokedToken,
)
def revoke_token(
    store: Tokens,
    name: Annotated[str, Param("Name of a valid token.", Kind.NAME, NAMED, argument="NAME")],
    reason: Annotated[str, Param(verbs.WHY, Kind.REASON, command_default="revoked")],
) -> Row:
    """Revoke a token immediately."""
    return store.revoke(name, reason)

"""Tokens of the admin API, and logins of its console. The database keeps only hashes.

A token belongs to a person, its owner: two tokens of one owner are the same person.
"""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID, uuid4

import psycopg

from holdfast.dispatcher.operators.common.person import OWNER, person_of
from holdfast.dispatcher.operators.common.session import OperatorSession, Row, actor
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import AccessRole

TOKEN_PREFIX = "hft_"  # noqa: S105 - the part of a token that is no secret
LOGIN_PREFIX = "hfl_"
SECRET_BYTES = 32
LOGIN_HOURS = 12


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a token: its name, role and owner."""

    id: UUID
    name: str
    role: AccessRole
    is_login: bool
    owner: str
    """The person whose token it is."""

    @property
    def actor(self) -> str:
        """The name in the audit trail."""
        return f"token {self.name}"


class Tokens(OperatorSession):
    """Adds, checks and revokes tokens and logins."""

    def add(
        self, name: str, role: AccessRole, *, days: int, reason: str, owner: str | None = None
    ) -> Row:
        """Create a token; return its row and, only here, its `secret`.

        Its `owner` is a person, by login name if there is one; by default `name`. Raises
        `CommandError` when a valid token has this name, and for an invalid name or owner.
        """
        secret = TOKEN_PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        whose = name if owner is None else _owner(owner)
        try:
            with self._transaction():
                row = self._add(name, role, secret, timedelta(days=days), None, whose)
                detail = {"role": role.value, "days": days, "owner": whose}
                self._audit("token.add", name, reason, detail)
        except psycopg.errors.UniqueViolation:
            raise CommandError(
                f"there is a token {name!r} already. Nothing was changed; revoke it first, or take"
                " another name (`holdfast token list`).",
                code="name_in_use",
            ) from None
        except psycopg.errors.CheckViolation:
            raise CommandError(
                f"{name!r} is not a valid token name: 1 to 63 of a-z, 0-9, '.', '_', '-', beginning"
                " with a letter or digit. Nothing was changed.",
                ExitCode.USAGE,
                code="invalid_name",
            ) from None
        return {**row, "secret": secret}

    def tokens(self) -> list[Row]:
        """Return every token without its hash: id, name, role, state, logins, times."""
        return self._all("tokens/list")

    def revoke(self, name: str, reason: str) -> Row:
        """Revoke a token and its logins; raises `CommandError` when no valid one has this name."""
        with self._transaction():
            row = self._maybe("tokens/revoke", {"name": name})
            if row is None:
                raise CommandError(
                    f"there is no valid token {name!r}; nothing was changed. See `holdfast token"
                    " list`.",
                    ExitCode.NOTHING_MATCHED,
                    code="unknown_token",
                )
            self._audit("token.revoke", name, reason, {"role": row["role"]})
        return row

    def holder(self, secret: str) -> Holder | None:
        """Return the holder of a secret, or None. By hash, so timing reveals nothing of a guess."""
        row = self._maybe("tokens/find", {"sha256": _hash(secret)})
        if row is None:
            return None
        if row["stale"]:
            self._run("tokens/used", {"id": row["id"]})
        role = AccessRole(row["role"])
        return Holder(row["id"], row["name"], role, row["is_login"], row["owner"])

    def login(self, holder: Holder) -> str:
        """Create a login of a token's holder; return its secret, which a cookie may carry."""
        secret = LOGIN_PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        lasts = timedelta(hours=LOGIN_HOURS)
        with self._transaction():
            self._run("tokens/forget")
            self._add(holder.name, holder.role, secret, lasts, holder.id, holder.owner)
            self._audit("login", holder.name, "console", {"hours": LOGIN_HOURS})
        return secret

    def logout(self, holder: Holder) -> None:
        """End a login."""
        self._run("tokens/logout", {"id": holder.id})

    def _add(
        self,
        name: str,
        role: AccessRole,
        secret: str,
        lasts: timedelta,
        login_of: UUID | None,
        owner: str,
    ) -> Row:
        return self._one(
            "tokens/add",
            {
                "id": uuid4(),
                "name": name,
                "role": role.value,
                "sha256": _hash(secret),
                "actor": actor(),
                "lasts": lasts,
                "login_of": login_of,
                "owner": owner,
            },
        )


def _owner(text: str) -> str:
    owner = person_of(text)
    if not OWNER.fullmatch(owner):
        raise CommandError(
            f"{text!r} is not a valid token owner: a login name of 1 to 127 of a-z, 0-9, '.', '_',"
            " '-', '@', '+', beginning with a letter or digit. Nothing was changed.",
            ExitCode.USAGE,
            code="invalid_owner",
        )
    return owner


def _hash(secret: str) -> bytes:
    """Hash 256 random bits; a slow hash is for secrets that can be guessed."""
    return hashlib.sha256(secret.encode()).digest()

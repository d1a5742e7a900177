"""Who asks, and whether they may: bearer tokens for programs, a login's cookie for people.

A cookie counts for the console alone, so that no other site can make a browser use the API.
"""

from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from threading import Lock
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException

from dispatcher.operators.common.pool import OperatorPool
from dispatcher.operators.common.session import OperatorSession
from dispatcher.operators.tokens.store import TOKEN_PREFIX, Holder, Tokens
from dispatcher.shared.clock import seconds
from dispatcher.shared.errors import StoreUnavailableError
from sink.contract.exits import CommandError
from sink.contract.states import AccessRole

FAILURES_MAX = 10
FAILURES_SECONDS = 60.0
"""So many different wrong tokens from one address in this time, and no further one that nobody has
seen is looked up for it. The same wrong one again is a job that was forgotten, and locks nobody
out."""

KNOWN_MAX = 10_000
"""Tokens that were right before; they are looked up from wherever they come."""

ADDRESSES_MAX = 10_000

WRONG = (
    "this token is unknown, expired or revoked. Nothing was changed; an administrator makes one"
    " with `holdfast token add`."
)

ORDER = list(AccessRole)
Store = TypeVar("Store", bound=OperatorSession)

_bearer = HTTPBearer(auto_error=False, description="`holdfast token add NAME --role ROLE`")


@dataclass(frozen=True, slots=True)
class Session:
    """A request of somebody who may make it."""

    holder: Holder
    pool: OperatorPool

    def open(self, store: type[Store]) -> AbstractContextManager[Store]:
        """Lend a store in which this somebody acts; see `OperatorPool.lend`."""
        return self.pool.lend(store, self.holder.actor, self.holder.owner)

    def may(self, role: AccessRole) -> bool:
        """Return whether the holder has this role, or a higher one."""
        return ORDER.index(self.holder.role) >= ORDER.index(role)


class Failures:
    """Wrong tokens, by the address that they came from; of no token more than its hash."""

    def __init__(self, clock: Callable[[], float] = seconds) -> None:
        self._clock = clock
        self._wrong: OrderedDict[str, dict[bytes, float]] = OrderedDict()
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._lock = Lock()

    def known(self, address: str, secret: str) -> bool:
        """Return whether this secret was wrong a moment ago, from this address."""
        with self._lock:
            return _hash(secret) in self._recent(address)

    def wait(self, address: str, secret: str) -> float:
        """Return for how many seconds this secret is not looked up; 0 if it is."""
        with self._lock:
            recent = self._recent(address)
            if len(recent) < FAILURES_MAX or _hash(secret) in self._right:
                return 0.0
            return min(recent.values()) + FAILURES_SECONDS - self._clock()

    def add(self, address: str, secret: str) -> None:
        """Take down a wrong secret."""
        with self._lock:
            self._right.pop(_hash(secret), None)
            self._wrong[address] = {**self._recent(address), _hash(secret): self._clock()}
            _trim(self._wrong, address, ADDRESSES_MAX)

    def right(self, secret: str) -> None:
        """Take down a secret that was right."""
        with self._lock:
            self._right[_hash(secret)] = None
            _trim(self._right, _hash(secret), KNOWN_MAX)

    def _recent(self, address: str) -> dict[bytes, float]:
        since = self._clock() - FAILURES_SECONDS
        return {k: at for k, at in self._wrong.get(address, {}).items() if at > since}


def _hash(secret: str) -> bytes:
    return sha256(secret.encode()).digest()


def _trim(kept: OrderedDict[Any, Any], newest: object, most: int) -> None:
    kept.move_to_end(newest)
    while len(kept) > most:
        kept.popitem(last=False)


def needs(role: AccessRole) -> Callable[..., Session]:
    """Return the dependency of a route of the API that takes this role, or a higher one."""

    def session(
        request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
    ) -> Session:
        if given is None or not given.credentials.startswith(TOKEN_PREFIX):
            raise _unknown("no token: send `Authorization: Bearer hft_...`. Nothing was changed.")
        found = Session(holder_of(request, given.credentials), request.app.state.pool)
        if not found.may(role):
            raise HTTPException(
                HTTPStatus.FORBIDDEN,
                f"this needs the role {role}, and token {found.holder.name} is"
                f" {found.holder.role}. Nothing was changed.",
                {"WWW-Authenticate": 'Bearer error="insufficient_scope"'},
            )
        return found

    return session


def holder_of(request: Request, secret: str) -> Holder:
    """Return whose secret this is; raises 401, 429 after too many wrong ones, and 503."""
    failures: Failures = request.app.state.failures
    address = request.client.host if request.client else ""
    if failures.known(address, secret):
        raise _unknown(WRONG)
    if (wait := failures.wait(address, secret)) > 0:
        raise HTTPException(
            HTTPStatus.TOO_MANY_REQUESTS,
            "too many wrong tokens came from this address. Nothing was changed; wait a minute.",
            {"Retry-After": str(int(wait) + 1)},
        )
    holder = _looked_up(request.app.state.pool, secret)
    if holder is None:
        failures.add(address, secret)
        raise _unknown(WRONG)
    failures.right(secret)
    return holder


def _looked_up(pool: OperatorPool, secret: str) -> Holder | None:
    try:
        with pool.lend(Tokens, "api") as tokens:
            return tokens.holder(secret)
    except (StoreUnavailableError, CommandError) as error:
        # Nobody knows yet who asks: what the database said is none of their business.
        raise StoreUnavailableError(
            "the database cannot say whose token this is. Nothing was changed; try again."
        ) from error


def _unknown(detail: str) -> HTTPException:
    return HTTPException(HTTPStatus.UNAUTHORIZED, detail, {"WWW-Authenticate": "Bearer"})


Viewer = Annotated[Session, Depends(needs(AccessRole.VIEWER))]
Operator = Annotated[Session, Depends(needs(AccessRole.OPERATOR))]
Admin = Annotated[Session, Depends(needs(AccessRole.ADMIN))]
"""Parameters of routes: who asks, with at least this role."""

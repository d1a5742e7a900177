"""Authentication and authorization: bearer tokens for programs, a login cookie for people.

The API does not accept the cookie, so no other site can make a browser use it.
"""

from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from threading import Lock
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.security.utils import get_authorization_scheme_param
from starlette.exceptions import HTTPException

from holdfast.dispatcher.api.problems import limited
from holdfast.dispatcher.operators.common.pool import OperatorPool
from holdfast.dispatcher.operators.common.session import OperatorSession
from holdfast.dispatcher.operators.tokens.store import TOKEN_PREFIX, Holder, Tokens
from holdfast.dispatcher.shared.clock import seconds
from holdfast.dispatcher.shared.errors import StoreUnavailableError
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.states import AccessRole

FAILURES_MAX = 10
FAILURES_SECONDS = 60.0
"""After this many different wrong tokens from one address within this time, tokens from it that
were never valid before are looked up one at a time, and wrong ones get 429. A right one is never
refused: others may be behind the same proxy. The same wrong token again is a misconfigured job and
does not count.
"""

KNOWN_MAX = 10_000
"""Maximum number of remembered valid tokens, which are looked up from any address."""

ADDRESSES_MAX = 10_000

WRONG = (
    "this token is unknown, expired or revoked. Nothing was changed; an administrator creates"
    " one with `holdfast token add`."
)

ORDER = list(AccessRole)
Store = TypeVar("Store", bound=OperatorSession)

_bearer = HTTPBearer(auto_error=False, description="`holdfast token add NAME --role ROLE`")


@dataclass(frozen=True, slots=True)
class Session:
    """An authenticated request."""

    holder: Holder
    pool: OperatorPool

    def open(self, store: type[Store]) -> AbstractContextManager[Store]:
        """Lend a store that acts as the token's holder; see `OperatorPool.lend`."""
        return self.pool.lend(store, self.holder.actor, self.holder.owner)

    def may(self, role: AccessRole) -> bool:
        """Return whether the holder has this role or a higher one."""
        return ORDER.index(self.holder.role) >= ORDER.index(role)


class Failures:
    """Recent wrong tokens by client address. Only hashes of tokens are kept."""

    def __init__(self, clock: Callable[[], float] = seconds) -> None:
        self._clock = clock
        self._wrong: OrderedDict[str, dict[bytes, float]] = OrderedDict()
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._lock = Lock()
        self.turn = Lock()
        """Held while a token of an address with too many wrong ones is looked up."""

    def known(self, address: str, secret: str) -> bool:
        """Return whether this secret was recently wrong from this address."""
        with self._lock:
            return _hash(secret) in self._recent(address)

    def wait(self, address: str, secret: str) -> float:
        """Return how long this address has too many wrong secrets, in seconds; 0 if it has not.

        Also 0 for a secret that was right before.
        """
        with self._lock:
            recent = self._recent(address)
            if len(recent) < FAILURES_MAX or _hash(secret) in self._right:
                return 0.0
            return min(recent.values()) + FAILURES_SECONDS - self._clock()

    def add(self, address: str, secret: str) -> None:
        """Record a wrong secret."""
        with self._lock:
            self._right.pop(_hash(secret), None)
            self._wrong[address] = {**self._recent(address), _hash(secret): self._clock()}
            _trim(self._wrong, address, ADDRESSES_MAX)

    def right(self, secret: str) -> None:
        """Record a valid secret."""
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


def bearer_of(request: Request) -> Holder:
    """Return the holder of a request's bearer token; raises as `holder_of`."""
    scheme, secret = get_authorization_scheme_param(request.headers.get("authorization"))
    if scheme.lower() != "bearer" or not secret.startswith(TOKEN_PREFIX):
        raise _unknown("no token: send `Authorization: Bearer hft_...`. Nothing was changed.")
    return holder_of(request, secret)


def is_doubtful(request: Request) -> bool:
    """Return whether a token was never right, and comes from an address with many wrong ones."""
    _, secret = get_authorization_scheme_param(request.headers.get("authorization"))
    failures: Failures = request.app.state.failures
    return bool(secret) and failures.wait(_address(request), secret) > 0


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


def needs(role: AccessRole) -> Callable[..., Session]:
    """Return the dependency of an API route that requires this role or a higher one."""

    # The dependency describes the token in the API's description.
    def session(
        request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
    ) -> Session:
        session = Session(bearer_of(request), request.app.state.pool)
        if not session.may(role):
            raise HTTPException(
                HTTPStatus.FORBIDDEN,
                f"this requires the role {role}; token {session.holder.name} has the role"
                f" {session.holder.role}. Nothing was changed.",
                {"WWW-Authenticate": 'Bearer error="insufficient_scope"'},
            )
        return session

    return session


def holder_of(request: Request, secret: str) -> Holder:
    """Return the holder of a secret; raises 401, 429 for one of too many wrong ones, and 503."""
    failures: Failures = request.app.state.failures
    address = _address(request)
    if failures.known(address, secret):
        raise _unknown(WRONG)
    wait = failures.wait(address, secret)
    with failures.turn if wait > 0 else nullcontext():
        holder = _looked_up(request.app.state.pool, secret)
    if holder is None and wait > 0:
        raise HTTPException(
            HTTPStatus.TOO_MANY_REQUESTS,
            "this is one of too many wrong tokens from this address. Nothing was changed; try again"
            " in a minute.",
            limited("wrong-tokens", f"q={FAILURES_MAX};w={FAILURES_SECONDS:.0f}", wait),
        )
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
        # The caller is not authenticated yet, so the database's message is not passed on.
        raise StoreUnavailableError(
            "the token cannot be verified because the database is unavailable. Nothing was"
            " changed; try again."
        ) from error


def _unknown(detail: str) -> HTTPException:
    return HTTPException(HTTPStatus.UNAUTHORIZED, detail, {"WWW-Authenticate": "Bearer"})


Viewer = Annotated[Session, Depends(needs(AccessRole.VIEWER))]
Operator = Annotated[Session, Depends(needs(AccessRole.OPERATOR))]
Admin = Annotated[Session, Depends(needs(AccessRole.ADMIN))]
"""Parameters of routes: the session of a caller with at least this role."""

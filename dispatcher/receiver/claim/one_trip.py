"""The inbox's statements with literals for parameters, so that one message holds several. No I/O.

Round trips dominate the cost of a delivery. One message can hold `BEGIN` and the claim, but the
protocol accepts parameters only for a single statement, so they are literals here. A literal is
printable ASCII without quotes and backslashes, or hex. So nothing needs escaping, independent of
the session's encoding and settings.

Parsing and planning a claim costs more than running it, so a connection prepares it after some
uses. As in psycopg, `prepare_threshold` is the number of uses; None disables it. The prepared
statement belongs to the session: behind a pooler, or after `DEALLOCATE ALL`, it may be missing or
already exist. So a form that fails on the name is followed by another, and the last needs no name.
"""

import hashlib
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

from holdfast.receiver.claim.claiming import composed

_HARMLESS = re.compile(r"[ -&(-\[\]-~]*")
"""Printable ASCII except the quote and the backslash."""

_NUMBERED = {"key": "$1", "body_sha256": "$2", "subject": "$3", "sequence": "$4"}


class Way(Enum):
    """The form in which a claim is sent."""

    PLAIN = "plain"
    PREPARE = "prepare"
    EXECUTE = "execute"


_WAYS = {
    Way.PLAIN: (Way.PLAIN,),
    Way.PREPARE: (Way.PREPARE, Way.EXECUTE, Way.PLAIN),
    Way.EXECUTE: (Way.EXECUTE, Way.PREPARE, Way.PLAIN),
}


def ways(made: int, threshold: int | None) -> tuple[Way, ...]:
    """Return the form of a claim after `made` claims, then those to try if the name is wrong."""
    if threshold is None or made < threshold:
        return _WAYS[Way.PLAIN]
    return _WAYS[Way.PREPARE if made == threshold else Way.EXECUTE]


class Texts:
    """The statements of one schema. Raises `ValueError` for an invalid schema name."""

    def __init__(self, schema: str) -> None:
        self._statements = composed(schema)
        self._schema = _literal(schema)
        body = self._statements["claim"] % {**_NUMBERED, "schema": self._schema}
        self.name = "holdfast_claim_" + hashlib.sha256(body.encode()).hexdigest()[:16]
        """The name of the prepared claim; it differs by version and schema."""
        self.prepare = f"PREPARE {self.name} (text, bytea, text, bigint) AS {body}".encode()
        """Sent without a delivery's data, because `pg_prepared_statements` shows the message."""
        self._execute = f"EXECUTE {self.name}".encode()

    def claim(self, way: Way, parameters: Mapping[str, Any]) -> bytes:
        """Return the claim in the form `way`; for `PREPARE`, send `prepare` before it."""
        if way is Way.PLAIN:
            return self.plain("claim", parameters)
        given = ",".join([_untyped(parameters[name]) for name in _NUMBERED]).encode()
        return b"%s(%s)" % (self._execute, given)

    def plain(self, name: str, parameters: Mapping[str, Any]) -> bytes:
        """Return the statement `name` with its parameters as literals."""
        literals = {each: _literal(value) for each, value in parameters.items()}
        return (self._statements[name] % literals).encode()


def _untyped(value: str | bytes | int) -> str:
    """Return an untyped literal, which takes the parameter's type; a cast would cost planning."""
    match value:
        case str():
            text = str.__str__(value)
            return f"'{text}'" if _HARMLESS.fullmatch(text) else _literal(text)
        case bytes():
            return rf"E'\\x{value.hex()}'"
        case _:
            return f"'{value:d}'"


def _literal(value: str | bytes | int) -> str:
    match value:
        case str():
            # The characters themselves: a subclass such as StrEnum may format differently.
            text = str.__str__(value)
            if _HARMLESS.fullmatch(text):
                return f"'{text}'::text"
            # Without COLLATE it would have the collation of the name UTF8, which no index has.
            decoded = rf"convert_from(E'\\x{text.encode().hex()}'::bytea, 'UTF8')"
            return f'{decoded} COLLATE "default"'
        case bytes():
            return rf"E'\\x{value.hex()}'::bytea"
        case _:
            return f"{value:d}::bigint"

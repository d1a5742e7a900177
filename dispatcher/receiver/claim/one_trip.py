"""The inbox's statements as text without parameters, so that several travel in one message. No I/O.

Most of what a delivery costs is round trips. In one message `BEGIN` and the claim are one, but the
protocol takes parameters for a single statement alone: here they are literals. A text is printable
ASCII without quotes and backslashes, or hex: there is nothing to escape, whatever the session's
encoding and settings are.

A claim that is parsed and planned each time costs more than it does, so a connection that has made
some keeps it by name, as psycopg keeps statements, and with the same two limits: how many times
it was made (`prepare_threshold`), and never where that is None. The name is the session's, and
behind a pooler, or after `DEALLOCATE ALL`, the session may have it or not: each way that fails on
the name has another one after it, and the last needs none.
"""

import hashlib
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

from dispatcher.receiver.claim.claiming import composed

_HARMLESS = re.compile(r"[ -&(-\[\]-~]*")
"""Printable ASCII but for the quote and the backslash."""

_NUMBERED = {"key": "$1", "body_sha256": "$2", "subject": "$3", "sequence": "$4"}


class Way(Enum):
    """How a claim is sent."""

    PLAIN = "plain"
    PREPARE = "prepare"
    EXECUTE = "execute"


_WAYS = {
    Way.PLAIN: (Way.PLAIN,),
    Way.PREPARE: (Way.PREPARE, Way.EXECUTE, Way.PLAIN),
    Way.EXECUTE: (Way.EXECUTE, Way.PREPARE, Way.PLAIN),
}


def ways(made: int, threshold: int | None) -> tuple[Way, ...]:
    """Return how to send a claim after `made` of them, and what to try when the name is wrong."""
    if threshold is None or made < threshold:
        return _WAYS[Way.PLAIN]
    return _WAYS[Way.PREPARE if made == threshold else Way.EXECUTE]


class Texts:
    """The statements of one schema. Raises `ValueError` for a name that Postgres refuses."""

    def __init__(self, schema: str) -> None:
        self._statements = composed(schema)
        self._schema = _literal(schema)
        body = self._statements["claim"] % {**_NUMBERED, "schema": self._schema}
        self.name = "holdfast_claim_" + hashlib.sha256(body.encode()).hexdigest()[:16]
        """Of the claim in a session: another version's, or schema's, is another one."""
        self.prepare = f"PREPARE {self.name} (text, bytea, text, bigint) AS {body}".encode()
        """Sent without a delivery behind it: the session shows the message to whoever asks."""
        self._execute = f"EXECUTE {self.name}".encode()

    def claim(self, way: Way, parameters: Mapping[str, Any]) -> bytes:
        """Return the claim as `way` sends it, after `prepare` where that is the way."""
        if way is Way.PLAIN:
            return self.plain("claim", parameters)
        given = ",".join([_untyped(parameters[name]) for name in _NUMBERED]).encode()
        return b"%s(%s)" % (self._execute, given)

    def plain(self, name: str, parameters: Mapping[str, Any]) -> bytes:
        """Return the statement `name` with its parameters in it."""
        literals = {each: _literal(value) for each, value in parameters.items()}
        return (self._statements[name] % literals).encode()


def _untyped(value: str | bytes | int) -> str:
    """Return a literal that takes the type it is wanted as; a cast would be planned each time."""
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
            # The characters themselves: what formats and encodes may be a subclass's, as an Enum's.
            text = str.__str__(value)
            if _HARMLESS.fullmatch(text):
                return f"'{text}'::text"
            # It would have the collation of the word UTF8, a name, in which no column has an index.
            decoded = rf"convert_from(E'\\x{text.encode().hex()}'::bytea, 'UTF8')"
            return f'{decoded} COLLATE "default"'
        case bytes():
            return rf"E'\\x{value.hex()}'::bytea"
        case _:
            return f"{value:d}::bigint"

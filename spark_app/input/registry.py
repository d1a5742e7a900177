"""A schema registry with Confluent's API: the schema of an id, once per process.

A schema never changes under its id. An id that the registry does not know is a fault of the record.
A registry that does not answer, or not as one, is a fault of the batch: it ends the attempt, and
the same batch is tried again.
"""

import json
import ssl
import urllib.error
import urllib.request
from base64 import b64encode
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPMessage
from time import monotonic
from typing import IO, Any, Final

from holdfast.sink.contract.states import QuarantineReason as Reason
from holdfast.spark_app.input.avro import SCHEMA_BYTES_MAX, Schema, prepare
from holdfast.spark_app.input.avro_bytes import SchemaUnusable
from holdfast.spark_app.input.events import Fault

TIMEOUT_S: Final = 10.0
"""To connect, for each part of the answer's head, and for the rest of it together."""

_UNKNOWN: Final = 40403
"""Confluent's error code of an id that is not there."""

_CHUNK = 1 << 16


class RegistryAway(Exception):
    """The registry did not answer, or not as one. The text has no full stop."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        """Follow none: the answer is then that of an error."""


@dataclass(frozen=True)
class Registry:
    """A registry. `user` is `name:password`; `ca` is a certificate in PEM, or empty."""

    url: str
    user: str = field(default="", repr=False)
    ca: str = field(default="", repr=False)

    def require(self) -> None:
        """Ask for the types of schemas it knows; raises RegistryAway."""
        status, content = self._get("/schemas/types")
        if status != 200 or not isinstance(content, list):
            raise self._away(f"it answered {status} where a registry lists the types of schemas")

    def schema(self, number: int) -> Schema | Fault:
        """Return the schema of an id, or why records of it are not read; raises RegistryAway."""
        key = (self.url, number)
        if key not in _SCHEMAS:
            found = self._fetch(number)
            if isinstance(found, Fault):
                # It may be registered later.
                return found
            _SCHEMAS[key] = found
        return _SCHEMAS[key]

    def _fetch(self, number: int) -> Schema | Fault:
        status, content = self._get(f"/schemas/ids/{number}")
        answer = content if isinstance(content, dict) else {}
        if status == 404 and answer.get("error_code") == _UNKNOWN:
            return Fault(Reason.MALFORMED, f"the schema registry has no schema {number}")
        text = answer.get("schema")
        if status != 200 or not isinstance(text, str):
            raise self._away(f"it answered {status} to the question for schema {number}")
        kind = answer.get("schemaType", "AVRO")
        if kind != "AVRO":
            return Fault(Reason.MALFORMED, f"schema {number} is not Avro")
        try:
            return prepare(text)
        except SchemaUnusable as error:
            return Fault(Reason.MALFORMED, f"schema {number}: {error}")

    def _get(self, path: str) -> tuple[int, Any]:
        request = urllib.request.Request(  # noqa: S310 - its scheme is checked
            self.url.rstrip("/") + path,
            headers={"Accept": "application/vnd.schemaregistry.v1+json, application/json"},
        )
        if self.user:
            token = b64encode(self.user.encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {token}")
        until = monotonic() + TIMEOUT_S
        try:
            try:
                answer = self._opener().open(request, timeout=TIMEOUT_S)
            except urllib.error.HTTPError as error:
                answer = error
            with answer:
                return answer.status, _json(_read(answer, until))
        except urllib.error.URLError as error:
            raise self._away(_reason(error.reason)) from error
        except (OSError, HTTPException, ValueError) as error:
            raise self._away(_reason(error)) from error

    def _opener(self) -> urllib.request.OpenerDirector:
        context = ssl.create_default_context(cadata=self.ca or None)
        return urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPSHandler(context=context),
            _NoRedirects,
        )

    def _away(self, why: str) -> RegistryAway:
        return RegistryAway(f"the schema registry {self.url} cannot be used: {why}")


_SCHEMAS: Final[dict[tuple[str, int], Schema]] = {}


def _read(answer: Any, until: float) -> bytes:
    content = b""
    while part := answer.read1(_CHUNK):
        content += part
        if len(content) > SCHEMA_BYTES_MAX:
            raise ValueError("its answer is larger than 1 MiB")
        if monotonic() > until:
            raise TimeoutError
    return content


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _reason(error: object) -> str:
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted ({error.verify_message})"
        case TimeoutError():
            return f"it did not answer within {TIMEOUT_S:g} s"
        case OSError():
            return error.strerror or "the connection broke"
        case _:
            return str(error) or "the connection broke"

"""Where the schemas of Avro values come from: a file, or a registry that values name them in."""

import json
import ssl
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from time import monotonic
from typing import IO, Any, Final
from urllib.parse import urlsplit

import pyarrow as pa

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import QuarantineReason as Reason
from holdfast.spark_app.input.avro import SCHEMA_BYTES_MAX, AvroParser, Schema, prepare
from holdfast.spark_app.input.avro_bytes import SchemaUnusable
from holdfast.spark_app.input.events import Fault, Parsed
from holdfast.spark_app.input.kafka_options import read_reference

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


REGISTRY = "registry"

_OWN_HOST = ("localhost", "127.0.0.1", "::1")


class Schemas:
    """The schemas of one job; `recorded` is what its checkpoint keeps of them."""

    def __init__(self, source: Schema | Registry) -> None:
        """`source`: the schema of all values, or the registry in which each value names its own."""
        self._source = source
        self.recorded = REGISTRY if isinstance(source, Registry) else f"sha256:{source.fingerprint}"

    def parser(self) -> Callable[[pa.Array], Parsed]:
        """Return the function that parses values."""
        source = self._source
        return AvroParser(source.schema if isinstance(source, Registry) else source)

    def require(self) -> None:
        """Raise CommandError where the registry does not answer: at a start, a person waits."""
        if isinstance(self._source, Registry):
            try:
                self._source.require()
            except RegistryAway as error:
                raise CommandError(
                    f"{error}. Nothing was started; check --schema-registry, its user and its"
                    " certificate.",
                    code="registry_unavailable",
                ) from error


def of_file(path: Path) -> Schemas:
    """Return the schemas of `--avro-schema`; raises CommandError."""
    try:
        content = path.read_bytes()
        if len(content) > SCHEMA_BYTES_MAX:
            raise _usage(f"--avro-schema {path} is larger than 1 MiB")
        schema = prepare(content.decode())
    except OSError as error:
        raise _usage(f"--avro-schema {path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, SchemaUnusable) as error:
        said = error if isinstance(error, SchemaUnusable) else "it is not text"
        raise _usage(f"--avro-schema {path}: {said}") from error
    if schema.faults:
        raise _usage(f"--avro-schema {path}: {schema.faults[0].detail}")
    return Schemas(schema)


def of_registry(url: str, user: str | None, ca: str | None) -> Schemas:
    """Return the schemas of `--schema-registry`; its user and certificate are references.

    Raises CommandError.
    """
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        valid = False
    if not valid or parts.username is not None or parts.query or parts.fragment:
        raise _usage(
            "--schema-registry is not an http:// or https:// URL without user and query; the user"
            " is --schema-registry-user"
        )
    if parts.scheme == "http" and (ca or (user and parts.hostname not in _OWN_HOST)):
        raise _usage(
            "--schema-registry-ca needs an https:// URL, and so does --schema-registry-user"
            " unless the registry is on this machine: http:// shows a password to the network"
        )
    secrets = [
        "" if given is None else _secret(option, given)
        for option, given in (("--schema-registry-user", user), ("--schema-registry-ca", ca))
    ]
    if user and ":" not in secrets[0]:
        raise _usage(f"--schema-registry-user {user}: expected NAME:PASSWORD in it")
    return Schemas(Registry(url, *secrets))


def _secret(option: str, reference: str) -> str:
    kind, colon, name = reference.partition(":")
    if not (colon and name) or kind not in ("env", "file"):
        raise _usage(f"{option} takes a reference, env:NAME or file:PATH, and not the value")
    return read_reference(f"{option} ", reference)


def _usage(said: str) -> CommandError:
    return CommandError(
        f"{said}. Nothing was started.", ExitCode.USAGE, code="invalid_schema_option"
    )

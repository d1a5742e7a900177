"""Where the schemas of Avro values come from: a file, or a registry that values name them in."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.spark_app.input.avro import SCHEMA_BYTES_MAX, AvroParser, Schema, prepare
from holdfast.spark_app.input.avro_bytes import SchemaUnusable
from holdfast.spark_app.input.events import Parsed
from holdfast.spark_app.input.kafka_options import read_reference
from holdfast.spark_app.input.registry import Registry, RegistryAway

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
                    " certificate."
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
    return CommandError(f"{said}. Nothing was started.", ExitCode.USAGE)

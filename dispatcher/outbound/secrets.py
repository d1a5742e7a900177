"""Resolves an endpoint's references, where the dispatcher runs.

The database holds references (`env:VAR`, `file:PATH`) to signing secrets, header values and
certificates, never their values. They are resolved at each load of the endpoints, so a rotation
takes effect without a restart.

`outbound.reference_rule` decides which references are allowed. The rule is enforced here, where a
reference is resolved, regardless of what stored it.
"""

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.dispatcher.outbound.endpoint import Endpoint, EndpointRow
from holdfast.dispatcher.outbound.operator_headers import headers_fault, is_reference, value_fault
from holdfast.dispatcher.outbound.reference_rule import ReferenceRule, is_below, is_usable_folder
from holdfast.dispatcher.outbound.target import Target
from holdfast.dispatcher.shared.text import spellings
from holdfast.receiver.errors import SecretError
from holdfast.receiver.message.secret import Secret

TEXT_BYTES_MAX = 4096
"""Maximum size of a secret or a header's value, including surrounding white space."""
PEM_BYTES_MAX = 1024 * 1024

_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
# O_PATH needs no right to list the folder, and exists on Linux alone.
_FOLDER = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)


@dataclass(frozen=True, slots=True)
class Material:
    """The resolved references of one endpoint; with a fault, nothing else is set."""

    secrets: tuple[Secret, ...] = ()
    """The active ones, in the order of their references."""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    ca_pem: bytes | None = field(default=None, repr=False)
    client_cert_pem: bytes | None = field(default=None, repr=False)
    client_key_pem: bytes | None = field(default=None, repr=False)
    hidden: tuple[str, ...] = field(default=(), repr=False)
    """Texts to mask in answers before they are stored or logged (`shared.text.hide`)."""
    fault: str | None = None
    exposed: tuple[str, ...] = ()
    """References to secret files that every user of this machine can read."""


class _UnusableError(Exception):
    """A reference that cannot be used. The message never quotes the value."""


def read_material(row: EndpointRow, rule: ReferenceRule) -> Material:
    """Resolve every reference of an endpoint. Blocks on files.

    One unusable reference is a fault of the endpoint: during a rotation the receiver may know only
    one of two secrets, and the dispatcher cannot know which.
    """
    endpoint = row.endpoint
    if fault := headers_fault(endpoint.headers):
        return Material(fault=fault)
    reader = _Reader(rule)
    try:
        secrets = tuple(reader.secret(reference) for reference in row.secret_refs)
        headers = tuple((name, reader.header(name, setting)) for name, setting in endpoint.headers)
        return Material(
            secrets=secrets,
            headers=headers,
            hidden=spellings([*reader.secret_texts, *(value for _, value in headers)]),
            ca_pem=reader.pem(endpoint.ca_ref),
            client_cert_pem=reader.pem(endpoint.client_cert_ref),
            client_key_pem=reader.pem(endpoint.client_key_ref, private=True),
            exposed=tuple(reader.exposed),
        )
    except _UnusableError as error:
        return Material(fault=str(error))


def target_of(endpoint: Endpoint, material: Material) -> Target:
    """Return the destination of the requests of `endpoint`."""
    return Target(
        endpoint_id=endpoint.id,
        url=endpoint.url,
        allowed=endpoint.allowed,
        connect_timeout=endpoint.connect_timeout,
        total_timeout=endpoint.total_timeout,
        ca_pem=material.ca_pem,
        client_cert_pem=material.client_cert_pem,
        client_key_pem=material.client_key_pem,
    )


class _Reader:
    """Resolves references and records files that every user can read."""

    def __init__(self, rule: ReferenceRule) -> None:
        self._rule = rule
        self.exposed: list[str] = []
        self.secret_texts: list[str] = []

    def secret(self, reference: str) -> Secret:
        content = self._read(reference, "signing secret", TEXT_BYTES_MAX, private=True)
        try:
            text = content.decode("ascii").strip()
            self.secret_texts.append(text)
            return Secret.parse(text)
        except UnicodeDecodeError:
            raise _UnusableError(f"{reference} holds no signing secret") from None
        except SecretError as error:
            raise _UnusableError(f"{reference}: {error}") from None

    def header(self, name: str, setting: str) -> str:
        if not is_reference(setting):
            return setting
        what = f"value of header {name}"
        content = self._read(setting, what, TEXT_BYTES_MAX, private=True)
        value = content.decode("latin-1").strip()
        if fault := value_fault(name, value):
            raise _UnusableError(f"{setting}: {fault}")
        return value

    def pem(self, reference: str | None, *, private: bool = False) -> bytes | None:
        if reference is None:
            return None
        what = "private key" if private else "certificate"
        return self._read(reference, what, PEM_BYTES_MAX, private=private)

    def _read(self, reference: str, what: str, bytes_max: int, *, private: bool) -> bytes:
        if not is_reference(reference):
            # The text may be the secret itself, so the message does not quote it.
            raise _UnusableError(
                f"a reference to a {what} is env:VAR or file:PATH, never the {what} itself"
            )
        if fault := self._rule.fault(reference):
            raise _UnusableError(fault)
        kind, _, name = reference.partition(":")
        if kind == "env":
            content = os.environ.get(name, "").encode(errors="surrogateescape")
        else:
            content, mode = _file(name, bytes_max, self._rule.folders)
            if private and mode & stat.S_IROTH:
                self.exposed.append(reference)
        if not content.strip():
            raise _UnusableError(
                f"the environment variable {name} is empty or not set"
                if kind == "env"
                else f"{reference} holds no {what}"
            )
        if len(content) > bytes_max:
            raise _UnusableError(f"{reference} holds no {what}: more than {bytes_max:,} bytes")
        return content


def _file(path: str, bytes_max: int, folders: Sequence[str]) -> tuple[bytes, int]:
    """Return at most `bytes_max` + 1 bytes of a file in one of `folders`, and its mode."""
    try:
        descriptor = _opened(path, folders)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise _UnusableError(f"file:{path} is not a regular file")
            return file.read(bytes_max + 1), mode
    except OSError as error:
        raise _UnusableError(f"file:{path}: {error.strerror or 'cannot be read'}") from None
    except ValueError:
        raise _UnusableError("a file's name cannot hold NUL") from None


def _opened(path: str, folders: Sequence[str]) -> int:
    """Open the file that `path` leads to; raises `_UnusableError` if it is outside `folders`.

    Symbolic links are resolved first and the result is checked. Then the file is opened from its
    folder, one path component at a time without following links, so a link that changes meanwhile
    cannot lead elsewhere.
    """
    try:
        return _walked(*_place(path, folders))
    except OSError:
        # A mounted secret is replaced as a whole: the resolved path is gone, so resolve it again.
        return _walked(*_place(path, folders))


def _place(path: str, folders: Sequence[str]) -> tuple[str, list[str]]:
    real = os.path.realpath(path, strict=True)
    for folder in map(os.path.realpath, folders):
        if is_usable_folder(folder) and is_below(real, folder):
            return folder, os.path.relpath(real, folder).split("/")
    raise _UnusableError(f"file:{path} is not allowed: a link leads out of its folder")


def _walked(folder: str, names: Sequence[str]) -> int:
    at = os.open(folder, _FOLDER)
    for name in names[:-1]:
        try:
            inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
        finally:
            os.close(at)
        at = inner
    try:
        # Non-blocking: opening a pipe would block every endpoint until a writer opens it.
        return os.open(names[-1], _FILE, dir_fd=at)
    finally:
        os.close(at)

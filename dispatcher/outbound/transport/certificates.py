"""TLS contexts: which authorities a target is verified with, and its client certificate."""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

import httpx

from holdfast.dispatcher.outbound.target import Target

_DESCRIPTORS = Path("/proc/self/fd")


class UnusablePemError(ValueError):
    """A certificate or a key cannot be used; the message quotes neither."""


def authorities(ca_pem: bytes | None) -> ssl.SSLContext:
    """Return a context for TLS 1.2 and later that trusts the system's authorities and `ca_pem`'s.

    The system's are those in OpenSSL's compiled-in paths, regardless of the environment. Where
    these hold none, they are `bundled_authorities`. Raises `UnusablePemError`.
    """
    paths = ssl.get_default_verify_paths()
    file, folder = Path(paths.openssl_cafile), Path(paths.openssl_capath)
    files = folder.is_dir() and list(folder.iterdir())
    if not (file.is_file() or files):
        return bundled_authorities(ca_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(file if file.is_file() else None, folder if files else None)
    return _completed(context, ca_pem)


def bundled_authorities(ca_pem: bytes | None) -> ssl.SSLContext:
    """Return the same with the authorities that httpx brings instead of the system's."""
    return _completed(httpx.create_ssl_context(trust_env=False), ca_pem)


def has_certificates(target: Target) -> bool:
    """Return whether the target needs a context of its own."""
    return (target.ca_pem, target.client_cert_pem, target.client_key_pem) != (None, None, None)


def extend(context: ssl.SSLContext, target: Target) -> ssl.SSLContext:
    """Let `context` trust the target's authorities too and show its client certificate.

    Returns `context`. Raises `UnusablePemError`.
    """
    if target.ca_pem is not None:
        _trust(context, target.ca_pem)
    certificate, key = target.client_cert_pem, target.client_key_pem
    if (certificate is None) is not (key is None):
        missing = "key" if key is None else "certificate"
        raise UnusablePemError(f"its client certificate has no {missing}")
    if certificate is not None and key is not None:
        _identify(context, certificate, key)
    return context


def _completed(context: ssl.SSLContext, ca_pem: bytes | None) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_pem is not None:
        _trust(context, ca_pem)
    return context


def _trust(context: ssl.SSLContext, ca_pem: bytes) -> None:
    try:
        context.load_verify_locations(cadata=ca_pem.decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise UnusablePemError("its CA certificates are not valid PEM") from None


def _identify(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    # Python loads a chain only from a file.
    with _as_file(certificate.rstrip() + b"\n" + key) as path:
        try:
            context.load_cert_chain(path, password=_no_password)
        except (ssl.SSLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or "not valid PEM"
            reason_text = str(reason).replace("_", " ").lower()
            raise UnusablePemError(
                f"its client certificate and key cannot be used: {reason_text}"
            ) from None


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Yield the path of a file that holds `content`.

    On Linux the file is in memory, has no name in any folder and disappears with this process,
    however that ends. Elsewhere it is a temporary file that only its owner may read; it is removed
    when the block ends, and a process that is killed within the block leaves it behind.
    """
    descriptor = _memory()
    if descriptor is None:
        with NamedTemporaryFile(prefix="holdfast-") as file:
            file.write(content)
            file.flush()
            yield file.name
        return
    with os.fdopen(descriptor, "wb") as memory:
        memory.write(content)
        memory.flush()
        yield f"{_DESCRIPTORS}/{descriptor}"


def _memory() -> int | None:
    """Return a file in memory that has a path, or None where the system has none."""
    try:
        return os.memfd_create("holdfast-client-key") if _DESCRIPTORS.is_dir() else None
    except (AttributeError, OSError):  # not Linux, or forbidden here
        return None


def _no_password() -> str:
    """Return no password, where OpenSSL would ask a terminal for one."""
    return ""

"""Certificates for tests that are wrong in one way, and servers that show them."""

import ssl
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme

NOW = datetime.now(UTC)


class Authority:
    """A certificate authority of a test."""

    def __init__(self) -> None:
        self._ca = trustme.CA()
        self.pem = self._ca.cert_pem.bytes()

    def file(self, folder: Path) -> Path:
        path = folder / "ca.pem"
        path.write_bytes(self.pem)
        return path

    def server(self, name: str = "localhost", *, days: tuple[int, int] = (-1, 1)) -> ssl.SSLContext:
        """TLS of a server of this name, valid from and until so many days from now."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        first, last = (NOW + timedelta(days=day) for day in days)
        issued = self._ca.issue_cert(name, not_before=first, not_after=last)
        issued.configure_cert(context)
        return context

    def client(self, name: str = "dispatcher@example.org") -> tuple[bytes, bytes]:
        """The certificate chain and the key of a client."""
        issued = self._ca.issue_cert(name)
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        return chain, issued.private_key_pem.bytes()

    def demand(self, context: ssl.SSLContext) -> ssl.SSLContext:
        """Let a server ask for a client certificate of this authority."""
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=self.pem.decode())
        return context


def self_signed() -> ssl.SSLContext:
    """TLS of a server whose certificate nobody but itself has signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own = trustme.CA()
    with own.cert_pem.tempfile() as certificate, own.private_key_pem.tempfile() as key:
        context.load_cert_chain(certificate, key)
    return context


def old(context: ssl.SSLContext, version: ssl.TLSVersion) -> ssl.SSLContext:
    """Let a server speak this old version alone."""
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        context.minimum_version = context.maximum_version = version
    return context

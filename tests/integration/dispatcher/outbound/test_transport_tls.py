"""Whom an encrypted connection is made with: a real socket, every engine.

What fails before the handshake is over has not sent anything.
"""

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread

import pytest

from holdfast.dispatcher.outbound.target import Target
from holdfast.dispatcher.outbound.transport.certificates import authorities, bundled_authorities
from holdfast.dispatcher.outbound.transport.transport import Progress
from holdfast.dispatcher.shared.outcome import Answer, NoAnswer, NotSent, Refused, Response
from tests.support.dispatch import webhooks
from tests.support.dispatch.transports import LOOPBACK, REQUEST, Sending, each_engine
from tests.support.dispatch.webhooks import WebhookReceiver
from tests.support.servers.certificates import Authority, old, self_signed

pytestmark = [pytest.mark.rest, each_engine]

AUTHORITY, STRANGER = Authority(), Authority()


@contextmanager
def receiving(context: ssl.SSLContext) -> Iterator[tuple[WebhookReceiver, str]]:
    with webhooks.listening(context) as receiver:
        yield receiver, receiver.url.replace("127.0.0.1", "localhost")


@pytest.fixture
def ca_file(tmp_path: Path) -> Path:
    return AUTHORITY.file(tmp_path)


def test_authority_of_the_process_is_trusted(send: Sending, ca_file: Path) -> None:
    with receiving(AUTHORITY.server()) as (receiver, url):
        assert send.often(url, 2, ca_file=ca_file) == [Response(200)] * 2
        assert receiver.connections == 1


def test_authority_of_a_target_is_trusted_only_there(send: Sending) -> None:
    with receiving(AUTHORITY.server()) as (receiver, url):

        async def work() -> list[Answer]:
            transport = send.open()
            targets = [
                Target(1, url, LOOPBACK, 5, 10, ca_pem=AUTHORITY.pem),
                Target(2, url, LOOPBACK, 5, 10),
                Target(3, url, LOOPBACK, 5, 10, ca_pem=STRANGER.pem),
            ]
            try:
                return [await transport.send(each, REQUEST, Progress()) for each in targets]
            finally:
                await transport.close()

        theirs, *others = send.run(work())
        assert theirs == Response(200)
        assert all(isinstance(answer, NotSent) for answer in others), others
        assert len(receiver.seen) == 1


SERVERS = {
    "self-signed": self_signed,
    "unknown authority": STRANGER.server,
    "wrong host": lambda: AUTHORITY.server("elsewhere.test"),
    "its address": lambda: AUTHORITY.server("127.0.0.1"),
    "expired": lambda: AUTHORITY.server(days=(-9, -1)),
    "not yet valid": lambda: AUTHORITY.server(days=(1, 9)),
    "TLS 1.0": lambda: old(AUTHORITY.server(), ssl.TLSVersion.TLSv1),
    "TLS 1.1": lambda: old(AUTHORITY.server(), ssl.TLSVersion.TLSv1_1),
}


@pytest.mark.parametrize("server", SERVERS.values(), ids=SERVERS.keys())
def test_server_that_cannot_prove_itself_gets_nothing(
    send: Sending, ca_file: Path, server: Callable[[], ssl.SSLContext]
) -> None:
    with receiving(server()) as (receiver, url):
        answer = send(url, ca_file=ca_file)
        assert isinstance(answer, NotSent), answer
        assert receiver.seen == []


def test_certificate_must_be_for_the_name_and_not_for_the_address(
    send: Sending, ca_file: Path
) -> None:
    with receiving(AUTHORITY.server()) as (receiver, _):
        answer = send(receiver.url, ca_file=ca_file)
        assert isinstance(answer, NotSent), answer


@pytest.mark.parametrize("made", [authorities, bundled_authorities])
def test_nothing_below_tls_1_2_is_spoken(
    send: Sending, made: Callable[[bytes | None], ssl.SSLContext]
) -> None:
    """Also where the system's OpenSSL, unlike most, would speak it."""
    del send
    assert made(None).minimum_version is ssl.TLSVersion.TLSv1_2


def test_tls_1_2_is_spoken(send: Sending, ca_file: Path) -> None:
    context = AUTHORITY.server()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with receiving(context) as (_, url):
        assert send(url, ca_file=ca_file) == Response(200)


def test_authorities_of_the_environment_are_ignored(
    send: Sending, ca_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(ca_file))
    monkeypatch.setenv("SSL_CERT_DIR", str(ca_file.parent))
    with receiving(AUTHORITY.server()) as (receiver, url):
        assert isinstance(send(url), NotSent)
        assert receiver.seen == []


def test_plain_http_on_the_tls_port_is_not_sent(send: Sending) -> None:
    with _saying(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        answer = send(f"https://localhost:{port}/")
    assert isinstance(answer, NotSent), answer


@pytest.mark.parametrize("start", [b"", b"\x16", b"\x16\x03\x03\x00\x7a\x02\x00"])
def test_truncated_handshake_is_not_sent(send: Sending, start: bytes) -> None:
    with _saying(start) as port:
        answer = send(f"https://localhost:{port}/")
    assert isinstance(answer, NotSent), answer


def test_handshake_that_hangs_is_not_sent(send: Sending, receiver: WebhookReceiver) -> None:
    url = receiver.url.replace("http:", "https:")
    assert isinstance(send(url, total=0.5), NotSent)
    assert receiver.seen == []


def test_client_certificate_is_shown_where_it_is_demanded(send: Sending) -> None:
    certificate, key = AUTHORITY.client()
    mine = {"ca_pem": AUTHORITY.pem, "client_cert_pem": certificate, "client_key_pem": key}
    with receiving(AUTHORITY.demand(AUTHORITY.server())) as (receiver, url):
        assert send.often(url, 2, **mine) == [Response(200)] * 2
        assert len(receiver.seen) == 2


@pytest.mark.parametrize("known", [True, False], ids=["none", "a stranger's"])
def test_client_without_the_demanded_certificate_gets_no_answer(send: Sending, known: bool) -> None:
    certificate, key = STRANGER.client()
    shown = {} if known else {"client_cert_pem": certificate, "client_key_pem": key}
    with receiving(AUTHORITY.demand(AUTHORITY.server())) as (receiver, url):
        # In TLS 1.3 a server refuses a client after the client may have written.
        answer = send(url, ca_pem=AUTHORITY.pem, **shown)
        assert isinstance(answer, NotSent | NoAnswer), answer
        assert receiver.seen == []


def test_pem_that_can_be_used_is_no_fault(send: Sending) -> None:
    certificate, key = AUTHORITY.client()
    target = Target(1, "https://localhost/", LOOPBACK, 5, 5, AUTHORITY.pem, certificate, key)
    assert send.fault(target) is None
    assert send.fault(Target(1, "https://localhost/", LOOPBACK, 5, 5)) is None


CERTIFICATE, KEY = AUTHORITY.client()
OTHER_KEY = AUTHORITY.client()[1]
JUNK = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
UNUSABLE: dict[str, tuple[bytes | None, bytes | None, bytes | None]] = {
    "authority: empty": (b"", None, None),
    "authority: no PEM": (b"secret words", None, None),
    "authority: junk": (JUNK, None, None),
    "authority: not ASCII": (b"\xff", None, None),
    "no key": (None, CERTIFICATE, None),
    "no certificate": (None, None, KEY),
    "another's key": (None, CERTIFICATE, OTHER_KEY),
    "key is no PEM": (None, CERTIFICATE, b"secret words"),
    "certificate is no PEM": (None, b"secret words", KEY),
}


@pytest.mark.parametrize("pems", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_unusable_pem_is_an_explained_fault(
    send: Sending, pems: tuple[bytes | None, bytes | None, bytes | None]
) -> None:
    ca, certificate, key = pems
    fault = send.fault(Target(1, "https://localhost/", LOOPBACK, 5, 5, ca, certificate, key))
    assert fault is not None
    assert "certificate" in fault
    assert not any(word in fault for word in ("secret words", "AAAA", "BEGIN", "holdfast-"))
    material = {"ca_pem": ca, "client_cert_pem": certificate, "client_key_pem": key}
    assert isinstance(send("https://localhost:1/", **material), Refused)


def test_key_is_left_nowhere(
    send: Sending, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    target = Target(1, "https://localhost/", LOOPBACK, 5, 5, None, CERTIFICATE, KEY)
    assert send.fault(target) is None
    assert list(tmp_path.iterdir()) == []
    assert KEY.decode()[40:60] not in repr(target)


@contextmanager
def _saying(data: bytes) -> Iterator[int]:
    """A port that answers the first bytes of anybody with `data`, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as stack:

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    client.recv(65_536)
                    client.sendall(data)

        thread = Thread(target=serve)
        thread.start()
        stack.callback(thread.join)
        stack.callback(lambda: listener.shutdown(socket.SHUT_RDWR))
        yield listener.getsockname()[1]

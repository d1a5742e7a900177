"""Asking a receiver over HTTP: what is sent, how often, and to whom."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_network

import pytest

from holdfast.dispatcher.operators.receipts.key_inquiry import QUESTIONS_AT_ONCE, Inquirer
from holdfast.dispatcher.outbound.endpoint import Endpoint, EndpointRow
from holdfast.dispatcher.outbound.inquiry_answer import InquiryError
from holdfast.dispatcher.outbound.secrets import Material
from holdfast.receiver.message.secret import Secret
from holdfast.sink.contract.states import OrderPolicy
from tests.support.dispatch.sender import key_of, receipt, secret_text, sign
from tests.support.servers.threads import in_threads

KEYS = [key_of("m_482", n) for n in range(40)]
MATERIAL = Material(secrets=(Secret.parse(secret_text()),), headers=(("x-tenant", "canary"),))


def row_of(url: str) -> EndpointRow:
    endpoint = Endpoint(
        id=1,
        name="payouts",
        url=url,
        allowed=(ip_network("127.0.0.0/8"), ip_network("::1/128")),
        connect_timeout=2,
        total_timeout=5,
        concurrency=64,
        schedule_seconds=(5,),
        order_policy=OrderPolicy.STOP,
    )
    return EndpointRow(endpoint, active=True, secret_refs=("env:S",))


@dataclass(frozen=True)
class Seen:
    """A question as it arrived, its headers by lower-case name."""

    target: str
    headers: dict[str, str]
    connection: tuple[str, int]


Answer = tuple[int, bytes]


def known(seen: Seen) -> Answer:
    content = {"key": seen.target.rpartition("/")[2], "outcome": "applied", "applied_at": "T"}
    return 200, json.dumps({**content, "receipt": receipt(content)}).encode()


@dataclass
class Asked:
    """A receiver of questions; everything it saw is in `seen`."""

    url: str
    script: Callable[[Seen], Answer] = known
    seen: list[Seen] = field(default_factory=list)


@pytest.fixture
def receiver() -> Iterator[Asked]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            seen = Seen(self.path, headers, self.client_address)
            asked.seen.append(seen)
            status, body = asked.script(seen)
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    asked = Asked(f"http://127.0.0.1:{server.server_port}")
    with in_threads(server):
        yield asked


def test_each_key_has_one_signed_inquiry_on_few_connections(receiver: Asked) -> None:
    with Inquirer(receiver.url, row_of(f"{receiver.url}/webhooks"), MATERIAL) as inquirer:
        result = inquirer.known(KEYS)
        assert list(inquirer.known([])) == []
    assert result.keys() == set(KEYS)
    assert {each.target for each in receiver.seen} == {f"/holdfast/keys/{key}" for key in KEYS}
    assert len(receiver.seen) == len(KEYS)
    assert len({each.connection for each in receiver.seen}) <= QUESTIONS_AT_ONCE
    for each in receiver.seen:
        key, timestamp = each.headers["webhook-id"], each.headers["webhook-timestamp"]
        assert each.target.endswith(key)
        assert each.headers["webhook-signature"] == sign(key, timestamp, b"")
        assert each.headers["x-tenant"] == "canary"
        assert "content-length" not in each.headers


def test_endpoint_headers_go_only_to_its_own_origin(receiver: Asked) -> None:
    with Inquirer(receiver.url, row_of("https://payouts.example/webhooks"), MATERIAL) as inquirer:
        assert inquirer.known(KEYS[:1])
    assert "x-tenant" not in receiver.seen[0].headers


def test_busy_receiver_is_asked_again(receiver: Asked) -> None:
    receiver.script = lambda seen: (503, b"") if len(receiver.seen) == 1 else known(seen)
    with Inquirer(receiver.url, row_of(receiver.url), MATERIAL) as inquirer:
        assert inquirer.known(KEYS[:1]).keys() == set(KEYS[:1])
    assert len(receiver.seen) == 2


def test_one_unproven_answer_ends_the_inquiry(receiver: Asked) -> None:
    receiver.script = lambda seen: (302, b"") if seen.target.endswith(KEYS[3]) else known(seen)
    with (
        Inquirer(receiver.url, row_of(receiver.url), MATERIAL) as inquirer,
        pytest.raises(InquiryError, match="it answered 302"),
    ):
        inquirer.known(KEYS)


def test_unusable_address_is_refused(receiver: Asked) -> None:
    row = row_of(receiver.url)
    for url, words in (
        ("ftp://x", "not http"),
        (f"{receiver.url}/?key=", "query"),
        (f"{receiver.url}/a b", "spaces"),
    ):
        with pytest.raises(InquiryError, match=words):
            Inquirer(url, row, MATERIAL)
    nowhere = replace(row, endpoint=replace(row.endpoint, allowed=()))
    with (
        Inquirer(receiver.url, nowhere, MATERIAL) as inquirer,
        pytest.raises(InquiryError, match="private"),
    ):
        inquirer.known(KEYS[:1])

"""A delivery through other people's frameworks, each behind a real server: FastAPI and WSGI.

Each receiver has the same inbox on the same database; the requests come over HTTP.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import Annotated, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import httpx
import psycopg
import pytest
import uvicorn
from fastapi import Depends, FastAPI, Response

from holdfast.deploy.payouts import server
from holdfast.receiver import (
    Delivery,
    Inbox,
    Inquiry,
    Receipt,
    Secret,
    answer,
    answer_inquiry,
    unknown_key,
)
from holdfast.receiver.fastapi import answer_problems, respond, verified_delivery, verified_inquiry
from holdfast.receiver.wsgi import DeliveriesApp
from holdfast.sink.contract.wire import INQUIRY_PATH, KEY_WINDOW
from tests.support.dispatch.inboxes import receiving
from tests.support.dispatch.payouts import inquiry_headers
from tests.support.dispatch.sender import KEY_BYTES, OTHER_KEY_BYTES, Sent, body, headers, key_of
from tests.support.dispatch.sender import receipt as expected_receipt
from tests.support.waiting import eventually

SECRETS = [Secret(KEY_BYTES)]
INBOX = Inbox()
LIMIT = 256 * 1024


def deal_on(dsn: str) -> Callable[[Delivery], Receipt]:
    def deal(delivery: Delivery) -> Receipt:
        delivery.body.require_type("payout_hold.block", "payout_hold.release")
        subject = delivery.body.text("merchant_id")
        with (
            psycopg.connect(dsn, autocommit=True) as connection,
            receiving(connection, delivery, subject) as receipt,
        ):
            pass
        return receipt

    return deal


@contextmanager
def through_fastapi(dsn: str) -> Iterator[str]:
    app = FastAPI()
    answer_problems(app)
    deal = deal_on(dsn)

    @app.post("/webhooks")
    def webhook(delivery: Annotated[Delivery, Depends(verified_delivery(SECRETS))]) -> Response:
        return respond(answer(deal(delivery), delivery.secret))

    @app.get(INQUIRY_PATH + "{key}")
    def inquiry(inquiry: Annotated[Inquiry, Depends(verified_inquiry(SECRETS))]) -> Response:
        with psycopg.connect(dsn) as connection:
            i_n_b_o_x = INBOX.inquire_sync(connection, inquiry.key)
        return respond(answer_inquiry(i_n_b_o_x, inquiry.secret) if i_n_b_o_x else unknown_key())

    with served_by_uvicorn(app) as url:
        yield url


@contextmanager
def served_by_uvicorn(app: FastAPI) -> Iterator[str]:
    running = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", ws="none"))
    with server.bind("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            eventually(lambda: running.started)
            yield server.url_of(listener)
        finally:
            running.should_exit = True
            thread.join()


class _Threads(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def through_wsgi(dsn: str) -> Iterator[str]:
    def look(inquiry: Inquiry) -> Receipt | None:
        with psycopg.connect(dsn) as connection:
            return INBOX.inquire_sync(connection, inquiry.key)

    with _Threads(("127.0.0.1", 0), _Quiet) as running:
        running.set_app(DeliveriesApp(SECRETS, deal_on(dsn), look=look))
        thread = threading.Thread(target=running.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_port}"
        finally:
            running.shutdown()
            thread.join()


@pytest.fixture(params=[through_fastapi, through_wsgi], ids=["FastAPI", "WSGI"])
def url(request: pytest.FixtureRequest, payouts_dsn: str) -> Iterator[str]:
    with request.param(payouts_dsn) as url:
        yield url


def send(url: str, sent: Sent) -> httpx.Response:
    return httpx.post(f"{url}/webhooks", content=sent.content, headers=sent.headers, timeout=30)


def ask(url: str, key: str, secret: bytes = KEY_BYTES) -> httpx.Response:
    return httpx.get(f"{url}{INQUIRY_PATH}{key}", headers=inquiry_headers(key, secret), timeout=30)


def test_delivery_is_applied_once_and_answered_with_proof(url: str) -> None:
    first, again = (send(url, Sent.of("m_482", "block", 1)) for _ in range(2))
    assert (first.status_code, first.json()["outcome"]) == (200, "applied")
    assert (again.status_code, again.json()["outcome"]) == (200, "duplicate")
    assert first.json()["receipt"] == expected_receipt(first.json())
    assert again.headers["idempotency-replayed"] == "true"
    assert first.headers[KEY_WINDOW] == again.headers[KEY_WINDOW] == "3888000"


def test_two_duplicates_at_once_are_applied_once(url: str) -> None:
    sent = Sent.of("m_482", "block", 1)
    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(lambda _: send(url, sent), range(10)))
    outcomes = [answer.json()["outcome"] for answer in answers]
    assert outcomes.count("applied") == 1
    assert set(outcomes) <= {"applied", "duplicate", "in_progress"}


def test_refusals_are_problems(url: str) -> None:
    content = body("m_482", "block", 2)
    refused = [
        (Sent(content, headers(content, key=OTHER_KEY_BYTES)), 401, "no_match"),
        (Sent(content, headers(content, timestamp=1)), 401, "too_old"),
        (Sent(content + b" ", headers(content)), 401, "no_match"),
        (Sent(content), 400, "missing_header"),
        (Sent(bytes(LIMIT + 1)), 413, "body_too_large"),
        (Sent.of("m_482", "block", 2, type="refund.block"), 400, "unknown_type"),
        (Sent.of("m_482", "block", 2, data={}), 422, "bad_data"),
        (Sent.of("m_482", "block", 2, data={"merchant_id": None}), 422, "bad_data"),
        (Sent.of("m_482", "block", 2, data={"merchant_id": ["m_482"]}), 422, "bad_data"),
        (Sent.of("m_482", "block", 2, data=None), 400, "bad_body"),
        (Sent.of("m_482", "block", 2, data=[]), 400, "bad_body"),
    ]
    for sent, status, reason in refused:
        answered = send(url, sent)
        assert (answered.status_code, answered.json()["reason"]) == (status, reason)
        assert answered.headers["content-type"] == "application/problem+json"
    assert httpx.get(f"{url}/webhooks").status_code == 405


def test_inquiry_reports_a_key_only_to_signers(url: str) -> None:
    key = key_of("m_482", 1)
    assert ask(url, key).json()["reason"] == "unknown_key"
    applied = send(url, Sent.of("m_482", "block", 1)).json()
    known = ask(url, key)
    assert known.status_code == 200
    assert {name: known.json()[name] for name in applied} == applied
    assert ask(url, key, OTHER_KEY_BYTES).status_code == 401
    assert ask(url, "m_482").status_code == 400
    signed = inquiry_headers(key)
    bodied = httpx.request("GET", f"{url}{INQUIRY_PATH}{key}", headers=signed, content=b"{}")
    assert bodied.json()["reason"] == "bad_body"
    assert httpx.get(f"{url}{INQUIRY_PATH}{key}").json()["reason"] == "missing_header"


def test_fastapi_needs_no_handler_for_a_refusal(payouts_dsn: str) -> None:
    app = FastAPI()
    deal = deal_on(payouts_dsn)

    @app.post("/webhooks")
    def webhook(delivery: Annotated[Delivery, Depends(verified_delivery(SECRETS))]) -> Response:
        return respond(answer(deal(delivery), delivery.secret))

    with served_by_uvicorn(app) as url:
        refused = send(url, Sent.of("m_482", "block", 2, data={}))
    assert (refused.status_code, refused.json()["detail"]["reason"]) == (422, "bad_data")

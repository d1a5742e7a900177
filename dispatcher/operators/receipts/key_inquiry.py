"""Inquires at a receiver for the outcome of keys: signed HTTP requests, several at once.

The protocol is section 8 of `docs/receivers/PROTOCOL.md`; `inquiry_answer` checks each
answer. An invalid answer ends the inquiries, because there is nothing to compare with.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

from holdfast.dispatcher.outbound.endpoint import EndpointRow
from holdfast.dispatcher.outbound.inquiry_answer import (
    Answer,
    InquiryError,
    ReceiverRecord,
    asked_seconds,
    judged,
    may_pass,
)
from holdfast.dispatcher.outbound.request import USER_AGENT
from holdfast.dispatcher.outbound.secrets import Material
from holdfast.dispatcher.outbound.signing import Signer
from holdfast.dispatcher.outbound.target import Target, url_fault
from holdfast.dispatcher.outbound.transport.getting import Getter, UnusableTargetError
from holdfast.dispatcher.shared.clock import seconds
from holdfast.sink.contract.wire import (
    INQUIRY_PATH,
    WEBHOOK_ID,
    WEBHOOK_SIGNATURE,
    WEBHOOK_TIMESTAMP,
)

QUESTIONS_AT_ONCE = 16
PAUSES_SECONDS = (0.2, 1.0, 4.0)
"""Pauses between the tries of an inquiry that may succeed later."""


class Inquirer:
    """Inquires for keys at one receiver. A context manager; blocks."""

    def __init__(
        self, url: str, row: EndpointRow, material: Material, at: datetime | None = None
    ) -> None:
        """`url` is the part of the URL before the key; its path defaults to `INQUIRY_PATH`.

        `at` is the database's time, with which a dispatcher signs; None: this machine's.
        Headers and the client certificate of the endpoint go to its own origin alone. Raises
        `InquiryError` for an address or certificates that cannot be used.
        """
        endpoint = row.endpoint
        if fault := url_fault(url):
            raise InquiryError(fault)
        parts, home = urlsplit(url), urlsplit(endpoint.url)
        own = (parts.scheme, parts.netloc) == (home.scheme, home.netloc)
        target = Target(
            endpoint_id=endpoint.id,
            url=urlunsplit((*parts[:2], "/", "", "")),
            allowed=endpoint.allowed,
            connect_timeout=endpoint.connect_timeout,
            total_timeout=endpoint.total_timeout,
            ca_pem=material.ca_pem,
            client_cert_pem=material.client_cert_pem if own else None,
            client_key_pem=material.client_key_pem if own else None,
        )
        if not parts.path.isascii() or parts.query:
            raise InquiryError("its URL holds a query, or characters beyond ASCII")
        try:
            self._getter = Getter(target)
        except UnusableTargetError as error:
            raise InquiryError(str(error)) from None
        self._path = f"{parts.path.rstrip('/')}/" if parts.path.strip("/") else INQUIRY_PATH
        self._headers = (
            ("user-agent", USER_AGENT),
            ("accept-encoding", "identity"),
            *(material.headers if own else ()),
        )
        self._secrets = material.secrets
        self._signer = Signer(material.secrets)
        self._seconds = endpoint.total_timeout
        self._at_once = min(QUESTIONS_AT_ONCE, endpoint.concurrency)
        self._ahead = (at or datetime.now(UTC)).timestamp() - seconds()
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._runner:
            self._runner.run(self._getter.close())

    def known(self, keys: Sequence[str]) -> dict[str, ReceiverRecord]:
        """Return what the receiver knows of `keys`, without those that it does not know.

        Raises `InquiryError` when one of them gets no valid answer.
        """
        return self._runner.run(self._ask_all(keys))

    async def _ask_all(self, keys: Sequence[str]) -> dict[str, ReceiverRecord]:
        waiting = iter(keys)
        records: dict[str, ReceiverRecord] = {}

        async def ask_some() -> None:
            for key in waiting:
                record = await self._ask(key)
                if record is not None:
                    records[key] = record

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._at_once, len(keys))):
                    group.create_task(ask_some())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return records

    async def _ask(self, key: str) -> ReceiverRecord | None:
        for pause in PAUSES_SECONDS:
            answer = await self._get(key)
            if not may_pass(answer):
                break
            await asyncio.sleep(max(pause, asked_seconds(answer)))
        else:
            answer = await self._get(key)
        return judged(answer, key, self._secrets)

    async def _get(self, key: str) -> Answer:
        timestamp = int(seconds() + self._ahead)
        headers = (
            *self._headers,
            (WEBHOOK_ID, key),
            (WEBHOOK_TIMESTAMP, str(timestamp)),
            (WEBHOOK_SIGNATURE, self._signer.sign(key, timestamp, b"")),
        )
        return await self._getter.get(f"{self._path}{key}", headers, self._seconds)

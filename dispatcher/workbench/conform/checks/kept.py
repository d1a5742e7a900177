"""Stored keys, inquiries, receipts and response times.

These checks run last, because some examine all answers of the run.
"""

import asyncio
import hashlib
import time
from typing import Any

from holdfast.dispatcher.workbench.conform import judge, rules
from holdfast.dispatcher.workbench.conform.kit import Kit
from holdfast.dispatcher.workbench.conform.reply import Reply
from holdfast.dispatcher.workbench.conform.rules import Grade, Verdict
from holdfast.dispatcher.workbench.conform.sample import Delivery, unknown_key
from holdfast.dispatcher.workbench.conform.shot import Shot, signature
from holdfast.receiver.message.receipt import receipt_is_genuine
from holdfast.sink.contract.wire import (
    KEY_WINDOW,
    TOLERANCE_SECONDS,
    WEBHOOK_ID,
    WEBHOOK_SIGNATURE,
    WEBHOOK_TIMESTAMP,
    ReceiptOutcome,
)

_NOT_OFFERED = "not offered; it is optional"


async def kept(kit: Kit) -> list[Verdict]:
    """Once the first key has the age of the plan, inquire for it and send it again."""
    delivery, first, sent_at = _first(kit)
    await asyncio.sleep(max(0.0, sent_at + kit.plan.patient_seconds - time.monotonic()))
    asked = await ask(kit, delivery.key)
    age = time.monotonic() - sent_at
    reply = await kit.send_settled(delivery)
    verdict = judge.once(rules.KEYS_KEPT, reply, await kit.count(delivery))
    if verdict.grade is Grade.FAIL:
        return [rules.KEYS_KEPT.failed(f"after {age:.1f} s: {verdict.detail}")]
    if _denies(asked):
        return [rules.KEYS_KEPT.failed(f"after {age:.1f} s an inquiry was answered {asked}")]
    if verdict.grade is Grade.WARN:
        return [verdict]
    declared = first.headers.get(KEY_WINDOW, "")
    declares_enough = (judge.window_seconds(declared) or 0) >= judge.WINDOW_SECONDS_MIN
    if age > TOLERANCE_SECONDS or declares_enough:
        shown = f"; {KEY_WINDOW}: {declared}" if declares_enough else ""
        return [rules.KEYS_KEPT.passed(f"known after {age:.0f} s{shown}")]
    return [
        rules.KEYS_KEPT.warned(
            f"known after {age:.0f} s, but no {KEY_WINDOW} declares for how long; try --patient 6m"
        )
    ]


async def window(kit: Kit) -> list[Verdict]:
    """Grade the key window of the first answer."""
    return [judge.window(_first(kit)[1].headers.get(KEY_WINDOW))]


async def inquiry(kit: Kit) -> list[Verdict]:
    """Inquire for the first key, signed and unsigned, and for a key that was never sent."""
    delivery, first, _ = _first(kit)
    known = await ask(kit, delivery.key)
    guarded, unknown = rules.INQUIRY_GUARDED, rules.INQUIRY_UNKNOWN
    if not _offered(known):
        return [rule.passed(_NOT_OFFERED) for rule in (rules.INQUIRY_KNOWN, guarded, unknown)]
    unsigned = await ask(kit, delivery.key, signed=False)
    nobody = await ask(kit, unknown_key(kit.plan.sample.seed))
    return [
        _told(delivery, first, known),
        judge.refused(guarded, unsigned, 400),
        unknown.passed(f"answered {nobody}")
        if nobody.status == 404
        else unknown.failed(f"answered {nobody}"),
    ]


async def ask(kit: Kit, key: str, *, signed: bool = True) -> Reply:
    """Send an inquiry (PROTOCOL.md section 8); raises `GaveUp`."""
    now = str(int(time.time()))
    headers = [(WEBHOOK_ID, key), (WEBHOOK_TIMESTAMP, now)]
    if signed:
        headers.append((WEBHOOK_SIGNATURE, signature(kit.plan.secret.key, key, now, b"")))
    raw = tuple((name.encode(), value.encode()) for name, value in headers)
    url = kit.plan.inquiry_url.replace("{key}", key)
    return await kit.client.send(Shot(key, raw, b"", "GET"), url)


async def receipts(kit: Kit) -> list[Verdict]:
    """Verify the receipt of every 2xx answer that has one."""
    secrets = [kit.plan.secret, *([kit.plan.second_secret] if kit.plan.second_secret else [])]
    checked = 0
    for shot, reply in kit.client.exchanges:
        content = reply.content if reply.is_success else {}
        receipt = content.get("receipt")
        if receipt is None:
            continue
        checked += 1
        key, outcome = content.get("key"), reply.outcome
        applied_at: Any = content.get("applied_at")
        texts = isinstance(receipt, str) and isinstance(applied_at, str)
        if key != shot.key or outcome is None or not texts:
            return [rules.RECEIPT_GENUINE.failed(f"the receipt of {shot.key} is incomplete")]
        if not any(
            receipt_is_genuine(secret, key, outcome, applied_at, receipt) for secret in secrets
        ):
            return [rules.RECEIPT_GENUINE.failed(f"the receipt of {shot.key} is not genuine")]
    if not checked:
        return [rules.RECEIPT_GENUINE.passed("none received; they are optional")]
    return [rules.RECEIPT_GENUINE.passed(f"{checked} verified")]


async def deadline(kit: Kit) -> list[Verdict]:
    """Grade the slowest answer."""
    limit = kit.plan.deadline_seconds
    slowest = max(reply.seconds for _, reply in kit.client.exchanges)
    shown = f"the slowest of {len(kit.client.exchanges)} took {slowest:.2f} s of {limit:g} s"
    if slowest >= limit:
        return [rules.DEADLINE.failed(shown)]
    return [(rules.DEADLINE.warned if slowest > limit / 2 else rules.DEADLINE.passed)(shown)]


def _told(delivery: Delivery, first: Reply, known: Reply) -> Verdict:
    rule, content = rules.INQUIRY_KNOWN, known.content
    if not known.is_success:
        return rule.failed(f"answered {known}")
    if content.get("key") != delivery.key:
        return rule.failed("the answer has another key")
    if known.outcome is not ReceiptOutcome.APPLIED:
        return rule.failed(f"answered {known}; the first answer was `applied`")
    if content.get("body_sha256") != hashlib.sha256(delivery.body).hexdigest():
        return rule.failed("body_sha256 does not match the body sent")
    if first.outcome and content.get("applied_at") != first.content.get("applied_at"):
        return rule.failed("applied_at differs from the first answer")
    return rule.passed(f"answered {known}")


def _offered(asked: Reply) -> bool:
    """Return whether an answer comes from an inquiry endpoint, and not from some other page."""
    if asked.is_success:
        return "outcome" in asked.content
    if asked.status == 404:
        return _denies(asked)
    return asked.status != 405 and isinstance(asked.content.get("reason"), str)


def _denies(asked: Reply) -> bool:
    """Return whether inquiries are offered and the key is unknown."""
    return asked.status == 404 and asked.content.get("reason") == "unknown_key"


def _first(kit: Kit) -> tuple[Delivery, Reply, float]:
    if kit.first is None:
        raise AssertionError("the first delivery precedes every other check")
    return kit.first

"""The checks of a receiver: good deliveries and their repeats, bad input, what it keeps.

Those of stored keys, inquiries, receipts and response times run last: some examine all answers.
"""

import asyncio
import base64
import hashlib
import time
from typing import Any

from holdfast.dispatcher.workbench.conform import judge, rules
from holdfast.dispatcher.workbench.conform.aim import UNKNOWN_SECRET
from holdfast.dispatcher.workbench.conform.bad_input import BAD_INPUT
from holdfast.dispatcher.workbench.conform.kit import Kit
from holdfast.dispatcher.workbench.conform.reply import Reply
from holdfast.dispatcher.workbench.conform.rules import Grade, Verdict
from holdfast.dispatcher.workbench.conform.sample import Delivery, unknown_key
from holdfast.dispatcher.workbench.conform.shot import Shot, shot, signature
from holdfast.receiver.message.receipt import receipt_is_genuine
from holdfast.sink.contract.envelope import BODY_BYTES_MAX
from holdfast.sink.contract.wire import (
    IDEMPOTENCY_KEY,
    KEY_WINDOW,
    TOLERANCE_SECONDS,
    WEBHOOK_ID,
    WEBHOOK_SIGNATURE,
    WEBHOOK_TIMESTAMP,
    ReceiptOutcome,
)

CONCURRENT = 50
ROUNDS = 6
"""Half of them check with a repeat, half with the probe, if there is one."""


async def good(kit: Kit) -> list[Verdict]:
    """Send the first delivery; all other checks depend on it."""
    delivery = kit.plan.sample.delivery("first")
    reply = await kit.send_settled(delivery)
    kit.first = (delivery, reply, time.monotonic())
    if reply.outcome is ReceiptOutcome.DUPLICATE:
        return [
            rules.GOOD_APPLIED.failed(
                "answered `duplicate` to a new key: --seed was already used on this receiver, or it"
                " stores keys before it verifies"
            )
        ]
    verdict = judge.accepted(rules.GOOD_APPLIED, reply)
    if not reply.is_success:
        return [verdict]
    counted = await kit.count_settled(delivery)
    if counted not in (None, 1):
        verdict = rules.GOOD_APPLIED.failed(f"answered {reply}, and the probe counts {counted}")
    outcome_answered = reply.outcome
    outcome = (
        rules.GOOD_OUTCOME.passed(f"answered {reply}")
        if outcome_answered
        else rules.GOOD_OUTCOME.warned(f"answered {reply}, without an outcome")
    )
    return [verdict, outcome]


async def raw(kit: Kit) -> list[Verdict]:
    """Send an equivalent body with other white space, correctly signed."""
    aim = kit.aim("spaced")
    return [judge.accepted(rules.RAW_SPACED, await kit.client.send(aim.saying(aim.spaced())))]


async def duplicate(kit: Kit) -> list[Verdict]:
    """Send a delivery, wait until it settles, and send it again."""
    delivery = kit.plan.sample.delivery("duplicate")
    first = await kit.send_settled(delivery)
    await kit.count_settled(delivery)
    again = await kit.send_settled(delivery)
    once = judge.once(rules.DUPLICATE_ONCE, again, await kit.count(delivery))
    if again.outcome is not ReceiptOutcome.DUPLICATE:
        return [once, rules.DUPLICATE_SAME.warned("no answer was `duplicate`")]
    return [once, judge.same_answer(rules.DUPLICATE_SAME, first, again)]


async def commit(kit: Kit) -> list[Verdict]:
    """Check each delivery as soon as it is answered."""
    pairs: list[tuple[Reply, Reply]] = []
    counted: list[int | None] = []
    for turn in range(ROUNDS):
        delivery = kit.plan.sample.delivery(f"commit-{turn}")
        first = await kit.send(delivery)
        if turn % 2 == 0:
            pairs.append((first, await kit.send(delivery)))
        else:
            counted.append(await kit.count(delivery))
    verdict = judge.committed_first(rules.COMMIT_FIRST, pairs, counted)
    for turn in range(0, ROUNDS, 2):
        later = await kit.send_settled(kit.plan.sample.delivery(f"commit-{turn}"))
        if later.outcome is ReceiptOutcome.APPLIED:
            # The receiver applies every repeat: that is another fault, and hides this one.
            verdict = rules.COMMIT_FIRST.warned("cannot be graded: duplicates are applied again")
    return [verdict]


async def concurrent(kit: Kit) -> list[Verdict]:
    """Send one delivery fifty times at once, then once more."""
    delivery = kit.plan.sample.delivery("concurrent")
    replies = await kit.client.burst(kit.shot(delivery), CONCURRENT)
    last = await kit.send_settled(delivery)
    return judge.concurrent(replies, last, await kit.count_settled(delivery))


async def conflict(kit: Kit) -> list[Verdict]:
    """Send a key, the same key with a different body, then the first body again."""
    name = "conflict"
    delivery = kit.plan.sample.delivery(name)
    await kit.send_settled(delivery)
    other = await kit.send_settled(kit.plan.sample.delivery(name, revised=True))
    verdict = judge.conflict(rules.CONFLICT_REFUSED, other)
    again = await kit.send_settled(delivery)
    first_kept = judge.once(rules.CONFLICT_FIRST_KEPT, again, await kit.count(delivery))
    return [verdict, first_kept]


async def order(kit: Kit) -> list[Verdict]:
    """Send sequence 1, then 3, then 2, and 2 again."""
    sample, name = kit.plan.sample, "order"
    low = sample.delivery(name, sequence=2)
    await kit.send_settled(sample.delivery(name, sequence=1))
    higher = await kit.send_settled(sample.delivery(name, sequence=3, action="release"))
    if higher.outcome is ReceiptOutcome.STALE:
        gap = rules.ORDER_GAP.failed("sequence 3 after 1 was answered `stale`")
    else:
        gap = judge.accepted(rules.ORDER_GAP, higher)
    late_reply = await kit.send_settled(low)
    again = await kit.send_settled(low)
    stale = judge.stale(rules.ORDER_STALE, late_reply, await kit.count(low))
    if late_reply.outcome is not ReceiptOutcome.STALE:
        repeated = rules.ORDER_STALE_AGAIN.warned("no answer was `stale`")
    elif again.outcome is ReceiptOutcome.STALE:
        repeated = rules.ORDER_STALE_AGAIN.passed(f"answered {again}")
    else:
        repeated = rules.ORDER_STALE_AGAIN.violated(f"answered {again}")
    return [gap, stale, repeated]


_WITHIN_SECONDS = TOLERANCE_SECONDS - 60
_REFUSED = "refused"
_SIGNED_BODY = "body."


async def bad_input(kit: Kit) -> list[Verdict]:
    """Send the table of bad input. All badly signed requests imitate the same delivery.

    That delivery is then sent correctly signed, and must be new to the receiver.
    """
    verdicts = []
    accepted = 0
    for case in BAD_INPUT:
        if not kit.plan.wants(case.rule):
            continue
        is_signed_body = case.rule.id.startswith(_SIGNED_BODY)
        reply = await kit.client.send(
            case.make(kit.aim(case.rule.id.replace(".", "-") if is_signed_body else _REFUSED))
        )
        accepted += reply.is_success and not is_signed_body
        verdicts.append(judge.refused(case.rule, reply, case.status))
    reply = await kit.send_settled(kit.plan.sample.delivery(_REFUSED))
    if accepted:
        return [*verdicts, rules.TRACE_NONE.warned(f"cannot be graded: {accepted} were accepted")]
    if reply.outcome in {ReceiptOutcome.DUPLICATE, ReceiptOutcome.STALE, ReceiptOutcome.CONFLICT}:
        return [*verdicts, rules.TRACE_NONE.failed(f"the good delivery was then answered {reply}")]
    return [*verdicts, judge.accepted(rules.TRACE_NONE, reply)]


async def times(kit: Kit) -> list[Verdict]:
    """Send deliveries signed in the past and in the future, within the tolerance."""
    behind = await kit.client.send(kit.aim("behind").aged(_WITHIN_SECONDS))
    ahead_reply = await kit.client.send(kit.aim("ahead").aged(-_WITHIN_SECONDS))
    return [judge.accepted(rules.TIME_WITHIN, behind, ahead_reply)]


async def rotation(kit: Kit) -> list[Verdict]:
    """Send signature headers with several entries."""

    async def answer(name: str, *entries: str) -> Reply:
        aim = kit.aim(f"rotation-{name}")
        good = aim.good_signature
        others = [entry or aim.of(UNKNOWN_SECRET) for entry in entries]
        return await kit.client.send(aim.signed(" ".join([*others, good])))

    other_scheme = "v1a," + base64.b64encode(bytes(64)).decode()
    verdicts = [
        judge.accepted(rules.ROTATION_UNKNOWN_FIRST, await answer("unknown", "")),
        judge.accepted(rules.ROTATION_OTHER_SCHEME, await answer("scheme", other_scheme)),
        judge.accepted(rules.ROTATION_SPOILED, await answer("spoiled", "v1,!!", "v1", "v9,x")),
    ]
    sixteen = await kit.client.send(kit.aim("rotation-sixteen").many(16))
    verdicts.append(judge.accepted(rules.ROTATION_SIXTEENTH, sixteen))
    second = kit.plan.second_secret
    if second is not None:
        now = int(time.time())
        with_second = shot(kit.plan.sample.delivery("rotation-second"), (second,), now)
        with_both = shot(kit.plan.sample.delivery("rotation-both"), (kit.plan.secret, second), now)
        replies = [await kit.client.send(with_second), await kit.client.send(with_both)]
        verdicts.append(judge.accepted(rules.ROTATION_SECOND, *replies))
    return verdicts


async def key_forms(kit: Kit) -> list[Verdict]:
    """Send deliveries with an unquoted Idempotency-Key, and without one."""
    bare, none = kit.aim("key-bare"), kit.aim("key-none")
    replies = [
        await kit.client.send(bare.good.with_header(IDEMPOTENCY_KEY, bare.delivery.key)),
        await kit.client.send(none.good.with_header(IDEMPOTENCY_KEY)),
    ]
    return [judge.accepted(rules.KEY_FORMS, *replies)]


async def size(kit: Kit) -> list[Verdict]:
    """Send the largest allowed body, and one that is a byte larger."""
    large, over = kit.aim("large"), kit.aim("over")
    fits = large.saying(large.delivery.body.ljust(BODY_BYTES_MAX))
    verdicts = [judge.accepted(rules.SIZE_LARGE, await kit.client.send(fits))]
    reply = await kit.client.send(over.saying(over.delivery.body.ljust(BODY_BYTES_MAX + 1)))
    if reply.status is None:
        verdict = rules.SIZE_OVER.warned(f"{reply}: refused, without a status")
    else:
        verdict = judge.refused(rules.SIZE_OVER, reply, 413)
    return [*verdicts, verdict]


async def method(kit: Kit) -> list[Verdict]:
    """Send a delivery with PUT, and an empty GET with its headers."""
    aim = kit.aim("method")
    put, get = aim.good.by("PUT"), aim.saying(b"").by("GET")
    verdict = judge.refused(rules.METHOD, await kit.client.send(put), 405)
    reply = await kit.client.send(get)
    if reply.is_success and verdict.grade is Grade.PASS:
        verdict = rules.METHOD.warned(f"PUT is refused; GET is answered {reply}")
    return [verdict]


_NOT_OFFERED = "not offered; it is optional"


async def kept(kit: Kit) -> list[Verdict]:
    """Once the first key has the age of the plan, inquire for it and send it again."""
    delivery, first, sent_at = _first_delivery(kit)
    await asyncio.sleep(max(0.0, sent_at + kit.plan.patient_seconds - time.monotonic()))
    inquired = await ask(kit, delivery.key)
    age = time.monotonic() - sent_at
    reply = await kit.send_settled(delivery)
    verdict = judge.once(rules.KEYS_KEPT, reply, await kit.count(delivery))
    if verdict.grade is Grade.FAIL:
        return [rules.KEYS_KEPT.failed(f"after {age:.1f} s: {verdict.detail}")]
    if _denies(inquired):
        return [rules.KEYS_KEPT.failed(f"after {age:.1f} s an inquiry was answered {inquired}")]
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
    return [judge.window(_first_delivery(kit)[1].headers.get(KEY_WINDOW))]


async def inquiry(kit: Kit) -> list[Verdict]:
    """Inquire for the first key, signed and unsigned, and for a key that was never sent."""
    delivery, first, _ = _first_delivery(kit)
    known = await ask(kit, delivery.key)
    guarded, unknown = rules.INQUIRY_GUARDED, rules.INQUIRY_UNKNOWN
    if not _offered(known):
        return [rule.passed(_NOT_OFFERED) for rule in (rules.INQUIRY_KNOWN, guarded, unknown)]
    unsigned = await ask(kit, delivery.key, signed=False)
    nobody = await ask(kit, unknown_key(kit.plan.sample.seed))
    return [
        _grade_record(delivery, first, known),
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
    for request, reply in kit.client.exchanges:
        content = reply.content if reply.is_success else {}
        receipt = content.get("receipt")
        if receipt is None:
            continue
        checked += 1
        key, outcome = content.get("key"), reply.outcome
        applied_at: Any = content.get("applied_at")
        texts = isinstance(receipt, str) and isinstance(applied_at, str)
        if key != request.key or outcome is None or not texts:
            return [rules.RECEIPT_GENUINE.failed(f"the receipt of {request.key} is incomplete")]
        if not any(
            receipt_is_genuine(secret, key, outcome, applied_at, receipt) for secret in secrets
        ):
            return [rules.RECEIPT_GENUINE.failed(f"the receipt of {request.key} is not genuine")]
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


def _grade_record(delivery: Delivery, first: Reply, known: Reply) -> Verdict:
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


def _offered(reply: Reply) -> bool:
    """Return whether an answer comes from an inquiry endpoint, and not from some other page."""
    if reply.is_success:
        return "outcome" in reply.content
    if reply.status == 404:
        return _denies(reply)
    return reply.status != 405 and isinstance(reply.content.get("reason"), str)


def _denies(reply: Reply) -> bool:
    """Return whether inquiries are offered and the key is unknown."""
    return reply.status == 404 and reply.content.get("reason") == "unknown_key"


def _first_delivery(kit: Kit) -> tuple[Delivery, Reply, float]:
    if kit.first is None:
        raise AssertionError("the first delivery precedes every other check")
    return kit.first

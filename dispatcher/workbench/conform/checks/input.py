"""Bad requests that must be refused, and unusual ones that must be accepted."""

import base64
import time

from holdfast.dispatcher.workbench.conform import judge, rules
from holdfast.dispatcher.workbench.conform.aim import UNKNOWN_SECRET
from holdfast.dispatcher.workbench.conform.bad_input import BAD_INPUT
from holdfast.dispatcher.workbench.conform.kit import Kit
from holdfast.dispatcher.workbench.conform.reply import Reply
from holdfast.dispatcher.workbench.conform.rules import Grade, Verdict
from holdfast.dispatcher.workbench.conform.shot import shot
from holdfast.sink.contract.envelope import BODY_BYTES_MAX
from holdfast.sink.contract.wire import (
    IDEMPOTENCY_KEY,
    TOLERANCE_SECONDS,
    ReceiptOutcome,
)

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
    ahead = await kit.client.send(kit.aim("ahead").aged(-_WITHIN_SECONDS))
    return [judge.accepted(rules.TIME_WITHIN, behind, ahead)]


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
        alone = shot(kit.plan.sample.delivery("rotation-second"), (second,), now)
        both = shot(kit.plan.sample.delivery("rotation-both"), (kit.plan.secret, second), now)
        replies = [await kit.client.send(alone), await kit.client.send(both)]
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

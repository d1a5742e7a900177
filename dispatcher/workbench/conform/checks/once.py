"""Good deliveries, repeated: once, immediately, fifty at a time, with another body."""

import time

from holdfast.dispatcher.workbench.conform import judge, rules
from holdfast.dispatcher.workbench.conform.kit import Kit
from holdfast.dispatcher.workbench.conform.reply import Reply
from holdfast.dispatcher.workbench.conform.rules import Verdict
from holdfast.sink.contract.wire import ReceiptOutcome

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
    said = reply.outcome
    outcome = (
        rules.GOOD_OUTCOME.passed(f"answered {reply}")
        if said
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
    kept = judge.once(rules.CONFLICT_FIRST_KEPT, again, await kit.count(delivery))
    return [verdict, kept]


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
    late = await kit.send_settled(low)
    again = await kit.send_settled(low)
    stale = judge.stale(rules.ORDER_STALE, late, await kit.count(low))
    if late.outcome is not ReceiptOutcome.STALE:
        repeated = rules.ORDER_STALE_AGAIN.warned("no answer was `stale`")
    elif again.outcome is ReceiptOutcome.STALE:
        repeated = rules.ORDER_STALE_AGAIN.passed(f"answered {again}")
    else:
        repeated = rules.ORDER_STALE_AGAIN.violated(f"answered {again}")
    return [gap, stale, repeated]

"""Handles one delivery: number, claim, apply, log, commit, answer."""

from holdfast.deploy.payouts import holds
from holdfast.deploy.payouts.database import Pool
from holdfast.deploy.payouts.metrics import REFUSED, Measures
from holdfast.deploy.payouts.order import HoldOrder
from holdfast.receiver import (
    Answer,
    Delivery,
    Inbox,
    Inquiry,
    Refused,
    answer,
    answer_inquiry,
    unknown_key,
)
from holdfast.sink.contract.failpoints import failpoint
from holdfast.sink.contract.wire import ReceiptOutcome


async def receive(pool: Pool, inbox: Inbox, delivery: Delivery, measures: Measures) -> Answer:
    """Apply a verified delivery once, count it, and return the answer, after the commit.

    Key, hold, history and log commit together. Raises `psycopg.Error` if the database fails;
    nothing is applied then, and the sender retries.
    """
    try:
        order = HoldOrder.of(delivery.body)
    except Refused as refused:
        async with pool.connection() as connection, connection.transaction():
            arrival = await holds.arrive(connection)
            await holds.log(connection, delivery, arrival=arrival, subject=None, outcome=REFUSED)
        measures.deliveries.labels(REFUSED).inc()
        return refused.problem.answer()
    effect = None
    async with pool.connection() as connection, inbox.transaction(connection):
        arrival = await holds.arrive(connection)
        subject = order.merchant_id
        receipt = await inbox.receive(connection, delivery, subject=subject)
        if receipt.outcome is ReceiptOutcome.APPLIED:
            effect = await holds.apply(connection, delivery, order, arrival)
            await inbox.store_result(connection, receipt, {"effect": effect.value})
            failpoint("R3")
        await holds.log(
            connection, delivery, arrival=arrival, subject=subject, outcome=receipt.outcome.value
        )
    measures.deliveries.labels(receipt.outcome.value).inc()
    if effect is not None:
        measures.actions.labels(order.action.value, effect.value).inc()
    failpoint("R4")
    return answer(receipt, delivery.secret)


async def inquire(pool: Pool, inbox: Inbox, inquiry: Inquiry) -> Answer:
    """Answer an inquiry with the outcome of a key; raises `psycopg.Error`."""
    async with pool.connection() as connection:
        found = await inbox.inquire(connection, inquiry.key)
    return unknown_key() if found is None else answer_inquiry(found, inquiry.secret)

"""Spans of real deliveries, linked to the trace of the batch that wrote the entries."""

from uuid import uuid4

import psycopg

from holdfast.sink.rows.batch import BatchInput, prepare
from holdfast.sink.trace import batch_span
from holdfast.sink.transaction.driver_path import InDriver
from holdfast.sink.transaction.writer import Writer
from tests.support.dispatch.dispatching import add_endpoint, drain
from tests.support.dispatch.entries import decision, table
from tests.support.dispatch.tracing import header, tracing
from tests.support.dispatch.webhooks import WebhookReceiver, answer


def test_each_attempt_is_a_span_linked_to_its_batch(
    dsn: str, db: psycopg.Connection, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url)
    receiver.script = lambda _seen: answer(500 if len(receiver.seen) == 1 else 200)
    with tracing() as spans:
        writer = Writer(dsn, "test", suppress_repeats=False, first_batch=1)
        query_id = uuid4()
        writer.begin_run(query_id, uuid4())
        with batch_span("test", query_id, 1) as span:
            prepared = prepare(BatchInput(table(decision("m_1"), decision("m_1", 2))))
            writer.write(1, InDriver(prepared), traceparent=span.traceparent)
        writer.close()
        drain(dsn)
    batch, *deliveries = spans.ended
    assert [each.name for each in deliveries] == ["holdfast.deliver"] * 3
    found = [dict(each.attributes or {}) for each in deliveries]
    assert [
        (each["holdfast.attempt"], each["holdfast.outcome"], each["http.response.status_code"])
        for each in found
    ] == [(1, "failed", 500), (2, "delivered", 200), (1, "delivered", 200)]
    for each in deliveries:
        assert [link.context.trace_id for link in each.links] == [batch.context.trace_id]
        assert [link.context.span_id for link in each.links] == [batch.context.span_id]
        assert "m_1" not in each.to_json()
        assert receiver.url not in each.to_json()
    assert {seen.header("traceparent") for seen in receiver.seen} == {header(batch)}

"""How often a small batch waits for the server: what it costs where the server is far away."""

import os
import tempfile

import pytest

from holdfast.sink import Written
from tests.integration.sink.conftest import MakeDriver
from tests.support.dispatch.entries import decision
from tests.support.job.driver import Driver


def _round_trips(spark: Driver, batch_id: int, *rows: dict[str, object]) -> int:
    """Write a batch and return how often it waited; a COPY waits at its start and at its end."""
    connection = spark.sink._writer._connection
    assert connection
    with tempfile.TemporaryFile() as trace:
        connection.pgconn.trace(trace.fileno())
        assert isinstance(spark.batch(batch_id, *rows), Written)
        connection.pgconn.untrace()
        trace.seek(0, os.SEEK_SET)
        lines = trace.read().splitlines()
    return sum(b"ReadyForQuery" in line or b"CopyInResponse" in line for line in lines)


@pytest.mark.parametrize(("rows", "most"), [(0, 8), (1, 16), (30, 16), (31, 19)])
def test_small_batch_waits_for_the_server_only_as_often_as_it_must(
    driver: MakeDriver, rows: int, most: int
) -> None:
    spark = driver(suppress_repeats=True)
    spark.batch(0, decision("m_0", 0))
    spark.batch(1, decision("m_0", 1))
    entries = [decision(f"m_{number + 1}", 2) for number in range(rows)]
    assert _round_trips(spark, 2, *entries) <= most

"""How many results share a transaction."""

import asyncio
from collections.abc import Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from holdfast.dispatcher.delivery.rules.decide import release
from holdfast.dispatcher.delivery.rules.values import Lane, Settled, Settlement
from holdfast.dispatcher.delivery.settler import GATHERS_MAX, STREAM, Settler
from holdfast.dispatcher.delivery.telemetry.log import Telemetry


class Bench:
    """A settler whose waits are counted; while it waits, further results come."""

    def __init__(self, coming: int) -> None:
        self.sizes: list[int] = []
        self.waits = 0
        self._coming = coming
        self._subjects = count(1)
        self.settler = Settler(
            self.settle,
            cast("Any", SimpleNamespace(name=str)),
            Telemetry(),
            done=lambda _: None,
            due=lambda: None,
            pause=self._pause,
        )

    async def settle(self, batch: Sequence[Settlement], *, repeated: bool) -> list[Settled]:
        assert not repeated
        self.sizes.append(len(batch))
        self.settler.close()
        return [Settled(each, None) for each in batch]

    def add(self, results: int) -> None:
        for _ in range(results):
            lane = Lane(1, next(self._subjects), UUID(int=1), 0, (), 100.0)
            self.settler.add(release(lane))

    async def _pause(self, seconds: float) -> None:
        if seconds:
            self.waits += 1
            self.add(self._coming)
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("coming", "waits", "size"),
    [
        (0, 1, 1),
        (STREAM - 1, 1, STREAM),
        (STREAM, GATHERS_MAX, 1 + GATHERS_MAX * STREAM),
    ],
)
def test_results_that_keep_coming_share_a_transaction_and_a_single_one_waits_once(
    coming: int, waits: int, size: int
) -> None:
    bench = Bench(coming)
    bench.add(1)
    asyncio.run(bench.settler.run())
    assert (bench.waits, bench.sizes) == (waits, [size])

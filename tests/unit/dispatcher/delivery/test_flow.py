"""How many lanes a process claims, which of them it sends at once, and which slots it lends."""

import asyncio
from collections.abc import Callable
from uuid import UUID

from holdfast.dispatcher.delivery.endpoints import Ready
from holdfast.dispatcher.delivery.flow import Flow
from holdfast.dispatcher.delivery.rules.values import Lane
from holdfast.dispatcher.outbound.endpoint import Endpoint
from holdfast.dispatcher.outbound.signing import Signer
from holdfast.dispatcher.outbound.target import Target
from holdfast.sink.contract.states import OrderPolicy


def ready(endpoint_id: int, concurrency: int) -> Ready:
    endpoint = Endpoint(
        endpoint_id, f"e{endpoint_id}", "https://x/", (), 1, 2, concurrency, (5,), OrderPolicy.STOP
    )
    return Ready(endpoint, Target(endpoint_id, "https://x/", (), 1, 1), (), Signer(()))


def lanes(endpoint_id: int, count: int) -> list[Lane]:
    return [Lane(endpoint_id, subject, UUID(int=1), 0, (), 100.0) for subject in range(count)]


class Bench:
    """A flow whose sends wait until the test ends them."""

    def __init__(self, concurrency: int = 8, claim_lanes: int = 100) -> None:
        self.started: list[Lane] = []
        self.faults: list[BaseException] = []
        self.rings = 0
        self.now = 1000.0
        self._ends: list[asyncio.Future[bool]] = []
        self.flow = Flow(
            concurrency,
            claim_lanes,
            send=self._send,
            room=self._ring,
            crashed=self.faults.append,
            clock=lambda: self.now,
        )

    async def _send(self, lane: Lane) -> bool:
        end: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._ends.append(end)
        self.started.append(lane)
        return await end

    def _ring(self) -> None:
        self.rings += 1

    async def settle(
        self, count: int, error: Exception | None = None, *, tried: bool = True
    ) -> None:
        await asyncio.sleep(0)
        for _ in range(count):
            lane = self.started[len(self.started) - len(self._ends)]
            end = self._ends.pop(0)
            if error is None:
                end.set_result(tried)
                self.flow.settled(lane.endpoint_id)
            else:
                end.set_exception(error)
        for _ in range(4):
            await asyncio.sleep(0)


def room(bench: Bench) -> int:
    return bench.flow.wanted({1: ready(1, 4)})[1]


def run(work: Callable[[Bench], object], bench: Callable[[], Bench] = Bench) -> None:
    async def inside() -> None:
        await work(bench())  # type: ignore[misc]  # every test passes a coroutine function

    asyncio.run(inside())


def test_endpoint_takes_up_no_more_than_its_share() -> None:
    async def work(bench: Bench) -> None:
        both = {1: ready(1, 64), 2: ready(2, 3)}
        assert bench.flow.wanted(both) == {1: 4, 2: 3}
        bench.flow.take(lanes(1, 4), {1: 4})
        assert bench.flow.wanted(both) == {2: 3}
        assert bench.flow.wanted({1: ready(1, 64)}) == {1: 4}

    run(work)


def test_lanes_are_claimed_ahead_only_as_fast_as_they_are_finished() -> None:
    async def work(bench: Bench) -> None:
        one = {1: ready(1, 4)}
        wanted = bench.flow.wanted(one)
        assert wanted == {1: 4}
        bench.flow.take(lanes(1, 4), wanted)
        assert bench.flow.wanted(one) == {}
        await bench.settle(3)
        assert bench.flow.wanted(one) == {1: 6}
        bench.flow.take(lanes(1, 6), {1: 6})
        await asyncio.sleep(0)
        assert bench.flow.sending == 4
        assert bench.flow.held == 7
        bench.now += 2
        assert bench.flow.wanted(one) == {}

    run(work)


def test_lanes_that_were_given_back_untried_call_for_no_more() -> None:
    async def work(bench: Bench) -> None:
        one = {1: ready(1, 4)}
        bench.flow.take(lanes(1, 4), bench.flow.wanted(one))
        await bench.settle(3, tried=False)
        assert bench.flow.wanted(one) == {1: 3}

    run(work)


def test_lanes_that_wait_here_put_off_a_claim_that_would_bring_few() -> None:
    async def work(bench: Bench) -> None:
        one = {1: ready(1, 8)}
        bench.flow.wanted(one)
        bench.flow.take(lanes(1, 8), {1: 8})
        await bench.settle(8)
        bench.flow.take(lanes(1, 14), {1: 14})
        # Of 16, which it may hold, 2 are free; then 8.
        assert bench.flow.wanted(one) == {}
        assert bench.rings == 8
        for _ in range(6):
            bench.flow.settled(1)
        assert bench.flow.wanted(one) == {1: 8}

    run(work)


def test_claim_is_no_larger_than_allowed() -> None:
    async def work(bench: Bench) -> None:
        assert bench.flow.wanted({1: ready(1, 64), 2: ready(2, 64)}) == {1: 3, 2: 2}

    run(work, lambda: Bench(concurrency=6, claim_lanes=5))


def test_claim_too_small_for_all_endpoints_turns_to_each_of_them() -> None:
    """Also to one without lanes, while another has none due."""

    async def work(bench: Bench) -> None:
        both = {1: ready(1, 64), 2: ready(2, 64)}
        assert [bench.flow.wanted(both) for _ in range(4)] == [{1: 4}, {2: 4}, {1: 4}, {2: 4}]
        bench.flow.take(lanes(2, 4), {2: 4})
        assert [bench.flow.wanted(both) for _ in range(2)] == [{1: 4}, {2: 4}]

    run(work, lambda: Bench(concurrency=256, claim_lanes=4))


def test_finished_lane_calls_for_more_only_when_more_may_be_due() -> None:
    async def work(bench: Bench) -> None:
        bench.flow.wanted({1: ready(1, 2)})
        bench.flow.take(lanes(1, 1), {1: 2})
        await bench.settle(1)
        assert bench.rings == 0
        bench.flow.take(lanes(1, 2), {1: 2})
        await bench.settle(1)
        assert bench.rings == 1

    run(work)


def test_closing_gives_back_what_was_not_begun() -> None:
    async def work(bench: Bench) -> None:
        bench.flow.wanted({1: ready(1, 2)})
        bench.flow.take(lanes(1, 5), {1: 5})
        await asyncio.sleep(0)
        assert [lane.subject_id for lane in bench.flow.close()] == [2, 3, 4]
        await bench.settle(2)
        await bench.flow.quiet()
        assert len(bench.started) == 2
        assert bench.flow.wanted({1: ready(1, 2)}) == {}

    run(work)


def test_fault_while_sending_is_reported_and_frees_its_slot() -> None:
    async def work(bench: Bench) -> None:
        bench.flow.wanted({1: ready(1, 1)})
        bench.flow.take(lanes(1, 2), {1: 1})
        fault = ValueError("bug")
        await bench.settle(1, fault)
        assert bench.faults == [fault]
        assert (bench.flow.held, bench.flow.sending) == (1, 1)
        await bench.settle(1)

    run(work)


def test_under_a_rate_lanes_are_claimed_ahead_for_a_tenth_of_a_second_alone() -> None:
    async def work(bench: Bench) -> None:
        assert room(bench) == 4
        bench.flow.take(lanes(1, 40), {1: 40})
        for _ in range(10):
            await bench.settle(4)
        assert room(bench) == 4 + 40
        bench.flow.take([], {1: 1}, {1: 1})
        assert room(bench) == 4 + 4
        bench.flow.take([], {1: 1})
        assert room(bench) == 4 + 40

    run(work)


async def nothing_tried(_lane: Lane) -> bool:
    return False


def idle_flow() -> Flow:
    return Flow(256, 64, send=nothing_tried, room=lambda: None, crashed=lambda _: None)


def test_half_of_what_is_free_can_be_lent() -> None:
    given = idle_flow()
    assert given.spare({1: ready(1, 8)}) == {1: 4}
    for _ in range(4):
        given.lend(1)
    assert given.spare({1: ready(1, 8)}) == {}
    given.returned(1)
    assert given.spare({1: ready(1, 8)}) == {1: 1}
    assert idle_flow().spare({1: ready(1, 1)}) == {1: 1}


def test_nothing_is_lent_while_more_lanes_may_be_due() -> None:
    given = idle_flow()
    wanted = given.wanted({1: ready(1, 8)})
    given.take([], {1: 0})
    assert given.spare({1: ready(1, 8)}) == {}
    given.take([], wanted)
    assert given.spare({1: ready(1, 8)}) == {1: 4}


def test_nothing_is_lent_while_a_rate_is_used_up_by_lanes() -> None:
    async def inside() -> None:
        given = idle_flow()
        wanted = given.wanted({1: ready(1, 8)})
        given.take([lanes(1, 1)[0]], wanted, {1: 1})
        await given.quiet()
        given.settled(1)
        assert given.spare({1: ready(1, 8)}) == {}
        # That the rate allowed none says nothing about what is due.
        given.take([], wanted, {1: 0})
        assert given.spare({1: ready(1, 8)}) == {}
        given.take([], wanted, {1: 2})
        assert given.spare({1: ready(1, 8)}) == {1: 4}

    asyncio.run(inside())


def test_closed_flow_lends_nothing() -> None:
    given = idle_flow()
    given.close()
    assert given.spare({1: ready(1, 8)}) == {}

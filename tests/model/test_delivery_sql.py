"""Delivery on a real Postgres, step by step beside the twin of its model.

Each rule takes a step of both sides; after each step everything that both know is compared. What is
failing is a script of a few steps, which Hypothesis prints.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import product
from logging import CRITICAL
from typing import Any, ClassVar, TypeVar

import hypothesis.strategies as st
import pytest
import structlog
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from holdfast.sink.contract.states import OrderPolicy
from tests.support.dispatch.dispatching import SECRET
from tests.support.dispatch.sender import secret_text
from tests.support.servers.databases import copy_of
from tests.support.twins import delivery, dispatcher_steps, pair
from tests.support.twins.comparison import ENDPOINT
from tests.support.twins.dispatcher_steps import DISPATCHERS, SUBJECTS, TRIES, tell
from tests.support.twins.images import Image
from tests.support.twins.outbox import Outbox
from tests.support.twins.pair import Pair
from tests.support.twins.search import Effort, search

NOT_BUILT = {"lane_empty"}
"""The step of the twin that no rule takes: only an endpoint of some types makes it possible."""

dispatchers = st.sampled_from(DISPATCHERS)
subjects = st.sampled_from(SUBJECTS)
numbers = st.integers(0, 3)

T = TypeVar("T")


EFFECTS = (
    *("write", "route", "route, newest first", "claim", "claim replay", "send", "receive"),
    *("refuse, failed", "refuse, rejected", "answer", "lose request or answer"),
    *("lose request on its way", "arrive late", "settle, none", "settle, answer lost"),
    *("settle, D11", "settle, D15", "settle, D17", "stall", "crash", "lease ends", "rescue"),
    *("rescue, cut", "lease of an item ends", "rescue replay", "pause", "resume", "dismiss"),
    *("redeliver to free a lane", "redeliver beside its lane", "deliver"),
    *("route and claim", "reissue", "cancel a replay", "restore", "check"),
    *("days pass", "prune", "prune, refused"),
    *("proxy error", "redeliver what was cancelled", "hasten"),
    *("claim both", "settle beside rescue", "settle beside route"),
    *("hold", "hold answers", "resume a subject", "cancel", "cancel, refused"),
)
"""What each search does at least once, or it searches less than it seems to."""

NAMES = {"claim_replay": "claim replay", "settle": "settle, none"}

ENOUGH = 3_000
"""Steps of a search that has each effect at least once; a busy machine takes fewer."""

VALUES: Mapping[str, Any] = {
    "yes": True,
    "no": False,
    "0": 0,
    "1": 1,
    "applied": ["applied"],
    "m_1": ["m_1"],
    "m_1,m_1": ["m_1", "m_1"],
    "both": list(SUBJECTS),
    "": [],
    "answer-lost": "answer lost",
}
"""What words of the story stand for; others stand for themselves."""

STORY = """\
begin policy=stop of=m_1 ended=applied
write of=m_1
write of=m_1
route by=one newest_first=yes
route by=one newest_first=no
claim by=one
send by=one
refuse by=one answer=failed
answer by=one
settle by=one fault=D15
settle by=one fault=none
hasten by=two which=0
claim by=two
send by=two
receive by=two
lose by=two arrives=no
settle by=two fault=answer-lost
redeliver by=one which=1
claim by=one
send by=one
lose by=one arrives=yes
settle by=one fault=none
arrive which=0
claim by=one
send by=one
stall by=one
lease_ends which=0
rescue by=two is_cut=yes
rescue by=two is_cut=no
receive by=one
answer by=one
settle by=one fault=none
claim by=one
send by=one
refuse by=one answer=rejected
answer by=one
settle by=one fault=D11
settle by=one fault=none
dismiss which=0
pause
claim by=one
resume
redeliver by=one which=0
pause
claim_replay by=two
resume
claim_replay by=two
send by=two
stall by=two
item_lease_ends
rescue_replay by=one
crash by=two arrives=no
claim_replay by=one
go_on by=one
go_on by=one
go_on by=one
settle by=one fault=D17
settle by=one fault=none
redeliver by=one which=0
claim_replay by=one
cancel_replay
redeliver_cancelled
claim_replay by=two
send by=one
proxy_error by=one
answer by=one
settle by=one fault=none
claim_replay by=two
settle by=two fault=none
cancel_replay
check
reissue which=0
route_and_claim by=one
settle by=one fault=none
begin policy=skip of=m_1,m_1 ended=
claim by=one
send by=one
hold which=0
receive by=one
answer by=one
settle by=one fault=none
hold_answers which=0
claim by=two
resume_subject which=0
begin policy=stop of=m_1,m_1 ended=
write of=m_1
cancel which=1
claim by=one
cancel_begun which=0
send by=one
receive by=one
answer by=one
settle by=one fault=none
route by=one newest_first=no
begin policy=skip of=m_1 ended=applied
back_up
write of=m_1
restore
begin policy=skip of=m_1,m_1 ended=
claim by=one
send by=one
lose by=one arrives=yes
settle by=one fault=none
claim by=one
send by=one
refuse by=one answer=rejected
answer by=one
settle by=one fault=none
go_on by=two
go_on by=two
go_on by=two
go_on by=two
settle by=two fault=none
arrive which=0
begin policy=stop of=both ended=
claim_both
write of=m_1
settle_beside_route by=one
stall by=two
lease_ends which=0
settle_beside_rescue by=two
begin policy=skip of=m_1 ended=
age
prune by=one
go_on by=one
go_on by=one
go_on by=one
go_on by=one
write of=m_1
route by=one newest_first=no
go_on by=one
go_on by=one
go_on by=one
prune by=one"""
"""Each step once. The first lane: entry 2 fails twice, is sent again and answered late, then is
rejected and dismissed. Entry 1 is replayed, and reissued."""

UNCHECKED_MIN = 10
"""Steps between two runs of the check that operators run."""

OUTCOMES = ("applied", "failed", "rejected", "lost")
FAULTS = ("none", "none", "answer lost", "D15", "D11", "D17")


class Delivery(RuleBasedStateMachine):
    """Two dispatchers, two subjects, one endpoint and its receiver."""

    outbox: ClassVar[Outbox]
    beginnings: ClassVar[Mapping[str, tuple[Image, int]]]
    effort: ClassVar[Effort]

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair(self.outbox, "stop")
        self.pauses = self.holds = self.backups = self.prunes = self.unchecked = self.cancels = 0

    def did(self, name: str, *, effect: bool) -> None:
        """Count a step that did something, and compare both sides."""
        if effect:
            self.effort.steps[name] += 1
            self.unchecked += 1
            self.pair.compare()

    def can(self, *actions: Callable[..., Any]) -> bool:
        """Return whether any dispatcher can take one of these steps of the twin."""
        pair = self.pair
        return any(
            each(pair.w, pair.s, dispatcher) for each in actions for dispatcher in DISPATCHERS
        )

    def can_any(self, action: Callable[..., Any]) -> bool:
        """Return whether a step of the twin is possible that belongs to nobody."""
        return action(self.pair.w, self.pair.s) is not None

    def of_subject(self, action: Callable[..., Any]) -> list[tuple[str]]:
        """Return the subjects for which a step of the twin is possible."""
        pair = self.pair
        return [(subject,) for subject in SUBJECTS if action(pair.w, pair.s, subject)]

    def of_entry(self, action: Callable[..., Any]) -> list[tuple[str, int]]:
        """Return the entries for which a step of the twin is possible."""
        pair = self.pair
        entries = product(SUBJECTS, pair.w.sequences)
        return [entry for entry in entries if action(pair.w, pair.s, *entry)]

    def pick(self, possible: Sequence[T], which: int) -> T:
        """Return one of those for which a step is possible."""
        chosen = possible[which % len(possible)]
        tell(f"of {chosen}")
        return chosen

    def pcs(self) -> set[str]:
        """Return what the dispatchers do."""
        return {each.pc for each in self.pair.s.proc.values()}

    @initialize(
        policy=st.sampled_from([each.value for each in OrderPolicy]),
        of=st.lists(subjects, min_size=1, max_size=4),
        ended=st.lists(st.sampled_from(OUTCOMES), max_size=4),
    )
    def begin(self, policy: str, of: list[str], ended: list[str]) -> None:
        """Begin with entries that are routed, some of them tried, so that late states are near."""
        self.outbox.begin(self.beginnings[policy])
        self.pair = Pair(self.outbox, policy)
        self.pauses = self.holds = self.backups = self.prunes = self.unchecked = self.cancels = 0
        self.effort.examples += 1
        self.did("write", effect=self.pair.write(of))
        self.did("route", effect=self.pair.route("one", newest_first=False))
        for outcome in ended:
            self.did("deliver", effect=self.pair.deliver("one", outcome))

    # Sink and routing.

    @precondition(lambda self: len(self.pair.unrouted()) < 3)
    @rule(of=st.lists(subjects, min_size=1, max_size=3))
    def write(self, of: list[str]) -> None:
        self.did("write", effect=self.pair.write(of))

    @precondition(lambda self: self.pair.unrouted())
    @rule(by=dispatchers, newest_first=st.booleans())
    def route(self, by: str, *, newest_first: bool) -> None:
        order = ", newest first" * newest_first
        self.did(f"route{order}", effect=self.pair.route(by, newest_first=newest_first))

    # Dispatchers, step by step.

    @precondition(lambda self: "idle" in self.pcs() and self.pair.is_due(or_paused=True))
    @rule(by=dispatchers)
    def claim(self, by: str) -> None:
        self.did("claim", effect=self.pair.claim(by))

    @precondition(lambda self: "idle" in self.pcs() and self.pair.unrouted())
    @rule(by=dispatchers)
    def route_and_claim(self, by: str) -> None:
        self.did("route and claim", effect=self.pair.route_and_claim(by))

    @precondition(lambda self: "idle" in self.pcs() and self.pair.s.item.state == "due")
    @rule(by=dispatchers)
    def claim_replay(self, by: str) -> None:
        self.did("claim replay", effect=self.pair.claim_replay(by))

    @precondition(lambda self: "claimed" in self.pcs())
    @rule(by=dispatchers)
    def send(self, by: str) -> None:
        self.did("send", effect=self.pair.send(by))

    @precondition(lambda self: self.can(delivery.receive))
    @rule(by=dispatchers)
    def receive(self, by: str) -> None:
        self.did("receive", effect=self.pair.receive(by))

    @precondition(lambda self: self.can(delivery.receive))
    @rule(by=dispatchers, answer=st.sampled_from(["failed", "rejected"]))
    def refuse(self, by: str, answer: str) -> None:
        self.did(f"refuse, {answer}", effect=self.pair.refuse(by, answer))

    @precondition(lambda self: self.can(delivery.receive))
    @rule(by=dispatchers)
    def proxy_error(self, by: str) -> None:
        self.did("proxy error", effect=self.pair.proxy_error(by))

    @precondition(lambda self: self.can(delivery.answer))
    @rule(by=dispatchers)
    def answer(self, by: str) -> None:
        self.did("answer", effect=self.pair.answer(by))

    @precondition(lambda self: "flight" in self.pcs())
    @rule(by=dispatchers, arrives=st.booleans())
    def lose(self, by: str, *, arrives: bool) -> None:
        kind = "request on its way" if arrives else "request or answer"
        self.did(f"lose {kind}", effect=self.pair.lose(by, arrives=arrives))

    @precondition(lambda self: self.of_entry(delivery.arrive))
    @rule(which=numbers)
    def arrive(self, which: int) -> None:
        subject, _ = self.pick(self.of_entry(delivery.arrive), which)
        self.did("arrive late", effect=self.pair.arrive(subject))

    @precondition(lambda self: self.pcs() & {"claimed", "answered"})
    @rule(by=dispatchers, fault=st.sampled_from(FAULTS))
    def settle(self, by: str, fault: str) -> None:
        self.did(f"settle, {fault}", effect=self.pair.settle(by, fault=fault))

    # Two dispatchers at once.

    @precondition(lambda self: self.pcs() == {"idle"} and self.pair.is_due())
    @rule()
    def claim_both(self) -> None:
        self.did("claim both", effect=self.pair.claim_both())

    @precondition(lambda self: any(lane.ended for lane in self.pair.s.lane.values()))
    @precondition(lambda self: self.pcs() & {"claimed", "answered"})
    @rule(by=dispatchers)
    def settle_beside_rescue(self, by: str) -> None:
        self.did("settle beside rescue", effect=self.pair.settle_beside_rescue(by))

    @precondition(lambda self: self.pair.unrouted() and self.pcs() & {"claimed", "answered"})
    @rule(by=dispatchers)
    def settle_beside_route(self, by: str) -> None:
        self.did("settle beside route", effect=self.pair.settle_beside_route(by))

    # What a dispatcher does next where nothing goes wrong, so that later states are reached often.

    @precondition(lambda self: self.pcs() != {"idle"} or self.pair.is_due())
    @rule(by=dispatchers)
    def go_on(self, by: str) -> None:
        name = self.pair.next_of(by)
        if name is not None:
            self.did(NAMES.get(name, name), effect=getattr(self.pair, name)(by))

    # Faults.

    @precondition(lambda self: self.can(delivery.stall))
    @rule(by=dispatchers)
    def stall(self, by: str) -> None:
        self.did("stall", effect=self.pair.stall(by))

    @precondition(lambda self: self.pcs() != {"idle"})
    @rule(by=dispatchers, arrives=st.booleans())
    def crash(self, by: str, *, arrives: bool) -> None:
        self.did("crash", effect=self.pair.crash(by, arrives=arrives))

    @precondition(lambda self: self.of_subject(delivery.lease_ends))
    @rule(which=numbers)
    def lease_ends(self, which: int) -> None:
        [subject] = self.pick(self.of_subject(delivery.lease_ends), which)
        self.did("lease ends", effect=self.pair.lease_ends(subject))

    @precondition(lambda self: self.can_any(delivery.item_lease_ends))
    @rule()
    def item_lease_ends(self) -> None:
        self.did("lease of an item ends", effect=self.pair.item_lease_ends())

    @precondition(lambda self: self.of_subject(delivery.lane_rescue))
    @rule(by=dispatchers, is_cut=st.booleans())
    def rescue(self, by: str, *, is_cut: bool) -> None:
        self.did(f"rescue{', cut' * is_cut}", effect=self.pair.rescue(by, is_cut=is_cut))

    @precondition(lambda self: self.can_any(delivery.replay_rescue))
    @rule(by=dispatchers)
    def rescue_replay(self, by: str) -> None:
        self.did("rescue replay", effect=self.pair.rescue_replay(by))

    # People.

    @precondition(lambda self: self.pair.is_due() and self.pauses < 2)
    @rule()
    def pause(self) -> None:
        self.pauses += 1
        self.did("pause", effect=self.pair.pause())

    @precondition(lambda self: self.of_subject(delivery.hold) and self.holds < 2)
    @rule(which=numbers)
    def hold(self, which: int) -> None:
        self.holds += 1
        [subject] = self.pick(self.of_subject(delivery.hold), which)
        self.did("hold", effect=self.pair.hold(subject))

    @precondition(lambda self: self.of_subject(delivery.hold_answers))
    @rule(which=numbers)
    def hold_answers(self, which: int) -> None:
        [subject] = self.pick(self.of_subject(delivery.hold_answers), which)
        self.did("hold answers", effect=self.pair.hold_answers(subject))

    @precondition(lambda self: self.of_subject(delivery.resume_subject))
    @rule(which=numbers)
    def resume_subject(self, which: int) -> None:
        [subject] = self.pick(self.of_subject(delivery.resume_subject), which)
        self.did("resume a subject", effect=self.pair.resume_subject(subject))

    @precondition(lambda self: not self.pair.s.active)
    @rule()
    def resume(self) -> None:
        self.did("resume", effect=self.pair.resume())

    @precondition(lambda self: self.of_entry(delivery.redeliver))
    @rule(by=dispatchers, which=numbers)
    def redeliver(self, by: str, which: int) -> None:
        entry = self.pick(self.of_entry(delivery.redeliver), which)
        kind = "to free a lane" if delivery.stopped(self.pair.s, *entry) else "beside its lane"
        self.did(f"redeliver {kind}", effect=self.pair.redeliver(by, entry))

    @precondition(lambda self: self.pair.backup is None and self.pair.reissuable())
    @rule(which=numbers)
    def reissue(self, which: int) -> None:
        entry = self.pick(self.pair.reissuable(), which)
        self.did("reissue", effect=self.pair.reissue(entry))

    @precondition(lambda self: self.pair.retried() and self.pair.s.item.state != "due")
    @rule(by=dispatchers, which=numbers)
    def hasten(self, by: str, which: int) -> None:
        subject = self.pick(self.pair.retried(), which)
        self.did("hasten", effect=self.pair.hasten(by, subject))

    @precondition(lambda self: self.of_entry(delivery.cancel) and self.cancels < 2)
    @rule(which=numbers)
    def cancel(self, which: int) -> None:
        self.cancels += 1
        entry = self.pick(self.of_entry(delivery.cancel), which)
        self.did("cancel", effect=self.pair.cancel(entry))

    @precondition(lambda self: self.pair.keys)
    @rule(which=numbers)
    def cancel_begun(self, which: int) -> None:
        entry = self.pick(sorted(self.pair.keys), which)
        self.did("cancel, refused", effect=self.pair.cancel_begun(entry))

    @precondition(lambda self: self.pair.is_cancelled)
    @rule()
    def redeliver_cancelled(self) -> None:
        self.did("redeliver what was cancelled", effect=self.pair.redeliver_cancelled())

    @precondition(lambda self: self.pair.s.item.state != "none")
    @rule()
    def cancel_replay(self) -> None:
        self.did("cancel a replay", effect=self.pair.cancel_replay())

    @precondition(lambda self: self.unchecked >= UNCHECKED_MIN)
    @rule()
    def check(self) -> None:
        self.unchecked = 0
        self.outbox.check()
        self.effort.steps["check"] += 1

    @precondition(lambda self: self.pair.may_back_up() and self.backups < 2)
    @rule()
    def back_up(self) -> None:
        self.backups += self.pair.back_up()

    @precondition(lambda self: self.pair.backup is not None)
    @rule()
    def restore(self) -> None:
        self.did("restore", effect=self.pair.restore())

    @precondition(lambda self: not self.pair.aged and self.pair.backup is None)
    @precondition(lambda self: self.pair.s.item.state == "none")
    @rule()
    def age(self) -> None:
        self.did("days pass", effect=self.pair.age())

    @precondition(lambda self: self.pair.aged and not self.pair.gone and self.prunes < 3)
    @rule(by=dispatchers)
    def prune(self, by: str) -> None:
        self.prunes += 1
        effect = self.pair.prune(by)
        self.did("prune" if self.pair.gone else "prune, refused", effect=effect)

    @precondition(lambda self: self.of_entry(delivery.dismiss))
    @rule(which=numbers)
    def dismiss(self, which: int) -> None:
        entry = self.pick(self.of_entry(delivery.dismiss), which)
        self.did("dismiss", effect=self.pair.dismiss(entry))


@pytest.fixture(scope="module")
def outbox(server_dsn: str, template_database: str) -> Iterator[Outbox]:
    """An outbox with two dispatchers, emptied for each test."""
    with (
        copy_of(server_dsn, template_database) as dsn,
        pytest.MonkeyPatch.context() as patch,
        ExitStack() as stack,
    ):
        patch.setenv(SECRET, secret_text())
        # A line for each connection that is cut would be the most of what an hour prints.
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(CRITICAL))
        stack.callback(structlog.reset_defaults)
        yield Outbox(dsn, DISPATCHERS, stack)


@pytest.fixture(scope="module")
def beginnings(outbox: Outbox) -> Mapping[str, tuple[Image, int]]:
    """Images of an outbox with an endpoint, by its order policy."""
    empty, images = outbox.take(), {}
    settings = {"schedule_seconds": [0] * (TRIES - 1), "total_timeout_ms": 120_000}
    for policy in OrderPolicy:
        outbox.begin(empty)
        outbox.add_endpoint(ENDPOINT, order_policy=policy.value, **settings)
        images[policy.value] = outbox.take()
    return images


def test_each_step_has_an_effect_beside_its_twin(
    outbox: Outbox, beginnings: Mapping[str, tuple[Image, int]]
) -> None:
    Delivery.outbox, Delivery.beginnings, Delivery.effort = outbox, beginnings, Effort()
    machine = Delivery()
    for step in STORY.split("\n"):
        name, *words = step.split()
        arguments = dict(word.split("=") for word in words)
        getattr(machine, name)(
            **{key: VALUES.get(value, value) for key, value in arguments.items()}
        )
    assert [name for name in EFFECTS if not machine.effort.steps[name]] == []


def test_each_step_of_the_twin_is_taken_or_left_out_on_purpose() -> None:
    text = inspect.getsource(dispatcher_steps) + inspect.getsource(pair)
    taken = set(re.findall(r"\bdelivery\.(\w+)", text))
    assert {each.__name__ for each in delivery.ACTIONS} - taken == NOT_BUILT


@pytest.mark.rest
def test_delivery_takes_each_step_as_its_twin(
    outbox: Outbox, beginnings: Mapping[str, tuple[Image, int]]
) -> None:
    Delivery.outbox, Delivery.beginnings, Delivery.effort = outbox, beginnings, Effort()
    effort = search(Delivery, Delivery.effort)
    sys.stdout.write(f"delivery: {effort}\n")
    if effort.steps.total() >= ENOUGH:
        assert [name for name in EFFECTS if not effort.steps[name]] == []

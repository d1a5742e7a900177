"""Sink and dispatchers of a real outbox, beside the twin of the model Delivery.

Where the database chooses (which lane a claim takes), the twin follows, and refuses what the model
does not allow. `Pair` adds the steps of people, and compares both sides.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from hypothesis import currently_in_test_context, note

from holdfast.dispatcher.shared.errors import StoreUnavailableError
from tests.support.dispatch.webhooks import response
from tests.support.twins import delivery
from tests.support.twins.delivery_state import (
    NONE,
    Budget,
    Item,
    Process,
    State,
    World,
    init,
    no_item,
)
from tests.support.twins.dispatchers import Dispatcher, Held
from tests.support.twins.images import Image
from tests.support.twins.outbox import Outbox
from tests.support.twins.receiver import Request

DISPATCHERS = ("one", "two")
SUBJECTS = ("m_1", "m_2")
ENTRIES = 8
"""Maximum of a subject in one example."""

TRIES = 2
UNLIMITED = Budget(*[10**6] * 5)

REFUSALS = {"failed": response(500), "rejected": response(400)}

Entry = tuple[str, int]
"""A subject and a sequence."""

_Backup = tuple[tuple[Image, int], State, Mapping[int, UUID], list[Sequence[Entry]], UUID | None]
"""The database, and what the twin had, its tokens, batches and last replay."""


class DispatcherSteps:
    """The steps of sink and dispatchers. Each returns whether it did anything."""

    def __init__(self, outbox: Outbox, policy: str) -> None:
        """Empty `outbox`, and begin with an endpoint of this order policy."""
        self.outbox = outbox
        self.w = World(DISPATCHERS, SUBJECTS, ENTRIES, 2, TRIES, policy)
        self.s = init(self.w, UNLIMITED)
        self.held: dict[str, Held] = {}
        self.late: dict[Entry, list[Request]] = defaultdict(list)
        self.tokens: dict[int, UUID] = {}
        """The tokens of the database by those of the twin."""
        self.keys: dict[Entry, str] = {}
        self.batches: list[Sequence[Entry]] = []
        self.reissued: set[Entry] = set()
        self.replay: UUID | None = None
        """The last replay."""
        self.is_cancelled = False
        """Whether the replay of the item was cancelled, which the model has not."""
        self.following: Entry | None = None
        """What a second replay sends again once that item has ended."""
        self.backup: _Backup | None = None
        self.aged: set[Entry] = set()
        """Entries of an old day."""
        self.gone: set[Entry] = set()
        """Those whose day was dropped."""
        self.forgotten: set[Entry] = set()
        """Those whose attempts were dropped."""

    # Sink and routing.

    def write(self, subjects: Sequence[str]) -> bool:
        """Write a batch with an entry of each of these subjects."""
        entries: list[Entry] = []
        after = self.s
        for subject in subjects:
            entries.append((subject, len(after.written[subject]) + 1))
            written = delivery.write(self.w, after, subject)
            if written is None:
                return False
            after = written
        keys = self.outbox.ingest(*entries)
        self.keys |= dict(zip(entries, keys, strict=True))
        self.batches.append(entries)
        self.s = after
        return True

    def route(self, dispatcher: str, *, newest_first: bool) -> bool:
        """Route a batch: the oldest, or the one after it while another router has that one."""
        waiting = self.unrouted()
        newest_first &= len(waiting) > 1
        if not waiting:
            return False
        store = self._process(dispatcher).store
        if newest_first:
            with self.outbox.hold_batch():
                routed = self._run(store.route(1))
        else:
            routed = self._run(store.route(1))
        assert routed.batches == 1, routed
        self._routed(waiting[newest_first])
        return True

    def unrouted(self) -> list[Sequence[Entry]]:
        """Return the entries of each batch that is not routed, in order."""
        return [
            batch
            for batch in self.batches
            if any(n not in self.s.routed[subject] for subject, n in batch)
        ]

    def is_due(self, *, or_paused: bool = False) -> bool:
        """Return whether a claim finds a lane; with `or_paused`, also whether it must not."""
        return (self.s.active or or_paused) and any(
            lane.due and lane.token == NONE and lane.held == "no" for lane in self.s.lane.values()
        )

    def next_of(self, dispatcher: str) -> str | None:
        """Return the step that a dispatcher takes next where nothing goes wrong."""
        p = self.s.proc[dispatcher]
        match p.pc:
            case "idle" if self.is_due():
                return "claim"
            case "idle":
                item = delivery.replay_claim(self.w, self.s, dispatcher)
                return None if item is None else "claim_replay"
            case "claimed":
                if self.has_given_back(dispatcher):
                    return "settle"
                return "send" if delivery.trusted(self.s, dispatcher) else "settle"
            case "flight":
                return "receive" if p.request == "out" else "answer"
        return "settle"

    def deliver(self, dispatcher: str, outcome: str) -> bool:
        """Claim a lane, send one entry with this outcome, and settle it."""
        if not self.is_due() or not self.claim(dispatcher):
            return False
        self.send(dispatcher)
        if outcome in REFUSALS:
            self.refuse(dispatcher, outcome)
        else:
            self.receive(dispatcher)
        if outcome == "lost":
            self.lose(dispatcher, arrives=False)
        else:
            self.answer(dispatcher)
        return self.settle(dispatcher)

    def _routed(self, batch: Sequence[Entry]) -> None:
        for subject, n in batch:
            self._take(delivery.route(self.w, self.s, subject, n))

    # Dispatchers.

    def claim(self, dispatcher: str) -> bool:
        """Claim a lane; the database chooses which."""
        if self.s.proc[dispatcher].pc != "idle":
            return False
        claimable = [
            subject
            for subject in self.w.subjects
            if delivery.lane_due(self.w, self.s, dispatcher, subject) is not None
        ]
        got = self._run(self._process(dispatcher).claim(1, self.w.per_lane))
        assert bool(got) is bool(claimable), f"claimed {got}, due is {claimable}"
        for held in got:
            subject = self._subject(held)
            locked = delivery.lane_due(self.w, self.s, dispatcher, subject)
            assert locked is not None, f"{subject} was claimed, due is {claimable}"
            self._claimed(dispatcher, held, delivery.lane_claim(self.w, locked, dispatcher))
        return bool(got)

    def route_and_claim(self, dispatcher: str) -> bool:
        """Route every batch and claim a lane in one transaction, if that is possible."""
        if self.s.proc[dispatcher].pc != "idle":
            return False
        work = self._process(dispatcher).route_and_claim(1, self.w.per_lane)
        done = self._run(work)
        if done is None:
            return False
        batches, got = done
        waiting = self.unrouted()
        assert batches == len(waiting), f"routed {batches} of {waiting}"
        for batch in waiting:
            self._routed(batch)
        for held in got:
            locked = delivery.lane_due(self.w, self.s, dispatcher, self._subject(held))
            assert locked is not None, f"{self._subject(held)} was claimed"
            self._claimed(dispatcher, held, delivery.lane_claim(self.w, locked, dispatcher))
        return batches > 0 or bool(got)

    def claim_replay(self, dispatcher: str) -> bool:
        """Claim the item of a replay."""
        if self.s.proc[dispatcher].pc != "idle":
            return False
        after = delivery.replay_claim(self.w, self.s, dispatcher)
        got, _ = self._run(self._process(dispatcher).claim_replays(1))
        assert len(got) == (after is not None), f"claimed {got}, the item is {self.s.item}"
        for held in got:
            self._claimed(dispatcher, held, after)
        return bool(got)

    def _claimed(self, dispatcher: str, held: Held, after: State | None) -> None:
        self._take(after)
        p = self.s.proc[dispatcher]
        assert tuple(each.sequence for each in held.lane.entries) == p.entries, held.lane
        self.tokens[p.token] = held.lane.token
        self.held[dispatcher] = held

    def send(self, dispatcher: str) -> bool:
        """Begin a request, or give the lane back where its lease is over."""
        if self.s.proc[dispatcher].pc != "claimed" or self.has_given_back(dispatcher):
            return False
        held, after = self.held[dispatcher], delivery.send(self.w, self.s, dispatcher)
        held.may_trust = after is not None
        left = self._run(self._process(dispatcher).send(held))
        assert left is (after is not None), f"a request left: {left}; the twin: {after}"
        if after is not None:
            self._take(after)
        return True

    def has_given_back(self, dispatcher: str) -> bool:
        """Return whether the rest of a lane is given back, which is not stored yet."""
        return self.held[dispatcher].settlement is not None

    def receive(self, dispatcher: str) -> bool:
        """Let a request arrive."""
        after = delivery.receive(self.w, self.s, dispatcher)
        if after is None:
            return False
        self.outbox.receiver.receive(self._request(dispatcher))
        self._take(after)
        return True

    def refuse(self, dispatcher: str, answer: str) -> bool:
        """Let a request arrive where nothing is done: `failed` is a 500, `rejected` a 400."""
        after = delivery.refuse(self.w, self.s, dispatcher, answer)
        if after is None:
            return False
        self._request(dispatcher).answer = REFUSALS[answer]
        self._take(after)
        return True

    def proxy_error(self, dispatcher: str) -> bool:
        """Let a request be applied, and a proxy answer 502."""
        after = delivery.proxy_error(self.w, self.s, dispatcher)
        if after is None:
            return False
        self.outbox.receiver.receive(self._request(dispatcher))
        self._request(dispatcher).answer = response(502)
        return self._take(after)

    def answer(self, dispatcher: str) -> bool:
        """Let the answer arrive."""
        after = delivery.answer(self.w, self.s, dispatcher)
        if after is None:
            return False
        held, reply = self.held[dispatcher], self._request(dispatcher).answer
        self._run(self._process(dispatcher).answer(held, reply))
        self._take(after)
        return True

    def lose(self, dispatcher: str, *, arrives: bool) -> bool:
        """Lose the answer; the request `arrives` later, or is lost if it did not arrive before."""
        after = delivery.no_answer(self.w, self.s, dispatcher, arrives=arrives)
        if after is None:
            return False
        self._keep(dispatcher, arrives=arrives)
        self._run(self._process(dispatcher).answer(self.held[dispatcher], None))
        self._take(after)
        return True

    def arrive(self, subject: str) -> bool:
        """Let the first request arrive that nobody waits for."""
        for n in self.w.sequences:
            after = delivery.arrive(self.w, self.s, subject, n)
            if after is not None:
                self.outbox.receiver.receive(self.late[subject, n].pop(0))
                self._take(after)
                return True
        return False

    def stall(self, dispatcher: str) -> bool:
        """Let a process stand still after it looked at its lease."""
        after = delivery.stall(self.w, self.s, dispatcher)
        return after is not None and self._take(after)

    def crash(self, dispatcher: str, *, arrives: bool) -> bool:
        """Kill a process; another begins."""
        after = delivery.crash(self.w, self.s, dispatcher, arrives=arrives)
        if after is None:
            return False
        self._keep(dispatcher, arrives=arrives)
        process = self._process(dispatcher)
        self._run(process.kill())
        self._run(process.load())
        self.held.pop(dispatcher)
        return self._take(after)

    def settle(self, dispatcher: str, *, fault: str = "none") -> bool:
        """Store a result, or give back what was not sent.

        Faults: `answer lost`, the COMMIT is stored and the process does not know; else a failpoint
        at which its connection is cut, so that nothing is stored.
        """
        p, process = self.s.proc[dispatcher], self._process(dispatcher)
        action = delivery.lane_settle if p.what == "lane" else delivery.replay_settle
        after = action(self.w, self.s, dispatcher)
        if after is None:
            return False
        held = self._result(dispatcher)
        if fault in {"D15", "D11", "D17"} and self._cut(
            fault, process, lambda: process.settle(held)
        ):
            held.is_repeated = True
            return True
        self._run(process.settle(held))
        if fault == "answer lost":
            held.is_repeated = True
            self._run(process.settle(held))
        self.held.pop(dispatcher)
        return self._take(after)

    # Two dispatchers at once.

    def claim_both(self) -> bool:
        """Let both dispatchers claim at once; one may pass over what the other has locked."""
        if any(p.pc != "idle" for p in self.s.proc.values()) or not self.is_due():
            return False
        works = [self._process(name).claim(1, self.w.per_lane) for name in DISPATCHERS]
        claims = dict(zip(DISPATCHERS, self.outbox.loop.both(*works), strict=True))
        assert any(claims.values()), "neither claimed, and a lane is due"
        for dispatcher, got in claims.items():
            for held in got:
                locked = delivery.lane_due(self.w, self.s, dispatcher, self._subject(held))
                assert locked is not None, f"{self._subject(held)} was claimed twice"
                self._claimed(dispatcher, held, delivery.lane_claim(self.w, locked, dispatcher))
        return True

    def settle_beside_rescue(self, dispatcher: str) -> bool:
        """Let a process settle whose lease has ended, while another dispatcher rescues."""
        p = self.s.proc[dispatcher]
        ends = p.what == "lane" and self.s.lane[p.subject].ended
        if delivery.lane_settle(self.w, self.s, dispatcher) is None or not ends:
            return False
        held, other = self._result(dispatcher), self._process(_other(dispatcher))
        settled, rescued = self.outbox.loop.both(
            self._process(dispatcher).settle(held), other.store.rescue(1)
        )
        names = {self._name(each.subject_id) for each in rescued}
        is_late = self.s.lane[p.subject].token != p.token
        assert bool(settled) is not (is_late or p.subject in names), (settled, names)
        for subject in sorted(names):
            self._take(delivery.lane_rescue(self.w, self.s, subject))
        self.held.pop(dispatcher)
        return self._take(delivery.lane_settle(self.w, self.s, dispatcher))

    def settle_beside_route(self, dispatcher: str) -> bool:
        """Let a process settle while another dispatcher routes."""
        waiting = self.unrouted()
        is_lane = self.s.proc[dispatcher].what == "lane"
        if not is_lane or not waiting or not delivery.lane_settle(self.w, self.s, dispatcher):
            return False
        held, other = self._result(dispatcher), self._process(_other(dispatcher))
        _, routed = self.outbox.loop.both(
            self._process(dispatcher).settle(held), other.store.route(1)
        )
        assert routed.batches == 1, routed
        self._routed(waiting[0])
        self.held.pop(dispatcher)
        return self._take(delivery.lane_settle(self.w, self.s, dispatcher))

    def _result(self, dispatcher: str) -> Held:
        """Return what a dispatcher holds, once the rest of it is given back."""
        held = self.held[dispatcher]
        if held.settlement is None:
            self._run(self._process(dispatcher).give_back(held))
        return held

    # Leases.

    def lease_ends(self, subject: str) -> bool:
        """Let the lease of a lane end."""
        after = delivery.lease_ends(self.w, self.s, subject)
        if after is None:
            return False
        self.outbox.expire(self.tokens[self.s.lane[subject].token])
        return self._take(after)

    def item_lease_ends(self) -> bool:
        """Let the lease of a replay's item end."""
        after = delivery.item_lease_ends(self.w, self.s)
        if after is None:
            return False
        self.outbox.expire(self.tokens[self.s.item.token], is_item=True)
        return self._take(after)

    def rescue(self, dispatcher: str, *, is_cut: bool) -> bool:
        """Rescue a lane whose lease ended; the database chooses which."""
        ended = [subject for subject in self.w.subjects if self.s.lane[subject].ended]
        process = self._process(dispatcher)
        store = process.store
        if is_cut and self._cut("D13", process, lambda: store.rescue(1)):
            return True
        rescued = self._run(store.rescue(1))
        assert bool(rescued) is bool(ended), f"rescued {rescued}, ended are {ended}"
        for subject in {self._name(each.subject_id) for each in rescued}:
            self._take(delivery.lane_rescue(self.w, self.s, subject))
        return bool(ended)

    def rescue_replay(self, dispatcher: str) -> bool:
        """Rescue the item of a replay whose lease ended."""
        after = delivery.replay_rescue(self.w, self.s)
        rescued = self._run(self._process(dispatcher).store.rescue_replays(1))
        assert bool(rescued) is (after is not None), f"rescued {rescued}: {self.s.item}"
        return after is not None and self._take(after)

    # Helpers.

    def _take(self, after: State | None) -> bool:
        assert after is not None, "the model has no such step"
        if self.is_cancelled and after.item.state != "leased":
            item = Item("due", *self.following) if self.following else no_item(self.w)
            after, self.is_cancelled, self.following = after._replace(item=item), False, None
        before, self.s = self.s, after
        for dispatcher in DISPATCHERS:
            if (p := after.proc[dispatcher]) != before.proc[dispatcher]:
                tell(f"{dispatcher}: {_told(p)}")
        return True

    def _run(self, work: Any) -> Any:
        return self.outbox.loop.run(work)

    def _process(self, dispatcher: str) -> Dispatcher:
        return self.outbox.dispatchers[dispatcher]

    def _request(self, dispatcher: str) -> Request:
        request = self.held[dispatcher].request
        assert request is not None, "no request is under way"
        return request

    def _keep(self, dispatcher: str, *, arrives: bool) -> None:
        p = self.s.proc[dispatcher]
        if arrives:
            self.late[p.subject, p.entries[0]].append(self._request(dispatcher))

    def _cut(self, point: str, process: Dispatcher, work: Callable[[], Any]) -> bool:
        """Cut the connection at a failpoint; returns whether the work came there."""
        with self.outbox.cut_at(point, process) as ended:
            try:
                self._run(work())
            except StoreUnavailableError:
                assert ended, "the database was not away"
        return bool(ended)

    def _subject(self, held: Held) -> str:
        return self._name(held.lane.subject_id)

    def _name(self, subject_id: int) -> str:
        return self.outbox.subject(subject_id)


def _other(dispatcher: str) -> str:
    one, two = DISPATCHERS
    return two if dispatcher == one else one


def tell(text: str) -> None:
    """Add a line to the script of a failure."""
    if currently_in_test_context():
        note(f"    # {text}")


def _told(p: Process) -> str:
    """Return what a dispatcher holds, for the script of a failure."""
    if p.pc == "idle":
        return "idle"
    entries = ", ".join(map(str, p.entries)) or "nothing left"
    words = [p.request] * (p.request != "none") + [p.outcome] * (p.outcome != "none")
    return " ".join([p.pc, p.what, p.subject, f"({entries})", *words, *["stalled"] * p.stalled])

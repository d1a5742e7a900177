"""The twin of the model Delivery (docs/models): its states, and a function for each of its steps.

The functions have the names of the actions in the module, and return the state after the step, or
None where the step is not possible. No safety is removed here. `tests/model/test_twins.py` compares
the reachable states and steps with those that TLC finds.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

from tests.support.twins.delivery_state import (
    NONE,
    Budget,
    Counts,
    Item,
    Lane,
    Process,
    State,
    Words,
    World,
    idle,
    no_item,
)
from tests.support.twins.graph import Map


def _with(values: tuple[Any, ...], n: int, value: Any) -> tuple[Any, ...]:
    """Return a tuple by sequence with another value of one."""
    return (*values[: n - 1], value, *values[n:])


def _add(counts: Map[str, Counts], subject: str, n: int, more: int = 1) -> Map[str, Counts]:
    """Return counts with more of one entry."""
    return counts.but(subject, _with(counts[subject], n, counts[subject][n - 1] + more))


def _spend(s: State, what: str) -> Budget | None:
    left = getattr(s.budget, what)
    return s.budget._replace(**{what: left - 1}) if left > 0 else None


def _locked(s: State, subject: str) -> bool:
    """Return whether a claim has the lane's row lock."""
    return any(each.pc == "locked" and each.subject == subject for each in s.proc.values())


def free_token(s: State) -> int:
    """Return the token of the next lease."""
    used = {each.token for each in s.proc.values()} | {each.token for each in s.lane.values()}
    used.add(s.item.token)
    return next(token for token in range(1, len(used) + 2) if token not in used)


def past(lane: Lane, gone: frozenset[int]) -> Lane:
    """Return a lane that has passed the cancelled entries which are next."""
    delivered = lane.delivered
    while delivered < lane.last and delivered + 1 in gone:
        delivered += 1
    if delivered == lane.delivered:
        return lane
    return lane._replace(delivered=delivered, due=lane.due and delivered < lane.last, steps=0)


# The sink's transaction, and routing.


def write(w: World, s: State, subject: str) -> State | None:
    """A batch with the next entry of a subject is written."""
    n = len(s.written[subject]) + 1
    if n > w.entries:
        return None
    return s._replace(written=s.written.but(subject, s.written[subject] | {n}))


def route(_w: World, s: State, subject: str, n: int) -> State | None:
    """A batch is routed: its lane is made or advanced."""
    if n not in s.written[subject] - s.routed[subject] or _locked(s, subject):
        return None
    lane = s.lane[subject]
    if not lane.exists:
        first = min(s.written[subject])
        lane = lane._replace(exists=True, last=n, due=True, delivered=first - 1)
    elif lane.last < n:
        lane = lane._replace(last=n, due=lane.due or lane.delivered == lane.last)
    lane = past(lane, s.cancelled[subject])
    return s._replace(
        routed=s.routed.but(subject, s.routed[subject] | {n}), lane=s.lane.but(subject, lane)
    )


# The claim.


def _waiting(s: State, subject: str) -> list[int]:
    lane = s.lane[subject]
    end = min([n for n in s.cancelled[subject] if n > lane.delivered], default=lane.last + 1)
    return sorted(n for n in s.written[subject] if lane.delivered < n <= lane.last and n < end)


def following(w: World, s: State, subject: str) -> tuple[int, ...]:
    """Return the entries that a claim takes of a lane."""
    return tuple(_waiting(s, subject))[: w.per_lane]


def lane_due(w: World, s: State, dispatcher: str, subject: str) -> State | None:
    """A claim locks a due lane, and reads its entries."""
    lane, entries = s.lane[subject], following(w, s, subject)
    is_due = lane.due and lane.token == NONE and lane.held == "no" and s.active
    if s.proc[dispatcher].pc != "idle" or _locked(s, subject) or not is_due or not entries:
        return None
    process = Process("locked", "lane", subject, free_token(s), entries)
    return s._replace(proc=s.proc.but(dispatcher, process))


def lane_claim(_w: World, s: State, dispatcher: str) -> State | None:
    """The claim commits: the lease begins."""
    p = s.proc[dispatcher]
    if p.pc != "locked":
        return None
    lane = s.lane[p.subject]
    lane = lane._replace(token=p.token, ended=False, claimed=max(lane.claimed, p.entries[-1]))
    return s._replace(
        lane=s.lane.but(p.subject, lane), proc=s.proc.but(dispatcher, p._replace(pc="claimed"))
    )


def lane_empty(_w: World, s: State, subject: str) -> State | None:
    """Nothing is left in a due lane that the endpoint gets."""
    lane = s.lane[subject]
    if not lane.due or lane.token != NONE or _locked(s, subject) or _waiting(s, subject):
        return None
    return s._replace(
        lane=s.lane.but(subject, lane._replace(delivered=lane.last, due=False, steps=0))
    )


def replay_claim(_w: World, s: State, dispatcher: str) -> State | None:
    """An item is taken, under a lease of its own."""
    item = s.item
    is_due = item.state == "due" and s.active and s.lane[item.subject].held == "no"
    if s.proc[dispatcher].pc != "idle" or not is_due:
        return None
    token = free_token(s)
    process = Process("claimed", "item", item.subject, token, (item.sequence,))
    return s._replace(
        item=item._replace(state="leased", token=token, ended=False),
        proc=s.proc.but(dispatcher, process),
    )


# The lease.


def has_lease(s: State, dispatcher: str) -> bool:
    """Return whether what a dispatcher holds is still under its lease."""
    p = s.proc[dispatcher]
    leased: Lane | Item = s.lane[p.subject] if p.what == "lane" else s.item
    return leased.token == p.token and not leased.ended


def trusted(s: State, dispatcher: str) -> bool:
    """Return whether a dispatcher may begin a request."""
    return has_lease(s, dispatcher) or s.proc[dispatcher].stalled


def _may_end(s: State, token: int) -> bool:
    """Return whether every process with this lease has stalled: one that runs ends before it."""
    return all(each.stalled for each in s.proc.values() if each.token == token)


def lease_ends(_w: World, s: State, subject: str) -> State | None:
    """The lease of a lane ends, by the database's clock."""
    lane = s.lane[subject]
    if lane.token == NONE or lane.ended or not _may_end(s, lane.token):
        return None
    return s._replace(lane=s.lane.but(subject, lane._replace(ended=True)))


def item_lease_ends(_w: World, s: State) -> State | None:
    """The lease of an item ends."""
    if s.item.state != "leased" or s.item.ended or not _may_end(s, s.item.token):
        return None
    return s._replace(item=s.item._replace(ended=True))


def lane_rescue(_w: World, s: State, subject: str) -> State | None:
    """What may have been sent under a lease that ended is unknown; the lane is due again."""
    lane = s.lane[subject]
    if lane.token == NONE or not lane.ended:
        return None
    unknown = s.unknown
    for n in s.written[subject] - s.cancelled[subject]:
        if lane.delivered < n <= lane.claimed:
            unknown = _add(unknown, subject, n)
    lane = lane._replace(token=NONE, ended=False, due=True)
    return s._replace(lane=s.lane.but(subject, lane), unknown=unknown)


def replay_rescue(_w: World, s: State) -> State | None:
    """The same for an item."""
    item = s.item
    if item.state != "leased" or not item.ended:
        return None
    return s._replace(
        item=item._replace(state="due", token=NONE, ended=False),
        unknown=_add(s.unknown, item.subject, item.sequence),
    )


# Sender and receiver.


def send(_w: World, s: State, dispatcher: str) -> State | None:
    """A request leaves."""
    p = s.proc[dispatcher]
    if p.pc != "claimed" or not trusted(s, dispatcher):
        return None
    return s._replace(
        proc=s.proc.but(dispatcher, p._replace(pc="flight", request="out")),
        sent=s.sent.but(p.subject, s.sent[p.subject] | {p.entries[0]}),
    )


def _deal(s: State, subject: str, n: int) -> State:
    """The receiver keeps the key and acts, in one commit."""
    if s.inbox[subject][n - 1] != "none":
        return s._replace(duplicates=_add(s.duplicates, subject, n))
    newest = n > s.fence[subject]
    return s._replace(
        inbox=s.inbox.but(subject, _with(s.inbox[subject], n, "applied" if newest else "stale")),
        fence=s.fence.but(subject, max(s.fence[subject], n)),
        applied=s.applied.but(subject, (*s.applied[subject], n)) if newest else s.applied,
    )


def receive(_w: World, s: State, dispatcher: str) -> State | None:
    """A request arrives."""
    p = s.proc[dispatcher]
    if p.pc != "flight" or p.request != "out":
        return None
    s = _deal(s, p.subject, p.entries[0])
    return s._replace(proc=s.proc.but(dispatcher, p._replace(request="delivered")))


def refuse(_w: World, s: State, dispatcher: str, answer: str) -> State | None:
    """A request arrives, and the receiver commits nothing: 5xx (failed) or 4xx (rejected)."""
    p, budget = s.proc[dispatcher], _spend(s, "faults")
    if p.pc != "flight" or p.request != "out" or budget is None:
        return None
    return s._replace(proc=s.proc.but(dispatcher, p._replace(request=answer)), budget=budget)


def proxy_error(_w: World, s: State, dispatcher: str) -> State | None:
    """A request is applied and a proxy answers 502: `Refuse` without `ErrorsAreTrue`."""
    p = s.proc[dispatcher]
    if p.pc != "flight" or p.request != "out":
        return None
    s = _deal(s, p.subject, p.entries[0])
    return s._replace(proc=s.proc.but(dispatcher, p._replace(request="failed")))


def answer(_w: World, s: State, dispatcher: str) -> State | None:
    """An answer arrives."""
    p = s.proc[dispatcher]
    if p.pc != "flight" or p.request not in {"delivered", "failed", "rejected"}:
        return None
    if p.request == "delivered":
        first, *rest = p.entries
        after = p._replace(
            pc="claimed" if rest else "answered",
            done=first,
            entries=tuple(rest),
            request="none",
            outcome="none" if rest else "delivered",
        )
    else:
        after = p._replace(pc="answered", request="none", outcome=p.request)
    return s._replace(proc=s.proc.but(dispatcher, after))


def _abandoned(s: State, p: Process, *, arrives: bool) -> State | None:
    if not arrives:
        return s
    if p.request != "out":
        return None
    return s._replace(late=_add(s.late, p.subject, p.entries[0]))


def no_answer(_w: World, s: State, dispatcher: str, *, arrives: bool) -> State | None:
    """The time-out passes; the request is lost, or on its way, or its answer is lost."""
    p, budget = s.proc[dispatcher], _spend(s, "faults")
    if p.pc != "flight" or budget is None:
        return None
    after = _abandoned(s, p, arrives=arrives)
    if after is None:
        return None
    p = p._replace(pc="answered", request="none", outcome="unknown")
    return after._replace(proc=s.proc.but(dispatcher, p), budget=budget)


def arrive(_w: World, s: State, subject: str, n: int) -> State | None:
    """A request arrives that nobody waits for any more."""
    if not s.late[subject][n - 1]:
        return None
    return _deal(s._replace(late=_add(s.late, subject, n, -1)), subject, n)


def stall(_w: World, s: State, dispatcher: str) -> State | None:
    """A process stalls: between its check of the lease and the request, or with one under way."""
    p, budget = s.proc[dispatcher], _spend(s, "faults")
    if p.pc not in {"claimed", "flight", "answered"} or p.stalled or budget is None:
        return None
    return s._replace(proc=s.proc.but(dispatcher, p._replace(stalled=True)), budget=budget)


def crash(w: World, s: State, dispatcher: str, *, arrives: bool) -> State | None:
    """A process ends with all that it had in memory."""
    p, budget = s.proc[dispatcher], _spend(s, "faults")
    if p.pc == "idle" or budget is None or (arrives and p.pc != "flight"):
        return None
    after = _abandoned(s, p, arrives=arrives)
    if after is None:
        return None
    return after._replace(proc=s.proc.but(dispatcher, idle(w)), budget=budget)


# Settling.


def _failed(p: Process) -> bool:
    return p.outcome in {"failed", "unknown"}


def _record(s: State, p: Process) -> State:
    """Record the attempt that was not delivered, if there is one."""
    if p.pc != "answered" or not _failed(p):
        return s
    n = p.entries[0]
    if p.outcome == "unknown":
        s = s._replace(unknown=_add(s.unknown, p.subject, n))
    return s._replace(failures=_add(s.failures, p.subject, n))


def lane_settle(w: World, s: State, dispatcher: str) -> State | None:
    """The result of a lane is stored, or what was not sent is given back."""
    p = s.proc[dispatcher]
    if p.what != "lane" or p.pc not in {"claimed", "answered"} or _locked(s, p.subject):
        return None
    before = s.lane[p.subject]
    after = s._replace(proc=s.proc.but(dispatcher, idle(w)))
    if before.token != p.token:
        return after
    after = _record(after, p)
    delivered = p.done or before.delivered
    steps = (0 if p.done else before.steps) + _failed(p)
    lane = before._replace(token=NONE, ended=False, delivered=delivered, steps=steps)
    if p.outcome == "rejected" or (_failed(p) and steps >= w.tries):
        n = p.entries[0]
        reason = "rejected" if p.outcome == "rejected" else "exhausted"
        after = after._replace(dead=s.dead.but(p.subject, _with(s.dead[p.subject], n, reason)))
        if w.order_policy == "stop":
            lane = lane._replace(due=False)
        else:
            lane = lane._replace(due=n < before.last, steps=0, delivered=n)
    else:
        lane = lane._replace(due=delivered < before.last)
    lane = past(lane, s.cancelled[p.subject])
    return after._replace(lane=s.lane.but(p.subject, lane))


def replay_settle(w: World, s: State, dispatcher: str) -> State | None:
    """The result of an item is stored: a failed one is tried again, by the schedule."""
    p = s.proc[dispatcher]
    if p.what != "item" or p.pc not in {"claimed", "answered"}:
        return None
    after = s._replace(proc=s.proc.but(dispatcher, idle(w)))
    if s.item.token != p.token:
        return after
    after, steps = _record(after, p), s.item.steps + _failed(p)
    if p.outcome == "delivered" and _is_dead(s, s.item.subject, s.item.sequence):
        after = after._replace(dead=resolved(s, s.item.subject, s.item.sequence))
    if p.pc == "answered" and (not _failed(p) or steps >= w.tries):
        return after._replace(item=no_item(w))
    item = s.item._replace(state="due", token=NONE, ended=False, steps=steps)
    return after._replace(item=item)


# People.


def pause(_w: World, s: State) -> State | None:
    """An operator pauses the endpoint."""
    budget = _spend(s, "pauses")
    return s._replace(active=False, budget=budget) if s.active and budget else None


def resume(_w: World, s: State) -> State | None:
    """An operator resumes the endpoint."""
    return None if s.active else s._replace(active=True)


def hold(_w: World, s: State, subject: str) -> State | None:
    """`subject hold` marks the lane."""
    lane, budget = s.lane[subject], _spend(s, "holds")
    if lane.held != "no" or not lane.exists or _locked(s, subject) or budget is None:
        return None
    return s._replace(lane=s.lane.but(subject, lane._replace(held="asked")), budget=budget)


def hold_answers(_w: World, s: State, subject: str) -> State | None:
    """It answers once no lease is left that began before."""
    lane = s.lane[subject]
    item_leased = s.item.state == "leased" and s.item.subject == subject
    if lane.held != "asked" or lane.token != NONE or item_leased:
        return None
    return s._replace(lane=s.lane.but(subject, lane._replace(held="held")))


def resume_subject(_w: World, s: State, subject: str) -> State | None:
    """The subject continues."""
    lane = s.lane[subject]
    if lane.held != "held":
        return None
    return s._replace(lane=s.lane.but(subject, lane._replace(held="no")))


def cancel(_w: World, s: State, subject: str, n: int) -> State | None:
    """A person cancels an entry that no claim has, and of which no attempt is recorded."""
    lane, budget = s.lane[subject], _spend(s, "cancels")
    is_stored = n in s.written[subject] - s.cancelled[subject]
    if not is_stored or _locked(s, subject) or budget is None:
        return None
    tried = s.unknown[subject][n - 1] or s.failures[subject][n - 1]
    tried = tried or s.dead[subject][n - 1] != "none"
    if n <= lane.delivered or (n <= lane.claimed and (lane.token != NONE or tried)):
        return None
    cancelled = s.cancelled.but(subject, s.cancelled[subject] | {n})
    lane = past(lane._replace(claimed=min(lane.claimed, n - 1)), cancelled[subject])
    return s._replace(cancelled=cancelled, lane=s.lane.but(subject, lane), budget=budget)


def _is_dead(s: State, subject: str, n: int) -> bool:
    return s.dead[subject][n - 1] in {"rejected", "exhausted"}


def stopped(s: State, subject: str, n: int) -> bool:
    """Return whether the dead letter of an entry stops its lane."""
    lane = s.lane[subject]
    return _is_dead(s, subject, n) and lane.token == NONE and not lane.due and lane.delivered < n


def resolved(s: State, subject: str, n: int) -> Map[str, Words]:
    """Return the dead letters after that of an entry is resolved."""
    return s.dead.but(subject, _with(s.dead[subject], n, "resolved"))


def redeliver(_w: World, s: State, subject: str, n: int) -> State | None:
    """A replay of one entry: it frees the lane that its dead letter stops, or is sent beside it."""
    lane, budget = s.lane[subject], _spend(s, "replays")
    if n not in s.written[subject] - s.cancelled[subject] or budget is None:
        return None
    if stopped(s, subject, n) and not _locked(s, subject):
        return s._replace(
            lane=s.lane.but(subject, lane._replace(due=True, steps=0)),
            dead=resolved(s, subject, n),
            budget=budget,
        )
    if not lane.exists or n > lane.delivered or s.item.state != "none":
        return None
    return s._replace(
        item=Item("due", subject, n), resent=_add(s.resent, subject, n), budget=budget
    )


def dismiss(_w: World, s: State, subject: str, n: int) -> State | None:
    """A person dismisses the dead letter that stops a lane, which continues behind it."""
    if not stopped(s, subject, n) or _locked(s, subject):
        return None
    lane = s.lane[subject]
    lane = lane._replace(delivered=n, due=n < lane.last, steps=0)
    lane = past(lane, s.cancelled[subject])
    return s._replace(lane=s.lane.but(subject, lane), dead=resolved(s, subject, n))


_Action = Callable[..., State | None]

_OF_SUBJECT: Sequence[_Action] = (
    *(write, lane_empty, lease_ends, lane_rescue, hold, hold_answers, resume_subject),
)
_OF_ENTRY: Sequence[_Action] = (route, arrive, cancel, redeliver, dismiss)
_OF_DISPATCHER: Sequence[_Action] = (
    *(lane_claim, replay_claim, send, receive, answer, stall, lane_settle, replay_settle),
)
_OF_ALL: Sequence[_Action] = (item_lease_ends, replay_rescue, pause, resume)


_OF_CHOICE: Sequence[_Action] = (lane_due, refuse, no_answer, crash)
ACTIONS: Sequence[_Action] = [
    *(*_OF_SUBJECT, *_OF_ENTRY, *_OF_DISPATCHER, *_OF_ALL, *_OF_CHOICE),
]


def name_of(action: Callable[..., Any]) -> str:
    """Return the name of an action in the module: `lane_due` is `LaneDue`."""
    return "".join(map(str.capitalize, action.__name__.split("_")))


def steps(w: World, s: State) -> Iterator[tuple[str, State]]:
    """Yield every possible step: its name in the module, and the state after it."""
    for action, *arguments, after in _tried(w, s):
        del arguments
        if after is not None:
            yield name_of(action), after


def _tried(w: World, s: State) -> Iterator[tuple[Any, ...]]:
    for action in _OF_ALL:
        yield action, action(w, s)
    for action, subject in product(_OF_SUBJECT, w.subjects):
        yield action, action(w, s, subject)
    for action, subject, n in product(_OF_ENTRY, w.subjects, w.sequences):
        yield action, action(w, s, subject, n)
    for action, dispatcher in product(_OF_DISPATCHER, w.dispatchers):
        yield action, action(w, s, dispatcher)
    for dispatcher, subject in product(w.dispatchers, w.subjects):
        yield lane_due, lane_due(w, s, dispatcher, subject)
    for dispatcher, reply in product(w.dispatchers, ("failed", "rejected")):
        yield refuse, refuse(w, s, dispatcher, reply)
    for dispatcher, arrives in product(w.dispatchers, (False, True)):
        yield no_answer, no_answer(w, s, dispatcher, arrives=arrives)
        yield crash, crash(w, s, dispatcher, arrives=arrives)

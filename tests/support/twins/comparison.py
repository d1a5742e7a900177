"""Compares a real outbox with the twin of the model Delivery."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tests.support.twins.delivery_state import NONE
from tests.support.twins.outbox import Seen

if TYPE_CHECKING:
    from tests.support.twins.pair import Pair

ENDPOINT = "payouts"


def differences(pair: "Pair", seen: Seen) -> Iterator[str]:
    """Yield what differs, of the database first."""
    for name, real, twin in _compared(pair, seen):
        if real != twin:
            yield f"{name}: the database has {real}, the twin {twin}"


def _compared(pair: "Pair", seen: Seen) -> Iterator[tuple[str, Any, Any]]:
    s, w = pair.s, pair.w
    entries = {entry: key for entry, (key, _) in seen.entries.items()}
    written = {(subject, n) for subject in w.subjects for n in s.written[subject]} - pair.gone
    yield "entries", entries, {entry: pair.keys[entry] for entry in sorted(written)}
    routed = {entry for entry, (_, is_routed) in seen.entries.items() if is_routed}
    twin = {(subject, n) for subject in w.subjects for n in s.routed[subject]}
    yield "routed", routed, twin - pair.gone
    yield "active", seen.endpoints[ENDPOINT] == "active", s.active
    for subject in w.subjects:
        yield f"lane of {subject}", *_lanes(pair, seen, subject)
        yield f"dead letters of {subject}", *_letters(pair, seen, subject)
        yield f"attempts of {subject}", *_attempts(pair, seen, subject)
        yield f"receiver of {subject}", *_received(pair, seen, subject)
    yield "item", *_items(pair, seen)
    for dispatcher in w.dispatchers:
        yield f"memory of {dispatcher}", *_memories(pair, dispatcher)


def _lanes(pair: "Pair", seen: Seen, subject: str) -> tuple[Any, Any]:
    lane, row = pair.s.lane[subject], seen.lanes.get((ENDPOINT, subject))
    if row is None or not lane.exists:
        return row is not None, lane.exists
    real: dict[str, Any] = {"delivered": row.delivered, "last": row.last, "claimed": row.claimed}
    twin: dict[str, Any] = {"delivered": lane.delivered, "last": lane.last, "claimed": lane.claimed}
    if lane.token != NONE:
        state = "leased"
    elif lane.due:
        state = "due"
    else:
        state = "idle" if lane.delivered == lane.last else "stopped"
    real |= {"state": row.state, "token": row.token, "held": row.is_held}
    twin |= {"state": state, "token": pair.tokens.get(lane.token), "held": lane.held != "no"}
    if state != "stopped":  # the attempt that stopped it is counted in the database
        real["steps"] = row.attempt - row.rescued - (state == "leased")
        twin["steps"] = lane.steps
    return real, twin


def _letters(pair: "Pair", seen: Seen, subject: str) -> tuple[Any, Any]:
    real = ["none"] * pair.w.entries
    for each in seen.dead:
        if each.subject == subject:
            real[each.sequence - 1] = "resolved" if each.resolution else each.reason
    return tuple(real), pair.s.dead[subject]


def _attempts(pair: "Pair", seen: Seen, subject: str) -> tuple[Any, Any]:
    real, twin = {}, {}
    for n in pair.w.sequences:
        if (subject, n) in pair.forgotten:
            continue
        tried = seen.attempts.get((ENDPOINT, subject, n), [])
        outcomes, numbers = (
            Counter(outcome for _, outcome in tried),
            [number for number, _ in tried],
        )
        unknown = outcomes["unknown"] + outcomes["rescued"]
        real[n] = unknown, outcomes["unknown"] + outcomes["failed"], numbers
        without_gap = list(range(1, len(numbers) + 1))
        twin[n] = pair.s.unknown[subject][n - 1], pair.s.failures[subject][n - 1], without_gap
    return real, twin


def _received(pair: "Pair", seen: Seen, subject: str) -> tuple[Any, Any]:
    names = {key: entry for entry, key in pair.keys.items()}
    inbox = ["none"] * pair.w.entries
    duplicates = [0] * pair.w.entries
    for key, (_, sequence, outcome) in seen.inbox.items():
        if names[key][0] == subject:
            assert names[key][1] == sequence, (key, sequence)
            inbox[sequence - 1] = outcome
            duplicates[sequence - 1] = seen.duplicates.get(key, 0)
    applied = tuple(names[key][1] for key in seen.actions if names[key][0] == subject)
    real = (tuple(inbox), seen.fences.get(subject, 0), applied, tuple(duplicates))
    s = pair.s
    return real, (s.inbox[subject], s.fence[subject], s.applied[subject], s.duplicates[subject])


def _items(pair: "Pair", seen: Seen) -> tuple[Any, Any]:
    real = [
        (each.subject, each.sequence, each.token)
        for each in seen.items
        if each.kind == "resend" and not each.is_settled
        if each.state == "applying" or each.token is not None
    ]
    item = pair.s.item
    twin = [(item.subject, item.sequence, pair.tokens.get(item.token))]
    if pair.following is not None:
        twin.append((*pair.following, None))
    return real, [] if item.state == "none" else twin


def _memories(pair: "Pair", dispatcher: str) -> tuple[Any, Any]:
    held, p = pair.held.get(dispatcher), pair.s.proc[dispatcher]
    if held is None:
        return "idle", p.pc
    if held.settlement is not None:
        # A sender gives the rest back by itself where its lease is over.
        return ("answered", p.pc) if p.pc != "claimed" else (None, None)
    return ("claimed" if held.turn is not None else "flight"), p.pc

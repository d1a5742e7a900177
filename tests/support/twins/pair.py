"""A real outbox and the twin of the model Delivery, which take each step together.

Where the database chooses (which lane a claim takes), the twin follows, and refuses what the model
does not allow. `compare` says what differs.
"""

from collections.abc import Mapping
from uuid import UUID

import pytest

from holdfast.sink.contract.exits import CommandError
from tests.support.twins import delivery
from tests.support.twins.comparison import ENDPOINT, differences
from tests.support.twins.delivery_state import NONE, State
from tests.support.twins.dispatcher_steps import DispatcherSteps, Entry
from tests.support.twins.graph import Map


class Pair(DispatcherSteps):
    """Both sides: also the steps of people, days that pass, and backups."""

    # People.

    def pause(self) -> bool:
        """Pause the endpoint."""
        after = delivery.pause(self.w, self.s)
        if after is None:
            return False
        self.outbox.set_state(ENDPOINT, "paused")
        return self._take(after)

    def resume(self) -> bool:
        """Resume the endpoint."""
        after = delivery.resume(self.w, self.s)
        if after is None:
            return False
        self.outbox.set_state(ENDPOINT, "active")
        for process in self.outbox.dispatchers.values():
            self._run(process.load())  # one that began meanwhile does not know the endpoint
        return self._take(after)

    def hold(self, subject: str) -> bool:
        """Hold a subject. The answer says whether something is in flight: *asked*, else *held*."""
        after = delivery.hold(self.w, self.s, subject)
        if after is None:
            return False
        asked = self.outbox.hold(ENDPOINT, subject)
        answered = delivery.hold_answers(self.w, after, subject)
        assert asked is (answered is None), f"in flight: {asked}; the twin: {after.lane[subject]}"
        return self._take(answered or after)

    def hold_answers(self, subject: str) -> bool:
        """Hold a subject again whose lease has ended: nothing is in flight any more."""
        after = delivery.hold_answers(self.w, self.s, subject)
        if after is None:
            return False
        assert not self.outbox.hold(ENDPOINT, subject)
        return self._take(after)

    def resume_subject(self, subject: str) -> bool:
        """Resume a subject; the model has it only once the hold is answered."""
        after = delivery.resume_subject(self.w, self.s, subject)
        if after is None:
            return False
        self.outbox.resume(ENDPOINT, subject)
        return self._take(after)

    def cancel(self, entry: Entry) -> bool:
        """Cancel an entry before it leaves."""
        after = delivery.cancel(self.w, self.s, *entry)
        if after is None or entry in self.gone:
            return False
        self.outbox.cancel(self.keys[entry])
        return self._take(after)

    def cancel_begun(self, entry: Entry) -> bool:
        """Cancel an entry that was begun, which changes nothing."""
        if delivery.cancel(self.w, self.s, *entry) is not None or entry in self.gone:
            return False
        refused = {"delivery_begun", "already_cancelled"}
        with pytest.raises(CommandError) as raised:
            self.outbox.cancel(self.keys[entry])
        assert raised.value.code in refused, raised.value
        return True

    def redeliver(self, dispatcher: str, entry: Entry) -> bool:
        """Send an entry again; a dispatcher frees the lane that it stops, unless it is on hold."""
        frees = delivery.stopped(self.s, *entry)
        after = delivery.redeliver(self.w, self.s, *entry)
        # A dispatcher takes the item of an older replay first.
        waits = not self.s.active or self.s.item.state == "due" or self._is_held(entry[0])
        if after is None or (frees and waits):
            return False
        if entry in self.reissued | self.gone:
            return False  # it is never sent again
        self.replay = self.outbox.redeliver(self.keys[entry])
        if frees:
            got, moved = self._run(self._process(dispatcher).claim_replays(1))
            assert (got, moved) == ([], 1), (got, moved)
        return self._take(after)

    def retried(self) -> list[str]:
        """Return the subjects whose next entry waits for a retry."""
        return [
            subject
            for subject, lane in self.s.lane.items()
            if lane.due and lane.token == NONE and lane.steps and self.s.active
            if not self._is_held(subject)
        ]

    def _is_held(self, subject: str) -> bool:
        return self.s.lane[subject].held != "no"

    def hasten(self, dispatcher: str, subject: str) -> bool:
        """Have a retry brought forward, which is due already: the count of attempts stays."""
        if subject not in self.retried() or self.s.item.state == "due":
            return False
        self.outbox.redeliver(self.keys[subject, self.s.lane[subject].delivered + 1])
        got, _ = self._run(self._process(dispatcher).claim_replays(1))
        assert got == [], got
        return True

    def redeliver_cancelled(self) -> bool:
        """Send an entry again whose cancelled replay still has it under way."""
        item = self.s.item
        if not self.is_cancelled or self.following is not None:
            return False
        self.following = item.subject, item.sequence
        self.replay = self.outbox.redeliver(self.keys[self.following])
        return True

    def dismiss(self, entry: Entry) -> bool:
        """Dismiss the dead letter that stops a lane."""
        after = delivery.dismiss(self.w, self.s, *entry)
        if after is None:
            return False
        self.outbox.dismiss(ENDPOINT, *entry)
        return self._take(after)

    def reissuable(self) -> list[Entry]:
        """Return the entries that can be decided again under another key."""
        lanes = {subject: self.s.lane[subject] for subject in self.w.subjects}
        return [
            (subject, n)
            for subject, lane in lanes.items()
            for n in sorted(self.s.written[subject])
            if lane.exists and (n <= lane.delivered or delivery.stopped(self.s, subject, n))
            if self.s.item.state == "none"
            or (self.s.item.subject, self.s.item.sequence) != (subject, n)
            if len(self.s.written[subject]) < self.w.entries and (subject, n) not in self.gone
        ]

    def reissue(self, entry: Entry) -> bool:
        """Decide an entry again under another key; its dead letter is resolved."""
        subject, n = entry
        passed = delivery.dismiss(self.w, self.s, subject, n)
        after = delivery.write(self.w, passed or self.s, subject)
        if after is None:
            return False
        if after.dead[subject][n - 1] != "none":
            after = after._replace(dead=delivery.resolved(after, subject, n))
        new = (subject, len(after.written[subject]))
        self.keys[new] = self.outbox.reissue(self.keys[entry])
        self.reissued.add(entry)
        self.batches.append([new])
        return self._take(after)

    def cancel_replay(self) -> bool:
        """Cancel a replay; what is under way ends and is recorded."""
        if self.s.item.state == "none" or self.is_cancelled or self.replay is None:
            return False
        self.outbox.replays.cancel(self.replay, "a test")
        self.is_cancelled = True
        return self._take(self.s)

    # Days and backups.

    def age(self) -> bool:
        """Let days pass for what is stored."""
        if self.aged or self.s.item.state != "none" or self.backup is not None:
            return False
        self.outbox.age()
        self.aged = {(name, n) for name, numbers in self.s.written.items() for n in numbers}
        return True

    def prune(self, dispatcher: str) -> bool:
        """Drop old days; a day with anything undelivered is kept."""
        if not self.aged or self.gone or self.s.item.state != "none":
            return False
        outcomes = self.outbox.prune(self._process(dispatcher))
        s = self.s
        kept = {
            (name, n)
            for name, n in self.aged
            if n not in s.routed[name]
            or n > s.lane[name].delivered
            or s.dead[name][n - 1] in {"rejected", "exhausted"}
        }
        assert ("refused" in outcomes["entry"]) is bool(kept), f"{outcomes}, undelivered: {kept}"
        self.gone = set() if kept else self.aged
        if "refused" not in outcomes["attempt"]:
            self.forgotten = self.aged
        return True

    def may_back_up(self) -> bool:
        """Return whether a backup can be put back later with the same keys and days."""
        changed = self.reissued or self.is_cancelled or self.aged
        return self.backup is None and not changed

    def back_up(self) -> bool:
        """Keep what the database has."""
        if not self.may_back_up():
            return False
        self.backup = self.outbox.take(), self.s, dict(self.tokens), list(self.batches), self.replay
        return True

    def restore(self) -> bool:
        """Put the backup back; dispatchers, receiver and what is under way stay as they are."""
        if self.backup is None or self.is_cancelled:
            return False
        kept, then, tokens, self.batches, self.replay = self.backup
        self.backup = None
        self.outbox.put_back(kept)
        for process in self.outbox.dispatchers.values():
            self._run(process.load())
        names = (
            "written",
            "routed",
            "lane",
            "dead",
            "cancelled",
            "item",
            "active",
            "unknown",
            "failures",
        )
        after = self.s._replace(**{name: getattr(then, name) for name in names})
        return self._take(self._renamed(after, tokens))

    def _renamed(self, after: State, tokens: Mapping[int, UUID]) -> State:
        """Give the leases of a backup tokens that no other lease has by now."""
        held = {p.token: self.tokens[p.token] for p in after.proc.values() if p.token != NONE}
        again = {uuid: token for token, uuid in held.items()}
        for uuid in tokens.values():
            free = next(n for n in range(1, 100) if n not in again.values())
            again.setdefault(uuid, free)
        self.tokens = {token: uuid for uuid, token in again.items()}

        def token(old: int) -> int:
            return NONE if old == NONE else again[tokens[old]]

        lanes = {name: lane._replace(token=token(lane.token)) for name, lane in after.lane.items()}
        item = after.item._replace(token=token(after.item.token))
        return after._replace(lane=Map(lanes), item=item)

    # Comparing.

    def compare(self) -> None:
        """Fail with what differs between the database and the twin."""
        differing = list(differences(self, self.outbox.look()))
        assert not differing, "\n".join(differing)

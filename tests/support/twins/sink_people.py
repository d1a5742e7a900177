"""What people do with rows in the sink's twin, and the rows that its tables then have.

These steps are not in the model: a quarantined row is put back, by one person or by two, or closed;
days are dropped.
"""

from collections import Counter
from dataclasses import replace

from tests.support.twins.sink import NONE, Batch, Database, Proposal, Refused, Step, World
from tests.support.twins.sink_rows import (
    HAND,
    Decision,
    Observed,
    Overtaken,
    by_hand,
    digest,
    overtaken,
    sequences,
    states,
)

OPEN = "open"


def quarantine(db: Database) -> dict[Refused, str]:
    """Return the quarantined rows, each with its resolution or `open`."""
    resolved = dict(db.resolved)
    rows = {}
    for batch in db.ledger:
        alike = Counter[tuple[Decision, str]]()
        for each in batch.content.quarantined:
            refused = Refused(batch.name, *each, alike[each])
            rows[refused] = resolved.get(refused, OPEN)
            alike[each] += 1
    return rows


def requeue(
    world: World, refused: Refused, row: Decision, *, keep_repeats: bool, is_killed: bool = False
) -> Step:
    """A person puts a row back as it is kept or corrected, or proposes that to a second one.

    With `is_killed` the command is killed after the entry is written, before that is recorded.
    """
    db = world.database
    if quarantine(db).get(refused) != OPEN:
        return None
    over = _overtaken(db, refused, row, keep_repeats=keep_repeats)
    is_dated = row.at != refused.row.at and refused.reason != "future_dated"
    proposal = Proposal(refused, row, keep_repeats, over)
    if over is None and not is_dated:
        return _put_back(world, proposal, is_killed=is_killed)
    if db.proposals & {proposal, proposal._replace(is_approved=True)}:
        return replace(world, outcome="proposed")
    after = world.transaction(replace(db, proposals=db.proposals | {proposal}))
    return replace(after, outcome="proposed")


def approve(world: World, proposal: Proposal) -> Step:
    """A second person approves a proposal."""
    db = world.database
    if proposal not in db.proposals or proposal.is_approved:
        return None
    approved = proposal._replace(is_approved=True)
    after = replace(db, proposals=db.proposals - {proposal} | {approved})
    return replace(world.transaction(after), outcome="approved")


def apply(world: World, proposal: Proposal, *, is_killed: bool = False) -> Step:
    """A person does what was proposed: exactly that, and only in the same state of the subject."""
    db = world.database
    if proposal not in db.proposals:
        return None
    refused, row, keep_repeats = proposal[:3]
    if quarantine(db).get(refused) != OPEN:
        return replace(world, outcome="already_resolved")
    if not proposal.is_approved:
        return replace(world, outcome="second_person_required")
    is_written = _written(db, refused) is not None
    over = _overtaken(db, refused, row, keep_repeats=keep_repeats)
    if over != proposal.overtakes and not is_written:
        return replace(world, outcome="proposal_outdated")
    return _put_back(world, proposal, is_killed=is_killed)


def _overtaken(
    db: Database, refused: Refused, row: Decision, *, keep_repeats: bool
) -> Overtaken | None:
    if _written(db, refused) is not None:
        return None
    by_hand = row.at != refused.row.at or refused.reason == "future_dated"
    return overtaken(
        db.contents, row, keep_repeats=keep_repeats, dated_by_hand=by_hand, pruned=db.pruned
    )


def _written(db: Database, refused: Refused) -> Batch | None:
    """Return the batch of a row whose entry is written, whether or not that is recorded."""
    return next((each for each in db.ledger if each.of == refused), None)


def _put_back(world: World, proposal: Proposal, *, is_killed: bool) -> World:
    db, refused, row = world.database, proposal.refused, proposal.row
    present = _written(db, refused)
    if present is not None and row == refused.row:
        after = db
    elif present is not None:
        after = replace(db, hand_epoch=db.hand_epoch + 1)
        if present.content.rows != (row,):
            if not row.is_fit:
                return replace(world, outcome="refused")
            diverged = (present.name, digest([row]))
            after = replace(after, diverged=db.diverged | {diverged})
            return replace(world.transaction(after), outcome="refused")
    else:
        content = by_hand(db.contents, row, keep_repeats=proposal.keep_repeats)
        if content is None:
            return replace(world, outcome="refused")
        batch = Batch(HAND, NONE, 0, 0, 0, db.hand_epoch + 1, 0, None, content, refused)
        after = replace(db, ledger=(*db.ledger, batch), hand_epoch=db.hand_epoch + 1)
    if is_killed:
        return replace(world.transaction(after), outcome="killed")
    resolved = replace(
        after,
        resolved=db.resolved | {(refused, "requeued")},
        proposals=db.proposals - {proposal},
    )
    return replace(world.transaction(resolved), outcome="requeued")


def dismiss(world: World, refused: Refused) -> Step:
    """A person closes a quarantined row."""
    db = world.database
    if quarantine(db).get(refused) != OPEN:
        return None
    if _written(db, refused) is not None:
        return replace(world, outcome="already_requeued")
    after = replace(db, resolved=db.resolved | {(refused, "dismissed")})
    return replace(world.transaction(after), outcome="dismissed")


def prune(world: World) -> Step:
    """The days of all that is written so far are dropped; keys and batches stay."""
    db = world.database
    if db.pruned == len(db.ledger):
        return None
    return replace(world.transaction(replace(db, pruned=len(db.ledger))), outcome="pruned")


def proposal_name(proposal: Proposal) -> str:
    """Return a proposal in words."""
    over = proposal.overtakes
    place = over and (over.entry[0] if over.entry else "-", over.last_sequence)
    return (
        f"{proposal.refused.name}, {proposal.refused.nth}: {proposal.row}"
        f"{' keep repeats' if proposal.keep_repeats else ''}"
        f", after {place}"
        f"{', approved' if proposal.is_approved else ''}"
    )


def observed(world: World) -> Observed:
    """Return the rows that the tables have to have."""
    db = world.database
    seen = Observed(sequences=dict(sequences(db.contents)))
    if db.epoch:
        seen.streams["payouts"] = (db.query, db.epoch, f"r{db.run}")
    if db.hand_epoch:
        seen.streams["payouts.requeue"] = (HAND, db.hand_epoch, HAND)
    for place, batch in enumerate(db.ledger):
        content = batch.content
        seen.batches[batch.name] = (
            HAND if batch.of else f"r{batch.run}",
            batch.epoch,
            digest(content.rows),
            len(content.rows),
            len(content.entries),
            content.duplicates,
            content.differing,
            len(content.suppressed),
            len(content.quarantined),
        )
        seen.keys |= {row.key: batch.name for row in content.recorded}
        if place >= db.pruned:
            for entry in content.entries:
                row = entry.decision
                of = seen.entries.setdefault(row.subject, [])
                of.append((entry.sequence, row.key, row.amount, row.at, batch.name))
            seen.suppressed |= {(batch.name, row.key): why for row, why in content.suppressed}
    seen.states = dict(states(db.contents))
    seen.quarantine = sorted(
        (each.batch, str(each.row), each.reason, each.nth, how)
        for each, how in quarantine(db).items()
    )
    seen.stages = sorted((stage.epoch, stage.batch) for stage in db.stages)
    seen.diverged = sorted(db.diverged)
    seen.proposals = sorted(map(proposal_name, db.proposals))
    return seen

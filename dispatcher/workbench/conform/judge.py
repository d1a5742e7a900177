"""From answers to grades. Pure.

If a receiver answers 2xx without an outcome, only a probe (`--probe`) can show what it did; without
one the grade is a warning, never a pass.
"""

from collections import Counter
from collections.abc import Sequence

from holdfast.dispatcher.workbench.conform.reply import REPLAYED, Reply
from holdfast.dispatcher.workbench.conform.rules import (
    CONCURRENT_ANSWERS,
    CONCURRENT_ONCE,
    WINDOW_ENOUGH,
    Rule,
    Verdict,
)
from holdfast.sink.contract.numbers import is_whole
from holdfast.sink.contract.wire import KEY_WINDOW, KEY_WINDOW_FOREVER, ReceiptOutcome

UNSEEN = "cannot be graded from outside: the answer has no outcome, and there is no --probe"

_DAY_SECONDS = 86_400
WINDOW_SECONDS_MIN = 5 * _DAY_SECONDS
"""The default retry period of the sender, while its endpoint is enabled."""
WINDOW_SECONDS_ADVISED = 45 * _DAY_SECONDS
_WINDOW_DIGITS_MAX = 12

_TRIED_AGAIN = frozenset({408, 409, 425, 429})
_GONE = 410


def accepted(rule: Rule, *replies: Reply) -> Verdict:
    """Grade requests that must each be answered with 2xx."""
    for reply in replies:
        if not reply.is_success:
            return rule.violated(f"answered {reply}")
    return rule.passed(f"answered {replies[0]}")


def refused(rule: Rule, reply: Reply, documented: int) -> Verdict:
    """Grade a request that must be refused with a 4xx that the sender treats as final."""
    status = reply.status
    if status is None:
        return rule.failed(f"{reply}: the result is unknown to the sender, which would retry")
    if reply.is_success:
        return rule.violated(f"accepted: answered {reply}")
    if status == _GONE:
        return rule.failed("answered 410, which disables the whole endpoint")
    if status >= 500 or 300 <= status < 400 or status in _TRIED_AGAIN - {documented}:
        return rule.failed(f"answered {reply}, which the sender retries for days")
    note = "" if status == documented else f" (PROTOCOL.md says {documented})"
    return rule.passed(f"answered {reply}{note}")


def once(rule: Rule, reply: Reply, applied: int | None) -> Verdict:
    """Grade the answer to a repeat. `applied`: how often its key was applied, None if unknown."""
    if not reply.is_success:
        return rule.failed(f"answered {reply}: an applied delivery would become a dead letter")
    if applied is not None and applied != 1:
        return rule.failed(f"the probe counts {applied} for a delivery sent twice")
    match reply.outcome:
        case ReceiptOutcome.DUPLICATE:
            return rule.passed(f"answered {reply}")
        case ReceiptOutcome.APPLIED:
            return rule.failed("the second was also answered `applied`")
        case ReceiptOutcome.STALE:
            return rule.failed("answered `stale`: its key was forgotten")
    return rule.passed("the probe counts 1") if applied == 1 else rule.warned(UNSEEN)


def same_answer(rule: Rule, first: Reply, again: Reply) -> Verdict:
    """Grade whether a repeat has the first answer's time and is marked as replayed."""
    wrong = []
    if again.headers.get(REPLAYED, "").lower() != "true":
        wrong.append(f"no {REPLAYED}: true")
    if first.content.get("applied_at") != again.content.get("applied_at"):
        wrong.append("a different applied_at")
    return rule.violated(" and ".join(wrong)) if wrong else rule.passed("same applied_at, replayed")


def committed_first(
    rule: Rule, at_once: Sequence[tuple[Reply, Reply]], counted: Sequence[int | None]
) -> Verdict:
    """Grade pairs of a delivery and its repeat, sent as soon as the first was answered.

    `counted` are the probe's counts, taken as soon as a delivery was answered.
    """
    for number in counted:
        if number == 0:
            return rule.failed("the probe counts 0 after the delivery was answered with 2xx")
    for first, again in at_once:
        if again.outcome is ReceiptOutcome.IN_PROGRESS or again.status == 409:
            return rule.failed(f"a repeat right after {first} was answered {again}")
        if again.outcome is ReceiptOutcome.APPLIED:
            return rule.failed(f"a repeat right after {first} was answered `applied` again")
    known = all(again.outcome is ReceiptOutcome.DUPLICATE for _, again in at_once)
    if known or (counted and None not in counted):
        return rule.passed(f"known immediately in {len(at_once)} of {len(at_once)} cases")
    return rule.warned(UNSEEN)


def concurrent(replies: Sequence[Reply], last: Reply, applied: int | None) -> list[Verdict]:
    """Grade duplicates sent at the same time, and one more sent afterwards."""
    counts = Counter(str(reply) for reply in replies)
    answers = ", ".join(f"{count} x {what}" for what, count in counts.most_common(4))
    all_answered = all(reply.is_success or reply.status == 409 for reply in replies)
    manner = (
        CONCURRENT_ANSWERS.passed(answers) if all_answered else CONCURRENT_ANSWERS.violated(answers)
    )
    applied_answers = sum(reply.outcome is ReceiptOutcome.APPLIED for reply in (*replies, last))
    speaks = any(reply.outcome is not None for reply in replies if reply.is_success)
    if applied_answers > 1:
        verdict = CONCURRENT_ONCE.failed(
            f"{applied_answers} of {len(replies)} were answered `applied`"
        )
    elif applied is not None and applied != 1:
        verdict = CONCURRENT_ONCE.failed(f"the probe counts {applied}")
    elif not last.is_success or (speaks and applied_answers == 0):
        verdict = CONCURRENT_ONCE.failed(f"none was applied; the repeat was answered {last}")
    elif applied_answers == 1 or applied == 1:
        verdict = CONCURRENT_ONCE.passed(f"applied once: {answers}")
    else:
        verdict = CONCURRENT_ONCE.warned(UNSEEN)
    return [verdict, manner]


def conflict(rule: Rule, reply: Reply) -> Verdict:
    """Grade the answer to a known key with a different body."""
    if reply.is_success:
        return rule.failed(f"answered {reply}: the sender assumes that this body was applied")
    if reply.status == 422:
        return rule.passed(f"answered {reply}")
    if reply.status in {400, 403}:
        return rule.warned(f"answered {reply}; PROTOCOL.md says 422")
    return rule.failed(f"answered {reply}; only 422 reports the conflict to a person")


def stale(rule: Rule, reply: Reply, applied: int | None) -> Verdict:
    """Grade the answer to a lower sequence after a higher one."""
    if not reply.is_success:
        return rule.failed(f"answered {reply}: the subject's lane would stop or retry it")
    if applied:
        return rule.failed(f"applied: the probe counts {applied}")
    match reply.outcome:
        case ReceiptOutcome.STALE:
            return rule.passed(f"answered {reply}")
        case ReceiptOutcome.APPLIED:
            return rule.failed("answered `applied`: it returned to the older decision")
        case ReceiptOutcome.DUPLICATE:
            return rule.failed("answered `duplicate`, though it was sent for the first time")
    return rule.passed("the probe counts 0") if applied == 0 else rule.warned(UNSEEN)


def window(declared: str | None) -> Verdict:
    """Grade the value of `holdfast-key-window`; None: not declared."""
    if declared is None:
        return WINDOW_ENOUGH.passed("not declared; it is optional")
    seconds = window_seconds(declared)
    if seconds is None:
        return WINDOW_ENOUGH.warned(
            f"{KEY_WINDOW}: {declared[:40]} is ignored: not a number of seconds"
        )
    if seconds < WINDOW_SECONDS_MIN:
        return WINDOW_ENOUGH.failed(f"{seconds:.0f} s is shorter than 5 days of retries")
    if seconds < WINDOW_SECONDS_ADVISED:
        return WINDOW_ENOUGH.warned(f"{seconds / _DAY_SECONDS:.0f} days; 45 are recommended")
    return WINDOW_ENOUGH.passed(f"{KEY_WINDOW}: {declared}")


def window_seconds(declared: str) -> float | None:
    """Return the key window in seconds; infinity for "forever", None if it is malformed."""
    if declared == KEY_WINDOW_FOREVER:
        return float("inf")
    ok = is_whole(declared) and len(declared) <= _WINDOW_DIGITS_MAX
    return float(declared) if ok and (declared == "0" or declared[0] != "0") else None

"""From answers to grades. Pure.

Where a receiver answers a bare 2xx, what it did can be told only by a count from the side
(`--probe`); without one the grade is a warning, never a pass.
"""

from collections import Counter
from collections.abc import Sequence

from dispatcher.workbench.conform.reply import REPLAYED, Reply
from dispatcher.workbench.conform.rule import Rule, Verdict
from dispatcher.workbench.conform.rules import CONCURRENT_ANSWERS, CONCURRENT_ONCE, WINDOW_ENOUGH
from sink.contract.wire import KEY_WINDOW, KEY_WINDOW_FOREVER, ReceiptOutcome

UNSEEN = "cannot be told from outside: the answer names no outcome, and there is no --probe"

_DAY_SECONDS = 86_400
WINDOW_SECONDS_MIN = 5 * _DAY_SECONDS
"""How long a sender retries by default, in its endpoint's running time."""
WINDOW_SECONDS_ADVISED = 45 * _DAY_SECONDS
_WINDOW_DIGITS_MAX = 12

_TRIED_AGAIN = frozenset({408, 409, 425, 429})
_GONE = 410


def accepted(rule: Rule, *replies: Reply) -> Verdict:
    """Grade what had to be accepted: each with a 2xx."""
    for reply in replies:
        if not reply.is_success:
            return rule.violated(f"answered {reply}")
    return rule.passed(f"answered {replies[0]}")


def refused(rule: Rule, reply: Reply, documented: int) -> Verdict:
    """Grade what had to be refused: with a 4xx that the sender takes as final."""
    status = reply.status
    if status is None:
        return rule.failed(f"{reply}: the sender could not tell, and would send it again")
    if reply.is_success:
        return rule.violated(f"accepted: answered {reply}")
    if status == _GONE:
        return rule.failed("answered 410, which disables the whole endpoint")
    if status >= 500 or 300 <= status < 400 or status in _TRIED_AGAIN - {documented}:
        return rule.failed(f"answered {reply}, which is sent again for days")
    note = "" if status == documented else f" (the document says {documented})"
    return rule.passed(f"answered {reply}{note}")


def once(rule: Rule, reply: Reply, applied: int | None) -> Verdict:
    """Grade the answer to a repeat. `applied` is how often its key was applied, if known."""
    if not reply.is_success:
        return rule.failed(f"answered {reply}: an applied delivery would wait for a person")
    if applied is not None and applied != 1:
        return rule.failed(f"the probe counts {applied} for a delivery that was sent twice")
    match reply.outcome:
        case ReceiptOutcome.DUPLICATE:
            return rule.passed(f"answered {reply}")
        case ReceiptOutcome.APPLIED:
            return rule.failed("the second was answered `applied` as well")
        case ReceiptOutcome.STALE:
            return rule.failed("answered `stale`: its key was forgotten")
    return rule.passed("the probe counts 1") if applied == 1 else rule.warned(UNSEEN)


def same_answer(rule: Rule, first: Reply, again: Reply) -> Verdict:
    """Grade whether a repeat is answered like the first, and says that it is a repeat."""
    wrong = []
    if again.headers.get(REPLAYED, "").lower() != "true":
        wrong.append(f"no {REPLAYED}: true")
    if first.content.get("applied_at") != again.content.get("applied_at"):
        wrong.append("another applied_at")
    return rule.violated(" and ".join(wrong)) if wrong else rule.passed("same applied_at, replayed")


def committed_first(
    rule: Rule, at_once: Sequence[tuple[Reply, Reply]], counted: Sequence[int | None]
) -> Verdict:
    """Grade pairs of a delivery and its repeat, sent the moment the first was answered.

    `counted` is what the probe said between the two.
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
        return rule.passed(f"known at once, {len(at_once)} times of {len(at_once)}")
    return rule.warned(UNSEEN)


def concurrent(replies: Sequence[Reply], last: Reply, applied: int | None) -> list[Verdict]:
    """Grade duplicates that were sent at once, and one more that was sent afterwards."""
    counts = Counter(str(reply) for reply in replies)
    shown = ", ".join(f"{count} x {what}" for what, count in counts.most_common(4))
    answered = all(reply.is_success or reply.status == 409 for reply in replies)
    manner = CONCURRENT_ANSWERS.passed(shown) if answered else CONCURRENT_ANSWERS.violated(shown)
    said = sum(reply.outcome is ReceiptOutcome.APPLIED for reply in (*replies, last))
    speaks = any(reply.outcome is not None for reply in replies if reply.is_success)
    if said > 1:
        verdict = CONCURRENT_ONCE.failed(f"{said} of {len(replies)} were answered `applied`")
    elif applied is not None and applied != 1:
        verdict = CONCURRENT_ONCE.failed(f"the probe counts {applied}")
    elif not last.is_success or (speaks and said == 0):
        verdict = CONCURRENT_ONCE.failed(f"none was applied; afterwards {last}")
    elif said == 1 or applied == 1:
        verdict = CONCURRENT_ONCE.passed(f"applied once: {shown}")
    else:
        verdict = CONCURRENT_ONCE.warned(UNSEEN)
    return [verdict, manner]


def conflict(rule: Rule, reply: Reply) -> Verdict:
    """Grade the answer to a known key with another body."""
    if reply.is_success:
        return rule.failed(f"answered {reply}: the sender believes that this body was applied")
    if reply.status == 422:
        return rule.passed(f"answered {reply}")
    if reply.status in {400, 403}:
        return rule.warned(f"answered {reply}; the document says 422")
    return rule.failed(f"answered {reply}, and 422 is what makes a person look")


def stale(rule: Rule, reply: Reply, applied: int | None) -> Verdict:
    """Grade the answer to a lower sequence that came after a higher one."""
    if not reply.is_success:
        return rule.failed(f"answered {reply}: the subject's lane would stop or repeat it")
    if applied:
        return rule.failed(f"applied: the probe counts {applied}")
    match reply.outcome:
        case ReceiptOutcome.STALE:
            return rule.passed(f"answered {reply}")
        case ReceiptOutcome.APPLIED:
            return rule.failed("answered `applied`: it went back to the older decision")
        case ReceiptOutcome.DUPLICATE:
            return rule.failed("answered `duplicate`, though it never came before")
    return rule.passed("the probe counts 0") if applied == 0 else rule.warned(UNSEEN)


def window(declared: str | None) -> Verdict:
    """Grade `holdfast-key-window`; None where it is not declared."""
    if declared is None:
        return WINDOW_ENOUGH.passed("not declared; it is optional")
    seconds = window_seconds(declared)
    if seconds is None:
        return WINDOW_ENOUGH.warned(f"{KEY_WINDOW}: {declared[:40]} is ignored: no seconds")
    if seconds < WINDOW_SECONDS_MIN:
        return WINDOW_ENOUGH.failed(f"{seconds:.0f} s is less than 5 days of retries")
    if seconds < WINDOW_SECONDS_ADVISED:
        return WINDOW_ENOUGH.warned(f"{seconds / _DAY_SECONDS:.0f} days; 45 are recommended")
    return WINDOW_ENOUGH.passed(f"{KEY_WINDOW}: {declared}")


def window_seconds(declared: str) -> float | None:
    """Return the seconds that a key window names; infinity for ever, None for what is none."""
    if declared == KEY_WINDOW_FOREVER:
        return float("inf")
    ok = declared.isascii() and declared.isdigit() and len(declared) <= _WINDOW_DIGITS_MAX
    return float(declared) if ok and (declared == "0" or declared[0] != "0") else None

"""The audit must see what it is there to see: each test plants one fault."""

from holdfast.deploy.local.demo.audit import Action, Verdict, audit, expected
from holdfast.deploy.local.demo.reference import Decision

QUARTER_US = 15 * 60 * 1_000_000
NOON_US = 1_762_171_200_000_000


def decision(merchant: str, action: str, quarter: int, ordinal: int = 1) -> Decision:
    start = NOON_US + quarter * QUARTER_US
    return Decision(
        merchant, action, start, start + QUARTER_US, 1, ordinal, 8_500_000, 5, 5, "USD", "v1"
    )


SHOULD = expected(
    [
        decision("m_1", "block", 0),
        decision("m_2", "block", 0),
        decision("m_1", "release", 1),
        decision("m_2", "release", 2),
    ]
)


def verdict(applied: list[Action]) -> tuple[int, int, int, int]:
    found = audit(SHOULD, applied)
    return found.lost, found.repeated, found.out_of_order, found.altered


def test_key_and_window_are_derived_from_the_decision_alone() -> None:
    # hf_ and the first 128 bits of SHA-256 over
    # ["payout-hold/v1","m_1","2025-11-03T12:15:00Z","block","1"], computed with sha256sum
    assert SHOULD[0] == Action(
        "hf_cffb8043629a61bf75d15fc48d743b3d", "m_1", "block", "2025-11-03T12:15:00Z", 8_500_000
    )


def test_same_actions_in_each_merchants_order_are_a_kept_promise() -> None:
    # The merchants may be interleaved in any way.
    applied = [SHOULD[1], SHOULD[0], SHOULD[3], SHOULD[2]]
    assert audit(SHOULD, applied) == Verdict(4, 0, 0, 0, 0)
    assert audit(SHOULD, applied).kept


def test_planted_loss_is_found() -> None:
    assert verdict([SHOULD[0], SHOULD[1], SHOULD[2]]) == (1, 0, 0, 0)
    assert verdict([]) == (4, 0, 0, 0)


def test_planted_repeat_is_found() -> None:
    assert verdict([*SHOULD[:2], SHOULD[1], *SHOULD[2:]]) == (0, 1, 0, 0)


def test_action_that_nobody_decided_counts_as_repeated() -> None:
    [unexpected] = expected([decision("m_1", "block", 0, ordinal=2)])
    assert verdict([*SHOULD, unexpected, unexpected]) == (0, 2, 0, 0)


def test_planted_inversion_is_found() -> None:
    assert verdict([SHOULD[2], SHOULD[0], SHOULD[1], SHOULD[3]]) == (0, 0, 1, 0)


def test_action_under_its_key_with_another_amount_is_found() -> None:
    altered = Action(
        SHOULD[0].key, SHOULD[0].merchant_id, SHOULD[0].action, SHOULD[0].window_end, 1
    )
    assert verdict([altered, *SHOULD[1:]]) == (0, 0, 0, 1)

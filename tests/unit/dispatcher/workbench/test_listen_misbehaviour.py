"""Misbehaviour on demand: what is asked for, what chance draws, what is no sense."""

import pytest

from holdfast.dispatcher.workbench.listen.misbehaviour import Cut, Faults, Misbehaviour


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("3", Cut(count=3)),
        ("1", Cut(count=1)),
        ("0.25", Cut(share=0.25)),
        ("1.0", Cut(share=1.0)),
        ("20%", Cut(share=0.2)),
        ("100%", Cut(share=1.0)),
    ],
)
def test_cut_is_a_number_of_deliveries_or_a_share(text: str, cut: Cut) -> None:
    assert Cut.of(text) == cut


@pytest.mark.parametrize("text", ["", "-1", "1.5", "101%", "three", "1e0", "0.1%", "\u0663"])
def test_cut_that_is_neither_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a share such as"):
        Cut.of(text)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (Misbehaviour(status=101), "--status"),
        (Misbehaviour(status=600), "--status"),
        (Misbehaviour(fail_rate=float("nan")), "--fail-rate"),
        (Misbehaviour(fail_rate=1.1), "--fail-rate"),
        (Misbehaviour(latency_ms=-1), "--latency"),
        (Misbehaviour(retry_after_seconds=3), "--status or --fail-rate"),
        (Misbehaviour(status=503, retry_after_seconds=-1), "--retry-after"),
    ],
)
def test_settings_without_sense_are_named(asked: Misbehaviour, says: str) -> None:
    assert says in (asked.fault() or "")


def test_status_alone_is_for_every_delivery_and_only_a_2xx_applies() -> None:
    failing, accepting = (Faults(Misbehaviour(status=status), 1).turn() for status in (503, 204))
    assert (failing.status, failing.applies) == (503, False)
    assert (accepting.status, accepting.applies) == (204, True)


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (Misbehaviour(fail_rate=1), 500),
        (Misbehaviour(fail_rate=1, retry_after_seconds=2), 503),
        (Misbehaviour(fail_rate=1, status=429), 429),
    ],
)
def test_failure_has_the_status_that_goes_with_it(asked: Misbehaviour, status: int) -> None:
    assert Faults(asked, 1).turn().status == status


def test_a_share_is_drawn_and_the_same_seed_draws_the_same() -> None:
    asked = Misbehaviour(fail_rate=0.3, cut=Cut(share=0.2))

    def turns(seed: int) -> list[tuple[int | None, bool]]:
        faults = Faults(asked, seed)
        return [(turn.status, turn.cut) for turn in (faults.turn() for _ in range(1000))]

    assert turns(7) == turns(7) != turns(8)
    assert 250 < sum(status == 500 for status, _ in turns(7)) < 350
    assert 150 < sum(cut for _, cut in turns(7)) < 250


def test_a_number_of_cuts_counts_only_those_that_were_made() -> None:
    faults = Faults(Misbehaviour(cut=Cut(count=2)), 1)
    assert faults.turn().cut
    assert faults.turn().cut  # the first was not applied, so nothing was cut
    faults.cut_made()
    faults.cut_made()
    assert not faults.turn().cut

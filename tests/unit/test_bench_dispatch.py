"""What the benchmark of the dispatcher computes from its figures."""

from collections import Counter

import pytest

from tests.benchmarks.dispatch import profile, report
from tests.benchmarks.dispatch.cases import CASES, ORDERED_PEERS, UNORDERED_PEERS
from tests.benchmarks.dispatch.shapes import IN_A_ROW, SHAPES
from tests.benchmarks.dispatch.sizes import Sizes


def _cases(**medians: float) -> dict[str, object]:
    return {"cases": {name: {"median": median} for name, median in medians.items()}}


def test_ratios_compare_with_the_best_peer_of_each_kind() -> None:
    found = _cases(
        holdfast=200,
        loop_asyncio=250,
        loop_aiohttp=50,
        loop_pyreqwest=160,
        pgboss_fifo=100,
        graphile_queues=80,
        pgqueuer=160,
    )
    assert report.ratios(found, "asyncio") == {
        "vs_bare_client": 0.8,
        "vs_library_client": 1.25,
        "vs_best_ordered_peer": 2.0,
        "vs_best_unordered_peer": 1.25,
    }


def test_ratios_leave_out_what_was_not_measured() -> None:
    assert report.ratios(_cases(holdfast=200), "httpx") == {}


def test_peers_are_in_the_kind_that_their_case_says() -> None:
    assert all(CASES[name].ordered for name in ORDERED_PEERS)
    assert not any(CASES[name].ordered for name in UNORDERED_PEERS)


@pytest.mark.parametrize("name", SHAPES)
def test_shape_gives_every_subject_as_many_jobs(name: str) -> None:
    sizes = Sizes.full()
    subjects = SHAPES[name].subjects(sizes, sizes.jobs)
    counts = Counter(subjects)
    assert len(subjects) == sizes.jobs
    assert len(set(counts.values())) == 1


def test_burst_has_the_jobs_of_a_subject_in_a_row() -> None:
    subjects = SHAPES["burst"].subjects(Sizes.quick(), 2 * IN_A_ROW)
    assert subjects == [0] * IN_A_ROW + [1] * IN_A_ROW


def test_sample_counts_for_the_innermost_part_of_the_dispatcher() -> None:
    main = "main (dispatcher/cli/main.py:40)"
    engine = "Connection.exchange (dispatcher/outbound/transport/http_connection.py:98)"
    signing = "Signer.sign (dispatcher/outbound/signing.py:28);HMAC.digest (hmac.py:159)"
    claim = "Claimer.claim (dispatcher/delivery/store/claiming.py:90);wait (psycopg/waiting.py:2)"
    found = profile.shares([f"{main};{engine} 6", f"{main};{signing} 1", f"{claim} 2", "run 1"])
    assert list(found.values()) == [0.6, 0.2, 0.1, 0.1]
    parts = dict(profile.PARTS)
    assert list(found)[:2] == [parts["dispatcher/outbound/"], parts["dispatcher/delivery/store/"]]
    assert set(list(found)[2:]) == {parts["dispatcher/outbound/signing.py"], profile.LOOP}

"""The example of an own job, wholly: its job, killed and started again, and its receiver.

Real: Spark, Postgres, SIGKILL, the dispatcher, the receiver as a process. Compared: the receiver's
table with the events read again in plain Python.
"""

import json
from collections.abc import Callable
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGTERM

import psutil
import pytest

from tests.support.command import holdfast
from tests.support.dispatch.sender import secret_text
from tests.support.job import order_review
from tests.support.job.order_review import CHANGED, FIRST, SECRET, Expected
from tests.support.processes import end
from tests.support.waiting import eventually
from tests.support.world import World

pytestmark = [pytest.mark.spark, pytest.mark.rest]


def test_orders_are_held_once_whatever_is_killed(
    world: World, make_database: Callable[[str | None], str]
) -> None:
    folder, files, expected = world.tmp_path, order_review.events(4), Expected()
    for rows, policy in zip(files, (FIRST, FIRST, CHANGED, CHANGED), strict=True):
        expected.add(rows, policy)

    (folder / "policy.json").write_text(json.dumps(FIRST))
    order_review.write(folder / "events", dict(enumerate(files[:2])))
    assert order_review.run_job(folder, world.dsn, "S8=kill@2") == -SIGKILL
    (folder / "policy.json").write_text(json.dumps(CHANGED))
    order_review.write(folder / "events", {2: files[2], 3: files[3]})
    log = folder / "job.txt"
    assert order_review.run_job(folder, world.dsn) == 0, log.read_text()

    variables = {SECRET: secret_text()}
    with order_review.receiver(make_database(None), folder / "receiver.txt") as url:
        words = f"endpoint add orders --url {url}/webhooks --secret-ref env:{SECRET}"
        words += " --allow-cidr 127.0.0.0/8 --from-beginning"
        holdfast(*words.split(), dsn=world.dsn, environment=variables, code=0)
        holdfast("dispatch", "--drain", dsn=world.dsn, environment=variables, code=0)
        assert order_review.orders(url) == expected.orders

    assert order_review.counts(world.dsn) == (*expected.counts, 4)
    assert all(expected.counts)


def _numbers(folder: Path) -> list[int]:
    """The batches of which a checkpoint has a file in a folder."""
    return sorted(int(each.name) for each in folder.glob("[0-9]*"))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("moment", [pytest.param("S4", marks=pytest.mark.long), "S8"])
def test_stopped_job_leaves_no_batch_for_the_new_code(world: World, moment: str) -> None:
    """SIGTERM arrives in a batch, and the next version decides the past otherwise."""
    folder, files = world.tmp_path, order_review.events(12)
    (folder / "policy.json").write_text(json.dumps(FIRST))
    order_review.write(folder / "events", dict(enumerate(files)))
    job = order_review.start_job(folder, world.dsn, f"{moment}=stop@2")
    try:
        process = psutil.Process(job.pid)
        eventually(lambda: process.status() == psutil.STATUS_STOPPED, seconds=240)
        job.send_signal(SIGTERM)
        job.send_signal(SIGCONT)
        assert job.wait(240) == 0, (folder / "job.txt").read_text()
    finally:
        end(job, 0)
    written = order_review.counts(world.dsn)[-1]
    assert 1 <= written < len(files)
    assert _numbers(folder / "checkpoint" / "commits") == list(range(written))

    (folder / "policy.json").write_text(json.dumps([{**FIRST[0], "limit_minor": 20_000}]))
    assert order_review.run_job(folder, world.dsn) == 0, (folder / "job.txt").read_text()
    assert order_review.counts(world.dsn)[-1] == len(files)

"""The example of an own job, wholly: its job, killed and started again, and its receiver.

Real: Spark, Postgres, SIGKILL, the dispatcher, the receiver as a process. Compared: the receiver's
table with the events read again in plain Python.
"""

import json
from collections.abc import Callable
from signal import SIGKILL

import pytest

from tests.support.command import holdfast
from tests.support.dispatch.sender import secret_text
from tests.support.job import order_review
from tests.support.job.order_review import CHANGED, FIRST, SECRET, Expected
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

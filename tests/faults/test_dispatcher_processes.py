"""`holdfast dispatch --processes`: ends of one process, of all, and of their parent."""

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context

import httpx
import psutil
import pytest

from holdfast.dispatcher.delivery.process.orders import Orders
from holdfast.dispatcher.delivery.process.single import deliver
from holdfast.dispatcher.delivery.settings import Settings
from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.dispatch import webhooks
from tests.support.dispatch.delivery import attempts
from tests.support.dispatch.dispatching import Process
from tests.support.dispatch.webhooks import Gate, answer
from tests.support.processes import matching
from tests.support.waiting import eventually
from tests.support.world import World

pytestmark = pytest.mark.rest

PROCESSES = 3
SUBJECTS = [f"m_{number}" for number in range(60)]


@contextmanager
def _several(world: World, *options: str) -> Iterator[Process]:
    """Run three processes; when the block ends they are gone, whatever happened."""
    words = ("--processes", str(PROCESSES), "--lease-seconds", "2.5", *options)
    with world.dispatch("parent", *words) as parent:
        children: list[psutil.Process] = []
        try:
            parent.until(lambda: len(parent.lines("dispatcher.started")) == PROCESSES)
            children += _children(parent)
            assert len(children) == PROCESSES
            yield parent
        finally:
            with suppress(psutil.NoSuchProcess):
                children += _children(parent)
            parent.process.kill()
            for each in children:
                with suppress(psutil.NoSuchProcess):
                    each.kill()
                    each.wait(10)


def _children(parent: Process) -> list[psutil.Process]:
    children = psutil.Process(parent.process.pid).children()
    return matching(children, lambda each: any("spawn_main" in word for word in each.cmdline()))


def _delivered(world: World, count: int) -> bool:
    query = "SELECT count(*) FROM holdfast.attempt WHERE outcome = 'delivered'"
    return bool(world.value(query) == count)


def test_a_killed_process_is_started_again_and_the_others_deliver(world: World) -> None:
    world.endpoint()
    with _several(world) as parent:
        gate = Gate(answer(200))
        world.receiver.script = lambda _seen: gate
        world.decisions.write(*SUBJECTS * 2)
        eventually(lambda: len(world.receiver.seen) >= len(SUBJECTS) // 2)
        victim = _children(parent)[0]
        victim.kill()
        parent.says("process.ended")
        [ended] = parent.lines("process.ended")
        assert (ended["pid"], ended["exit_code"]) == (victim.pid, -signal.SIGKILL)
        gate.open()
        parent.until(lambda: len(parent.lines("dispatcher.started")) == PROCESSES + 1)
        eventually(lambda: _delivered(world, 2 * len(SUBJECTS)))
        parent.terminate()
        assert parent.ends() == ExitCode.OK, parent.text()
    world.heal()


def test_one_sigterm_lets_every_process_end_its_requests(world: World) -> None:
    world.endpoint(total_timeout_ms=20_000)
    gate = Gate(answer(200))
    world.receiver.script = lambda _seen: gate
    with _several(world, "--lease-seconds", "auto") as parent:
        world.decisions.write(*SUBJECTS)
        eventually(lambda: len(world.receiver.seen) == len(SUBJECTS))
        children = _children(parent)
        # As systemd does: each process gets the signal, and from its parent once more.
        for each in children:
            each.terminate()
        parent.terminate()
        parent.until(lambda: len(parent.lines("dispatcher.stopping")) == PROCESSES)
        gate.open()
        assert parent.ends() == ExitCode.OK, parent.text()
        assert not any(each.is_running() for each in children)
    assert [row.outcome for row in attempts(world.db)] == ["delivered"] * len(SUBJECTS)
    world.check()


def test_processes_of_unsupported_version_end_with_their_parent(world: World) -> None:
    world.endpoint()
    with _several(world) as parent:
        children = _children(parent)
        world.db.execute("UPDATE holdfast.alembic_version SET serves_from = '9999'")
        assert parent.ends() == ExitCode.FAILED, parent.text()
        assert "upgrade this process" in parent.text()
        assert parent.lines("process.ended") == []
        assert not any(each.is_running() for each in children)


def test_a_second_sigterm_cancels_the_requests_of_every_process(world: World) -> None:
    world.endpoint(total_timeout_ms=20_000)
    world.receiver.script = lambda _seen: webhooks.silence
    with _several(world, "--lease-seconds", "auto", "--stop-seconds", "60") as parent:
        world.decisions.write(*SUBJECTS)
        eventually(lambda: len(world.receiver.seen) == len(SUBJECTS))
        parent.terminate()
        parent.until(lambda: len(parent.lines("dispatcher.stopping")) == PROCESSES)
        parent.terminate()
        assert parent.ends(30) == ExitCode.OK, parent.text()
    assert [row.outcome for row in attempts(world.db)] == ["unknown"] * len(SUBJECTS)
    world.receiver.script = lambda _seen: answer(200)
    world.heal()


def test_processes_whose_parent_is_killed_settle_and_end(world: World) -> None:
    world.endpoint(total_timeout_ms=20_000)
    gate = Gate(answer(200))
    world.receiver.script = lambda _seen: gate
    with _several(world, "--lease-seconds", "auto") as parent:
        world.decisions.write(*SUBJECTS)
        eventually(lambda: len(world.receiver.seen) == len(SUBJECTS))
        children = _children(parent)
        parent.send(signal.SIGKILL)
        parent.ends()
        eventually(lambda: len(parent.lines("dispatcher.stopping")) == PROCESSES)
        gate.open()
        eventually(lambda: not any(each.is_running() for each in children))
    assert [row.outcome for row in attempts(world.db)] == ["delivered"] * len(SUBJECTS)
    world.check()


def test_process_whose_parent_is_gone_at_start_ends_cleanly(world: World) -> None:
    world.endpoint()
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=deliver, args=(Settings(world.dsn), Orders(theirs)))
    child.start()
    ours.close()
    theirs.close()
    child.join(30)
    try:
        assert child.exitcode == ExitCode.OK
    finally:
        child.kill()


def test_drained_processes_exit_with_the_worst_exit_code(world: World) -> None:
    world.endpoint()
    world.decisions.write(*SUBJECTS * 3)
    done = holdfast("dispatch", "--drain", "--processes", "2", dsn=world.dsn)
    assert done.returncode == ExitCode.OK, done.stderr
    world.check()
    world.endpoint(name="held")
    world.db.execute("UPDATE holdfast.endpoint SET state = 'disabled' WHERE name = 'held'")
    world.decisions.write("m_1")
    done = holdfast("dispatch", "--drain", "--processes", "2", dsn=world.dsn)
    assert done.returncode == ExitCode.DEGRADED, done.stderr


@pytest.mark.parametrize(
    ("options", "server", "code", "complaint"),
    [
        ((), "postgresql://app:hunter2@127.0.0.1:1/x", ExitCode.FAILED, "cannot be used"),
        (("--listen", "127.0.0.1:65535"), None, ExitCode.USAGE, "65536"),
    ],
)
def test_processes_that_cannot_begin_end_in_one_line(
    world: World, options: tuple[str, ...], server: str | None, code: ExitCode, complaint: str
) -> None:
    done = holdfast("dispatch", "--processes", "2", *options, dsn=server or world.dsn)
    assert done.returncode == code, done.stderr
    assert complaint in done.stderr
    assert "hunter2" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_each_process_serves_its_own_health(world: World, free_ports: int) -> None:
    with _several(world, "--listen", f"127.0.0.1:{free_ports}"):
        for number in range(PROCESSES):
            url = f"http://127.0.0.1:{free_ports + number}/healthz"
            # 503 until the database has answered.
            eventually(lambda url=url: httpx.get(url, trust_env=False).status_code == 200)


@pytest.fixture
def free_ports() -> int:
    """The first of three neighbouring ports that are free."""
    for first in range(20_000, 60_000, 97):
        with socket.socket() as one, socket.socket() as two, socket.socket() as three:
            try:
                for index, each in enumerate((one, two, three)):
                    each.bind(("127.0.0.1", first + index))
            except OSError:
                continue
            return first
    raise AssertionError

"""The embedded server against killed owners, killed servers, stale files and slow recovery."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg import pq

from holdfast.deploy.local.account import account_for
from holdfast.deploy.local.cluster import Cluster
from holdfast.deploy.local.postgres import EmbeddedPostgres
from holdfast.sink.contract.exits import CommandError
from tests.support.servers.databases import prepared_directory, processes_on, server_directory

pytestmark = [pytest.mark.rest, pytest.mark.faults]

STARTER = """
import signal, sys
from pathlib import Path
from holdfast.deploy.local.postgres import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]))
started = server.start()
print(started, server.running.process.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def prepared() -> Iterator[Path]:
    with prepared_directory() as data:
        yield data


@pytest.fixture
def directory(prepared: Path) -> Iterator[Path]:
    with server_directory(copy_of=prepared) as copy:
        yield copy


@pytest.fixture
def starters(directory: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Two processes that start the server at the same time and then wait, each in its own group."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", STARTER, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        for _ in range(2)
    ]
    yield started
    for starter in started:
        starter.kill()
        starter.communicate()


def known(server: EmbeddedPostgres) -> Cluster:
    assert server.cluster
    return server.cluster


def postmaster(server: EmbeddedPostgres) -> psutil.Process:
    assert server.running
    return server.running.process


def hold_recovery(server: EmbeddedPostgres) -> Path:
    """Make the next start stay in recovery until the returned file exists."""
    data = known(server).data
    release = server.directory / "release"
    account = account_for(data)
    with (data / "postgresql.auto.conf").open("a") as file:
        file.write(f"restore_command = 'until [ -e {release} ]; do sleep 0.05; done; false'\n")
        file.write("hot_standby = off\n")
    (data / "recovery.signal").touch()
    account.own(data / "recovery.signal")
    return release


def test_lock_file_that_names_a_living_stranger_does_not_stop_a_start(directory: Path) -> None:
    server = EmbeddedPostgres(directory)
    server.start()
    data = known(server).data
    lock_file = (data / "postmaster.pid").read_text()
    server.stop()
    # A process of the server's own account: Postgres by itself takes it for a running server.
    stranger = account_for(data).spawn(["/bin/sleep", "600"], subprocess.DEVNULL)
    try:
        rest = lock_file.partition("\n")[2]
        (data / "postmaster.pid").write_text(f"{stranger.pid}\n{rest}")
        assert server.running is None
        assert server.stop() is False
        assert server.start() is True
        assert postmaster(server).pid != stranger.pid
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_damaged_lock_file_does_not_stop_a_start(directory: Path) -> None:
    server = EmbeddedPostgres(directory)
    server.start()
    for left in ("", "garbage\n", "-17\n"):
        server.stop()
        (known(server).data / "postmaster.pid").write_text(left)
        assert server.start() is True


def test_killed_server_recovers_what_was_committed(directory: Path) -> None:
    server = EmbeddedPostgres(directory)
    server.start()
    # Its last connection ends with it; the backend may outlive it for a moment.
    with suppress(psycopg.OperationalError), psycopg.connect(server.dsn) as connection:
        connection.execute("CREATE TABLE kept AS SELECT generate_series(1, 200000) AS n")
        connection.commit()
        connection.execute("INSERT INTO kept SELECT generate_series(1, 1000)")
        postmaster(server).kill()
        assert server.start() is True
    with psycopg.connect(server.dsn) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (200000,)


def test_start_waits_for_a_recovery_that_takes_its_time(directory: Path) -> None:
    server = EmbeddedPostgres(directory)
    server.start()
    server.stop()
    release = hold_recovery(server)
    with ThreadPoolExecutor(1) as pool:
        start = pool.submit(EmbeddedPostgres(directory).start)
        try:
            while not start.done() and _ping(server) != pq.Ping.REJECT:
                pass
            assert not start.done()
            # Somebody else who starts it meanwhile waits for his turn, and says so in the end.
            with pytest.raises(CommandError, match="another process has been starting"):
                EmbeddedPostgres(directory, start_seconds=0.2).start()
        finally:
            release.touch()
        assert start.result(timeout=60) is True
    with psycopg.connect(server.dsn) as connection:
        assert connection.execute("SELECT pg_is_in_recovery()").fetchone() == (False,)


def test_recovery_beyond_the_deadline_ends_without_processes(directory: Path) -> None:
    server = EmbeddedPostgres(directory)
    server.start()
    server.stop()
    release = hold_recovery(server)
    impatient = EmbeddedPostgres(directory, start_seconds=1)
    with pytest.raises(CommandError, match=r"not ready after 1 s.*data are kept.*ends with: .+"):
        impatient.start()
    assert processes_on(known(server).data) == []
    release.touch()
    assert server.start() is True


def test_server_that_ends_while_it_starts_is_explained_by_its_log(directory: Path) -> None:
    server = EmbeddedPostgres(directory)
    server.start()
    server.stop()
    with (known(server).data / "postgresql.conf").open("a") as file:
        file.write("no_such_setting = on\n")
    with pytest.raises(CommandError, match=r"ended while it started.*no_such_setting") as caught:
        server.start()
    assert "\n" not in str(caught.value)


def test_two_starts_at_once_give_one_server(
    directory: Path, starters: list[subprocess.Popen[str]]
) -> None:
    answers = [_answer(starter) for starter in starters]
    assert sorted(started for started, _ in answers) == ["False", "True"]
    assert len({pid for _, pid in answers}) == 1
    working = processes_on(known(EmbeddedPostgres(directory)).data)
    roots = [pid for pid in working if psutil.Process(pid).ppid() not in working]
    assert roots == [int(answers[0][1])]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_server_outlives_its_starter_and_the_next_owner_takes_it_over(
    directory: Path, starters: list[subprocess.Popen[str]], number: signal.Signals
) -> None:
    pids = {int(_answer(starter)[1]) for starter in starters}
    for starter in starters:
        os.killpg(starter.pid, number)  # as a terminal's Ctrl-C reaches the whole group
        starter.wait(timeout=30)
    server = EmbeddedPostgres(directory)
    data = known(server).data
    assert server.start() is False
    assert {postmaster(server).pid} == pids
    with server:
        assert {postmaster(server).pid} == pids
    assert processes_on(data) == []


def test_owner_that_fails_leaves_no_process(directory: Path) -> None:
    data = directory / "data"

    def own_and_fail() -> None:
        with EmbeddedPostgres(directory):
            assert processes_on(data) != []
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        own_and_fail()
    assert processes_on(data) == []


def test_server_that_lost_its_socket_is_started_again(directory: Path) -> None:
    server = EmbeddedPostgres(directory)
    server.start()
    first = postmaster(server).pid
    assert server.running
    assert server.running.socket_folder
    shutil.rmtree(server.running.socket_folder)
    assert server.start() is True
    assert postmaster(server).pid != first
    with psycopg.connect(server.dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_interrupted_initdb_is_begun_again(directory: Path) -> None:
    server = EmbeddedPostgres(directory)
    data = known(server).data
    # What an initdb leaves behind that was killed: a draft, the password file, no data directory.
    data.rename(data.with_name("data.draft"))
    (directory / "credentials.json").unlink()
    data.with_name("data.password").write_text("half")
    state = directory / "cluster.json"
    state.write_text(state.read_text().replace('"made": true', '"made": false'))
    assert server.start() is True
    assert not data.with_name("data.draft").exists()
    assert not data.with_name("data.password").exists()


def _answer(starter: subprocess.Popen[str]) -> tuple[str, str]:
    assert starter.stdout
    started, pid = starter.stdout.readline().split()
    return started, pid


def _ping(server: EmbeddedPostgres) -> int:
    try:
        return pq.PGconn.ping(server.dsn.encode())
    except CommandError:
        return pq.Ping.NO_RESPONSE

"""The dispatcher's page of health and metrics, and what it says of undelivered entries."""

import json
import shlex
import signal
import socket
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from holdfast.deploy.local.ports import free_port
from holdfast.dispatcher.delivery import web
from holdfast.dispatcher.delivery.health import Health
from holdfast.dispatcher.delivery.store.session import Pools
from holdfast.dispatcher.delivery.telemetry.metrics import DispatcherCollector, Measures
from holdfast.dispatcher.delivery.web import served
from holdfast.dispatcher.operators.overview.store import Overview
from holdfast.sink.contract.exits import CommandError, ExitCode
from tests.support.dispatch import webhooks
from tests.support.dispatch.dispatching import Process, dispatching
from tests.support.dispatch.sender import secret_text
from tests.support.dispatch.webhooks import Gate, WebhookReceiver, answer
from tests.support.waiting import eventually
from tests.support.world import World

COLLECTOR = DispatcherCollector(
    Measures(), counts={}, in_flight=lambda: 0, pool=lambda: Pools(0, 0, 0)
)

BENT = ("tests.support.dispatch.bent_dispatch",)
"""The command with constants of its own: what takes twenty seconds takes two."""


def health(port: int, path: str = "") -> tuple[int, list[str]]:
    """Status and faults of a health check; 0 without an answer."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/healthz{path}", timeout=10) as response:
            return response.status, json.load(response)["faults"]
    except HTTPError as error:
        return error.code, json.load(error)["faults"]
    except OSError:
        return 0, []


def scraped(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
        text: str = response.read().decode()
    return text


def value(text: str, name: str, **labels: str) -> float | None:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    return None


@pytest.mark.rest
def test_running_dispatcher_is_ready_and_shows_work(world: World) -> None:
    world.add_endpoint(world.receiver.url)
    gate = Gate(answer(200))
    world.receiver.script = lambda seen: gate if seen.subject == "m_2" else answer(200)
    port = free_port()
    with world.dispatching("--listen", f"127.0.0.1:{port}") as running:
        eventually(lambda: health(port) == (200, []))
        world.write("m_1", "m_1", "m_2")
        by = {"endpoint": "payouts"}
        eventually(
            lambda: value(scraped(port), "holdfast_attempts_total", **by, outcome="delivered") == 2
        )
        assert value(scraped(port), "holdfast_inflight") == 1
        gate.open()
        eventually(lambda: value(scraped(port), "holdfast_end_to_end_seconds_count", **by) == 3)
        text = scraped(port)
        assert (value(text, "holdfast_end_to_end_seconds_sum", **by) or 99) < 60
        assert value(text, "holdfast_attempt_seconds_count", **by, outcome="delivered") == 3
        assert (value(text, "holdfast_claim_seconds_count") or 0) > 0
        assert (value(text, "holdfast_settle_seconds_count") or 0) > 0
        assert value(text, "holdfast_breaker_state", **by, state="closed") == 1
        assert abs(value(text, "holdfast_clock_skew_seconds") or 0) < 30
        assert (value(text, "holdfast_partition_days_ahead") or 0) > 1
        assert not any(
            each in text for each in ("m_1", "m_2", world.receiver.url, "hf_", secret_text())
        )
        running.send(signal.SIGTERM)
        assert running.ends() == ExitCode.OK, running.text()


@pytest.mark.rest
def test_what_waits_and_what_was_rescued_is_shown(world: World, receiver: WebhookReceiver) -> None:
    world.add_endpoint(receiver.url, concurrency=1, total_timeout_ms=60_000)
    receiver.script = lambda _seen: webhooks.silence
    world.write("m_1", "m_2", "m_3", "m_4")
    port = free_port()
    by = {"endpoint": "payouts"}
    with world.dispatching("--listen", f"127.0.0.1:{port}") as running:
        running.says("dispatcher.started")
        eventually(lambda: value(scraped(port), "holdfast_due", **by) == 3)
        eventually(lambda: (value(scraped(port), "holdfast_oldest_due_age_seconds", **by) or 0) > 1)
        world.expire_leases()
        eventually(lambda: value(scraped(port), "holdfast_leases_expired_total", **by) == 1)
        assert value(scraped(port), "holdfast_unknown_outcomes_total", **by) == 1


@pytest.mark.rest
def test_database_that_is_away_makes_it_unready_and_not_dead(world: World, server_dsn: str) -> None:
    port, name = free_port(), str(conninfo_to_dict(world.dsn)["dbname"])
    allow = sql.SQL("ALTER DATABASE {} WITH ALLOW_CONNECTIONS {}")
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
    launcher = (*BENT, "--set", "holdfast.dispatcher.delivery.health.ANSWER_SECONDS=3")
    with (
        world.dispatching("--listen", f"127.0.0.1:{port}", launcher=launcher) as running,
        psycopg.connect(server_dsn, autocommit=True) as server,
    ):
        eventually(lambda: health(port) == (200, []))
        server.execute(allow.format(sql.Identifier(name), False))
        try:
            server.execute(cut, [name])
            eventually(lambda: health(port, "/ready")[0] == 503)
            assert "has not answered" in health(port, "/ready")[1][0]
            assert health(port, "/live") == (200, [])
        finally:
            server.execute(allow.format(sql.Identifier(name), True))
        eventually(lambda: health(port) == (200, []))
        assert running.process.poll() is None


@pytest.mark.rest
def test_schema_of_another_version_makes_it_unready(world: World) -> None:
    port = free_port()
    with world.dispatching("--listen", f"127.0.0.1:{port}"):
        eventually(lambda: health(port) == (200, []))
        world.db.execute("UPDATE holdfast.alembic_version SET version_num = '0001'")
        eventually(lambda: health(port, "/ready")[0] == 503)
        assert "0001" in health(port, "/ready")[1][0]


@pytest.mark.rest
def test_another_thread_reports_a_hanging_event_loop(world: World, tmp_path: Path) -> None:
    """D10 waits for ever in the event loop's thread, as a bug might."""
    world.add_endpoint()
    port, reached = free_port(), tmp_path / "reached"
    with world.dispatching(
        "--listen",
        f"127.0.0.1:{port}",
        failpoints=f"D10=pause:{reached}",
        launcher=(*BENT, "--set", "holdfast.dispatcher.delivery.service.TICK_STEP_SECONDS=2"),
    ):
        eventually(lambda: health(port) == (200, []))
        world.write("m_1")
        eventually(reached.exists)
        eventually(lambda: health(port, "/live")[0] == 503)
        assert "'tick'" in " ".join(health(port, "/live")[1])
        assert value(scraped(port), "holdfast_inflight") is not None


@pytest.mark.rest
def test_draining_dispatcher_is_unready_and_alive(world: World) -> None:
    world.add_endpoint(world.receiver.url, total_timeout_ms=20_000)
    gate = Gate(answer(200))
    world.receiver.script = lambda _seen: gate
    world.write("m_1")
    port = free_port()
    with world.dispatching("--listen", f"127.0.0.1:{port}") as running:
        eventually(lambda: world.receiver.seen)
        running.send(signal.SIGTERM)
        running.says("dispatcher.stopping")
        assert "the dispatcher is stopping" in health(port, "/ready")[1]
        assert health(port, "/live") == (200, [])
        gate.open()
        assert running.ends() == ExitCode.OK, running.text()


@pytest.mark.rest
def test_nothing_listens_unless_it_is_told_to(dsn: str, tmp_path: Path) -> None:
    with dispatching(dsn, tmp_path / "log") as running:
        running.says("dispatcher.started")
        assert _listening(running) == []


def _listening(running: Process) -> list[Any]:
    import psutil

    connections = psutil.Process(running.process.pid).net_connections()
    return [each for each in connections if each.status == psutil.CONN_LISTEN]


@pytest.mark.rest
def test_silent_client_blocks_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    assert web._Handler.timeout == web.IDLE_SECONDS
    monkeypatch.setattr(web._Handler, "timeout", 0.5)
    with served(f"127.0.0.1:{port}", Health(), COLLECTOR):
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        assert health(port, "/live") == (200, [])
        for each in silent:
            each.settimeout(20)
            assert each.recv(1) == b""  # hung up on
            each.close()


@pytest.mark.rest
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("POST", "/metrics", 405), ("GET", "/healthz/../metrics", 404)],
)
def test_unknown_object_is_refused(method: str, path: str, status: int) -> None:
    port = free_port()
    with (
        served(f"127.0.0.1:{port}", Health(), COLLECTOR),
        socket.create_connection(("127.0.0.1", port), 10) as line,
    ):
        line.sendall(f"{method} {path} HTTP/1.0\r\n\r\n".encode())
        assert line.recv(100).split()[1] == str(status).encode()


@pytest.mark.rest
def test_ipv6_address_is_listened_on() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
        port = listener.getsockname()[1]
    with (
        served(f"[::1]:{port}", Health(), COLLECTOR),
        urlopen(f"http://[::1]:{port}/healthz/live", timeout=10) as response,
    ):
        assert response.status == 200


@pytest.mark.rest
@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.1"])
def test_unusable_address_is_reported(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listen = f"{host}:{listener.getsockname()[1]}"
        with (
            pytest.raises(CommandError, match="Nothing was sent") as raised,
            served(listen, Health(), COLLECTOR),
        ):
            raise AssertionError
    assert raised.value.exit_code == ExitCode.USAGE
    assert listen in str(raised.value)


AGE = 1200
OLDER = f"UPDATE holdfast.lane SET head_created_at = head_created_at - interval '{AGE} s'"
METRIC = "holdfast_oldest_undelivered_age_seconds"

STATES = {
    "leased": "UPDATE holdfast.lane SET token = gen_random_uuid(),"
    " lease_until = now() + interval '1 hour'",
    "due": "UPDATE holdfast.lane SET token = NULL, lease_until = NULL, due_at = now()",
    "paused": "UPDATE holdfast.endpoint SET state = 'paused'",
    "stopped": "UPDATE holdfast.lane SET due_at = NULL",
}


def undelivered(dsn: str, **options: int) -> list[dict[str, Any]]:
    with Overview.connect(dsn) as store:
        return [need for need in store.needs(**options) if need["kind"] == "undelivered"]


def test_merchant_in_retries_is_a_metric_and_a_need(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add_endpoint(world.receiver.url, schedule_seconds=[7200])
    world.receiver.script = lambda _seen: answer(503)
    world.write("m_1")
    port = free_port()
    with world.dispatching("--listen", f"127.0.0.1:{port}"):
        eventually(lambda: [each.attempt for each in world.lanes().values()] == [1])
        world.db.execute(OLDER)
        eventually(lambda: (value(scraped(port), METRIC, endpoint="payouts") or 0) > AGE, 60)
        assert value(scraped(port), "holdfast_oldest_due_age_seconds", endpoint="payouts") == 0
        status = world.holdfast("status", "--json", code=ExitCode.DEGRADED)
        [need] = status.json["needs"]
        assert (need["kind"], need["count"]) == ("undelivered", 1)
        assert "m_1" in need["sentence"]
        assert "HTTP 503" in need["sentence"]
        _, *command = shlex.split(need["command"])
        assert "HTTP 503" in world.holdfast(*command).stdout
        monkeypatch.setenv("HOLDFAST_UNDELIVERED_MINUTES", "30")
        assert world.holdfast("status").returncode == ExitCode.OK


def test_undelivered_entry_counts_in_every_state(world: World) -> None:
    world.add_endpoint("http://127.0.0.1:9/")
    world.write("m_1")
    with Overview.connect(world.dsn) as store:
        world.db.execute("UPDATE holdfast.batch SET written_at = written_at - interval '1 hour'")
        assert store.overview(1)["oldest_undelivered_age_seconds"] > AGE, "a batch to route"
    world.db.execute("UPDATE holdfast.batch SET routed_at = now()")
    world.db.execute(
        "INSERT INTO holdfast.lane (endpoint_id, subject_id, delivered_sequence, last_sequence,"
        " priority, due_at, head_created_at)"
        " SELECT p.id, s.id, 0, 1, 0, now() + interval '1 hour', now()"
        " FROM holdfast.endpoint p, holdfast.subject s"
    )
    world.db.execute(
        "INSERT INTO holdfast.dead_letter (endpoint_id, subject_id, sequence, key, created_at,"
        " reason, detail, attempts) SELECT endpoint_id, subject_id, 1, gen_random_uuid(), now(),"
        " 'rejected', 'd', 1 FROM holdfast.lane"
    )
    assert undelivered(world.dsn) == []
    world.db.execute(OLDER)
    for state, change in STATES.items():
        world.db.execute(change)
        [need] = undelivered(world.dsn)
        assert need["count"] == 1, state
        assert "no attempt is recorded" in need["sentence"], state
        assert undelivered(world.dsn, undelivered_minutes=AGE // 60 + 5) == [], state
    world.db.execute("UPDATE holdfast.endpoint SET state = 'disabled'")
    assert undelivered(world.dsn) == []
    world.db.execute("UPDATE holdfast.endpoint SET state = 'active'")
    world.db.execute("UPDATE holdfast.lane SET delivered_sequence = last_sequence")
    assert undelivered(world.dsn) == []

"""Before a key is sent again, its receiver is asked and its key-retention window respected."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg
import pytest

from holdfast.sink.contract.wire import INQUIRY_PATH, KEY_WINDOW
from tests.support.dispatch.delivery import attempts
from tests.support.dispatch.sender import receipt
from tests.support.servers.threads import in_threads
from tests.support.waiting import eventually
from tests.support.world import World

pytestmark = pytest.mark.rest


Answer = tuple[int, dict[str, str]]
KEPT = "SELECT key_window_seconds, key_window_seen_at IS NOT NULL FROM holdfast.endpoint_pace"
OTHER_KEY_BYTES = b"another secret than the sender's"
UNKNOWN = 404, {"reason": "unknown_key"}


@dataclass
class Memory:
    """A receiver that applies what it is sent and keeps it; `lossy` of its answers are lost."""

    url: str
    lossy: int = 0
    window: str | None = None
    status: int = 200
    proves: bool = False
    """Whether its answers to deliveries have a receipt."""
    posted: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    bodies: dict[str, bytes] = field(default_factory=dict)
    says: dict[str, str] = field(default_factory=dict)
    """What it answers to a delivery, besides the key."""
    tell: Callable[["Memory", str], Answer] = lambda memory, key: memory.truth(key)

    def truth(self, key: str, secret: bytes | None = None) -> Answer:
        """What it knows of a key, with a receipt of its own secret or of another."""
        if key not in self.bodies:
            return UNKNOWN
        content = {"key": key, "outcome": "applied", "applied_at": "2026-11-02T12:15:00Z"}
        signed = receipt(content) if secret is None else receipt(content, secret)
        digest = sha256(self.bodies[key]).hexdigest()
        return 200, {**content, "receipt": signed, "body_sha256": digest}


@pytest.fixture
def memory() -> Iterator[Memory]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            key = self.headers["webhook-id"]
            memory.posted.append(key)
            memory.bodies[key] = self.rfile.read(int(self.headers["content-length"]))
            if memory.lossy:
                memory.lossy -= 1
                self.close_connection = True
            elif memory.proves:
                self.answer(memory.status, memory.truth(key)[1])
            else:
                self.answer(memory.status, {"key": key, **memory.says} if memory.says else {})

        def do_GET(self) -> None:
            key = self.path.removeprefix(INQUIRY_PATH)
            memory.asked.append(key)
            self.answer(*memory.tell(memory, key))

        def answer(self, status: int, content: dict[str, str]) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            if memory.window is not None:
                self.send_header(KEY_WINDOW, memory.window)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    memory = Memory(f"http://127.0.0.1:{server.server_port}/webhooks")
    with in_threads(server):
        yield memory


def remember(db: psycopg.Connection, seconds: int) -> None:
    """Let the receiver have said how long it keeps keys."""
    query = "UPDATE holdfast.endpoint_pace SET key_window_seconds = %s, key_window_seen_at = now()"
    db.execute(query, [seconds])


def outcomes(db: psycopg.Connection) -> list[str]:
    return [row.outcome for row in attempts(db)]


def test_key_that_the_receiver_knows_is_not_sent_again(world: World, memory: Memory) -> None:
    world.add_endpoint(memory.url, inquiry_path=INQUIRY_PATH)
    memory.lossy = 1
    world.write("m_1", "m_1")
    world.drain()
    assert outcomes(world.db) == ["unknown", "delivered", "delivered"]
    assert len(memory.posted) == len(set(memory.posted)) == 2
    assert memory.asked == memory.posted[:1]
    kept = world.db.execute(
        "SELECT response, receipt FROM holdfast.attempt WHERE number = 2"
    ).fetchone()
    assert kept is not None
    assert "not sent again" in kept[0]
    assert json.loads(kept[1])["key"] == memory.posted[0]


def test_key_that_the_receiver_does_not_know_is_sent_again(world: World, memory: Memory) -> None:
    world.add_endpoint(memory.url, inquiry_path=INQUIRY_PATH)
    memory.lossy, memory.tell = 1, lambda _memory, _key: UNKNOWN
    world.write("m_1")
    world.drain()
    assert outcomes(world.db) == ["unknown", "delivered"]
    assert memory.posted == memory.asked * 2


@pytest.mark.parametrize(
    "tell",
    [
        lambda memory, key: memory.truth(key, OTHER_KEY_BYTES),
        lambda memory, key: (200, {**memory.truth(key)[1], "body_sha256": "0" * 64}),
        lambda memory, key: (200, {**memory.truth(key)[1], "outcome": "stale"}),
        lambda memory, key: (200, {k: v for k, v in memory.truth(key)[1].items() if k != "key"}),
        lambda memory, key: (200, {**memory.truth(key)[1], "applied_at": "\ud800"}),
        lambda memory, key: (500, memory.truth(key)[1]),
        lambda _memory, _key: (200, {}),
    ],
    ids=[
        "other secret",
        "other body",
        "other outcome",
        "no key",
        "no text",
        "status 500",
        "nothing",
    ],
)
def test_answer_that_does_not_prove_itself_settles_nothing(
    world: World, memory: Memory, tell: Callable[[Memory, str], Answer]
) -> None:
    world.add_endpoint(memory.url, inquiry_path=INQUIRY_PATH)
    memory.lossy, memory.tell = 1, tell
    world.write("m_1")
    world.drain()
    assert outcomes(world.db) == ["unknown", "delivered"]
    assert len(memory.asked) == 1
    assert memory.posted == memory.asked * 2


def test_receipt_that_is_no_text_is_none(world: World, memory: Memory) -> None:
    world.add_endpoint(memory.url)
    memory.says = {"outcome": "applied", "applied_at": "\ud800", "receipt": "v1,x"}
    world.write("m_1")
    world.drain()
    assert outcomes(world.db) == ["delivered"]
    assert world.db.execute("SELECT receipt FROM holdfast.attempt").fetchall() == [(None,)]


def test_no_inquiry_where_no_path_is_set(world: World, memory: Memory) -> None:
    world.add_endpoint(memory.url)
    memory.lossy = 1
    world.write("m_1")
    world.drain()
    assert memory.asked == []
    assert len(memory.posted) == 2


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        ("3888000", (3_888_000, True)),
        ("forever", (None, True)),
        ("999999999999", (999_999_999_999, True)),
        ("45 days", (None, False)),
        ("432000", (432_000, True)),
        ("1", (432_000, True)),
        ("0", (432_000, True)),
    ],
)
def test_window_that_a_receiver_tells_is_kept(
    world: World, memory: Memory, message: str, kept: tuple[int | None, bool]
) -> None:
    """Also one that is too short for the retries, as these need it: 5 days."""
    world.add_endpoint(memory.url)
    memory.window, memory.proves = message, True
    world.write("m_1")
    world.drain()
    assert world.db.execute(KEPT).fetchone() == kept


@pytest.mark.parametrize(("status", "proves"), [(503, False), (503, True), (200, False)])
def test_window_without_proof_of_delivery_is_not_learned(
    world: World, memory: Memory, status: int, proves: bool
) -> None:
    world.add_endpoint(memory.url, schedule_seconds=[3600])
    memory.window, memory.status, memory.proves = "3888000", status, proves
    world.write("m_1")
    world.drain()
    assert len(memory.posted) == 1
    assert world.db.execute(KEPT).fetchone() == (None, False)


def test_forgotten_key_is_sent_again_only_by_a_person(world: World, memory: Memory) -> None:
    world.add_endpoint(memory.url, schedule_seconds=[3600] * 3)
    memory.lossy = 1
    world.write("m_1", "m_1")
    world.drain()
    # From now on every attempt of the past is longer ago than the receiver remembers.
    remember(world.db, 0)
    world.make_due()
    world.drain()
    assert outcomes(world.db) == ["unknown", "refused"]
    assert len(memory.posted) == 1
    letter = world.db.execute("SELECT reason::text, detail FROM holdfast.dead_letter").fetchone()
    assert letter is not None
    assert letter[0] == "refused"
    assert "longer ago than the receiver keeps keys" in letter[1]

    world.db.execute("""
        UPDATE holdfast.dead_letter
        SET resolution = 'redelivered', resolved_at = now(), window_waived = true
    """)
    world.db.execute("UPDATE holdfast.lane SET due_at = now()")
    world.drain()
    assert outcomes(world.db) == ["unknown", "refused", "delivered", "delivered"]
    assert len(memory.posted) == 3
    assert world.lanes()["m_1"].delivered == 2


def test_window_beyond_all_time_stops_nothing(world: World, memory: Memory) -> None:
    world.add_endpoint(memory.url)
    remember(world.db, 999_999_999_999)
    memory.lossy = 1
    world.write("m_1")
    assert world.drain().failure is None
    assert outcomes(world.db) == ["unknown", "delivered"]


def test_never_received_is_sent_however_old(world: World, memory: Memory) -> None:
    world.add_endpoint("http://127.0.0.1:1/", schedule_seconds=[3600])
    world.write("m_1")
    world.drain()
    world.db.execute("UPDATE holdfast.endpoint SET url = %s", [memory.url])
    remember(world.db, 0)
    world.make_due()
    world.drain()
    assert outcomes(world.db) == ["failed", "delivered"]


def test_attempt_that_was_rescued_late_is_as_old_as_its_entry(world: World, memory: Memory) -> None:
    """It is unknown when a dispatcher that crashed sent it; its rescue may come days later."""
    world.add_endpoint(memory.url)
    world.write("m_1")
    world.drain()
    age = world.db.execute(
        "SELECT extract(epoch FROM now() - created_at) FROM holdfast.entry"
    ).fetchone()
    assert age is not None
    world.db.execute("DELETE FROM holdfast.attempt")
    world.db.execute("""
        UPDATE holdfast.lane SET delivered_sequence = 0, attempt = 1, claimed_sequence = 1,
            token = gen_random_uuid(), lease_until = now() - interval '1 second', due_at = now()
    """)
    remember(world.db, int(age[0]))
    eventually(
        lambda: world.db.execute(
            "SELECT 1 FROM holdfast.entry WHERE now() - created_at > %s * interval '1 second'",
            [int(age[0]) + 1],
        ).fetchone()
    )
    world.drain()
    assert outcomes(world.db) == ["unknown", "refused"]
    assert len(memory.posted) == 1


def test_entry_that_was_never_tried_is_sent_however_old_it_is(world: World, memory: Memory) -> None:
    world.add_endpoint(memory.url)
    remember(world.db, 0)
    world.write("m_1", "m_1")
    world.drain()
    assert outcomes(world.db) == ["delivered", "delivered"]

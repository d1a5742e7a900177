"""S3 in memory: moto behind one lock, so that a conditional PUT is one step.

Usage: s3_server.py PORT, by the Python of an environment of its own. Paths that begin with
`/_control/` steer it (`tests.support.servers.s3`).
"""

import json
import logging
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

HOLD_SECONDS = 900

Environ = dict[str, Any]
Headers = list[tuple[str, str]]
Start = Callable[..., Any]


@dataclass
class Rule:
    """What happens to the next request that matches."""

    kind: str
    """`before`: wait, then carry it out; `after`: carry it out, then wait; `cut`: never answer."""
    pattern: re.Pattern[str]
    met: bool = False
    released: threading.Event = field(default_factory=threading.Event)


class Server:
    def __init__(self) -> None:
        self.store = DomainDispatcherApplication(create_backend_app)
        self.lock = threading.Lock()
        self.log: list[dict[str, Any]] = []
        self.rules: list[Rule] = []
        self.down = False
        self.mode = ""
        self.healed = threading.Event()
        self.asked = 0
        self.delay = 0.0
        self.blind = False

    def __call__(self, environ: Environ, start: Start) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path.startswith("/_control/"):
            query = dict(parse_qsl(environ["QUERY_STRING"], keep_blank_values=True))
            return _answer(start, "200 OK", json.dumps(self.control(path[10:], query)).encode())
        self.asked += 1
        rule = self._rule(f"{environ['REQUEST_METHOD']} {path}?{environ['QUERY_STRING']}")
        began = time.monotonic()
        if rule and rule.kind == "before":
            rule.released.wait(HOLD_SECONDS)
        if self.mode == "silent":
            self.healed.wait(HOLD_SECONDS)
        if self.delay:
            time.sleep(self.delay)
        status, headers, body = self._carry_out(environ, began)
        if rule and rule.kind == "after":
            rule.released.wait(HOLD_SECONDS)
        if rule and rule.kind == "cut":
            with suppress(OSError):
                environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        if environ["REQUEST_METHOD"] != "HEAD" and "content-length" not in map(
            str.lower, dict(headers)
        ):
            headers = [*headers, ("Content-Length", str(len(body)))]
        start(status, headers)
        return [body]

    def control(self, verb: str, query: dict[str, str]) -> Any:
        if verb == "rule":
            self.rules.append(Rule(query["kind"], re.compile(query["match"])))
            return len(self.rules) - 1
        if verb == "asked":
            return self.asked
        if verb == "met" and "rule" in query:
            return self.rules[int(query["rule"])].met
        if verb == "met":
            return sum(rule.met for rule in self.rules)
        if verb == "release" and "rule" in query:
            self.rules[int(query["rule"])].released.set()
        elif verb == "release":
            rules, self.rules = self.rules, []
            for rule in rules:
                rule.released.set()
        elif verb == "mode":
            self.mode, healed, self.healed = query["mode"], self.healed, threading.Event()
            healed.set()
        elif verb in ("fill", "drop", "versions", "upload"):
            self._change(verb, **query)
        elif verb == "delay":
            self.delay = float(query["seconds"])
        elif verb == "set":
            setattr(self, query["name"], query["value"] == "1")
        elif verb == "log":
            log, self.log = self.log, []
            return log
        return None

    def _change(
        self, verb: str, bucket: str, prefix: str = "", count: str = "0", suffix: str = ""
    ) -> None:
        """Change a bucket as somebody else would."""
        store: Any = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        with self.lock:
            if verb == "drop":
                store.buckets[bucket].keys.clear()
                store.delete_bucket(bucket)
            if verb == "versions":
                store.put_bucket_versioning(bucket, "Enabled")
            if verb == "upload":
                store.create_multipart_upload(bucket, prefix, {}, "STANDARD", {}, None, "", "")
            for number in range(int(count)):
                store.put_object(bucket, f"{prefix}{number:05}{suffix}", b"")

    def _rule(self, line: str) -> Rule | None:
        with self.lock:
            for rule in self.rules:
                if not rule.met and rule.pattern.search(line):
                    rule.met = True
                    return rule
        return None

    def _carry_out(
        self, environ: Environ, began: float
    ) -> tuple[str, list[tuple[str, str]], bytes]:
        entry = {
            "method": environ["REQUEST_METHOD"],
            "path": environ["PATH_INFO"],
            "query": environ["QUERY_STRING"],
            "sent": int(environ.get("CONTENT_LENGTH") or 0),
            "copied": environ.get("HTTP_X_AMZ_COPY_SOURCE"),
            "conditional": environ.get("HTTP_IF_NONE_MATCH") == "*",
        }
        if self.blind:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        reply: list[Any] = []
        with self.lock:
            if self.down:
                status, headers, body = _refused(environ, "503 Slow Down", "SlowDown")
            elif self.mode in REFUSALS:
                status, headers, body = _refused(environ, *REFUSALS[self.mode])
            else:
                body = b"".join(self.store(environ, lambda *words: reply.extend(words[:2])))
                status, headers = reply[0], list(reply[1])
            entry |= {"status": int(status[:3]), "received": len(body)}
            entry |= {"began": began, "ended": time.monotonic()}
            self.log.append(entry)
        return status, headers, body


REFUSALS = {
    "expired": ("400 Bad Request", "ExpiredToken"),
    "skewed": ("403 Forbidden", "RequestTimeTooSkewed"),
    "wrong": ("403 Forbidden", "InvalidAccessKeyId"),
}
"""What S3 answers where nothing of a request is right but its form."""


def _refused(environ: Environ, status: str, code: str) -> tuple[str, Headers, bytes]:
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    body = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>"
    if environ["REQUEST_METHOD"] == "HEAD":
        body = ""
    return status, [("Content-Type", "application/xml")], body.encode()


def _answer(start: Start, status: str, body: bytes) -> Iterable[bytes]:
    start(status, [("Content-Length", str(len(body))), ("Content-Type", "application/json")])
    return [body]


class Handler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, *_: Any) -> None:
        """Say nothing: requests are asked of `/_control/log`."""

    def handle_expect_100(self) -> bool:
        return True  # werkzeug answers it


if __name__ == "__main__":
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    make_server(
        "127.0.0.1", int(sys.argv[1]), Server(), threaded=True, request_handler=Handler
    ).serve_forever()

"""A real S3 protocol on this machine, which can hold, release and cut a chosen request.

`make s3-jars` stages Hadoop's client and the server's environment; without them tests are skipped.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from holdfast.deploy.local.kafka.jars import Pin, _by_maven
from holdfast.deploy.local.ports import free_port
from tests.support.waiting import eventually

FOLDER = Path(".holdfast/s3")
PYTHON = Path(".holdfast/s3-server/bin/python")
PINS = [
    Pin(*re.split("[: ]", line, maxsplit=3))
    for line in Path(__file__).with_name("s3_jars.txt").read_text().splitlines()
]
BUCKET = "checkpoints"


@cache
def why_not() -> str | None:
    """Why there is no S3 here; None where it can be started."""
    for pin in PINS:
        with suppress(OSError):
            if hashlib.sha256((FOLDER / pin.name).read_bytes()).hexdigest() == pin.sha256:
                continue
        return f"no S3: {FOLDER / pin.name} is not there as pinned; `make s3-jars` stages it"
    return None if PYTHON.exists() else f"no S3: {PYTHON} is not there; `make s3-jars` makes it"


class S3:
    """One server with one empty bucket. A `match` is a pattern of `METHOD /bucket/key?query`."""

    bucket = BUCKET
    # A client that gave up would send its write again, past the server's hold.
    patience = {  # noqa: RUF012 - nobody changes it
        "spark.hadoop.fs.s3a.connection.timeout": "900s",
        "spark.hadoop.fs.s3a.connection.request.timeout": "900s",
    }

    def __init__(self, port: int) -> None:
        self.port = port
        self._address = f"http://127.0.0.1:{port}"

    @property
    def uri(self) -> str:
        return f"s3a://{self.bucket}"

    @property
    def settings(self) -> dict[str, str]:
        """Hadoop's settings, which are Spark's with `spark.hadoop.` before each."""
        return {
            "fs.s3a.endpoint": self._address,
            "fs.s3a.endpoint.region": "eu-central-1",
            "fs.s3a.path.style.access": "true",
            "fs.s3a.access.key": "test",
            "fs.s3a.secret.key": "test",
            "fs.s3a.aws.credentials.provider": (
                "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
            ),
            "fs.s3a.retry.limit": "2",
            "fs.s3a.retry.interval": "50ms",
        }

    @property
    def spark_settings(self) -> dict[str, str]:
        """Those of a job's `--conf`, with the client's jars."""
        jars = {"spark.jars": ",".join(map(str, sorted(FOLDER.absolute().glob("*.jar"))))}
        return jars | {f"spark.hadoop.{name}": value for name, value in self.settings.items()}

    def write_of(self, name: str) -> str:
        """Return the pattern of the write of an object; `name` is a pattern itself."""
        return rf"^PUT /{self.bucket}/{name}\?"

    def hold(self, match: str, *, carried_out: bool = False) -> int:
        """Hold the next request that matches, before it is carried out or before its answer.

        Returns the number of the rule.
        """
        return int(self._control("rule", kind="after" if carried_out else "before", match=match))

    def is_met(self, rule: int) -> bool:
        return bool(self._control("met", rule=rule))

    def cut(self, match: str) -> None:
        """Carry out the next request that matches, and lose its answer."""
        self._control("rule", kind="cut", match=match)

    def met(self, count: int) -> None:
        """Wait until so many of the rules have met their request."""
        eventually(lambda: self._control("met") >= count)

    def release(self, rule: int | None = None) -> None:
        """Let the request of a rule continue; without one every request, and forget all rules."""
        self._control("release", **({} if rule is None else {"rule": rule}))

    def answer_503(self, on: bool) -> None:
        self._control("set", name="down", value=int(on))

    def ignore_conditions(self, on: bool) -> None:
        """Be a store that does not know If-None-Match."""
        self._control("set", name="blind", value=int(on))

    def requests(self) -> list[dict[str, Any]]:
        """Return the requests since the last call."""
        requests: list[dict[str, Any]] = self._control("log")
        return requests

    @property
    def asked(self) -> int:
        """How many requests have come, answered or not."""
        return int(self._control("asked"))

    def be(self, mode: str) -> None:
        """Refuse all requests (`expired`, `skewed`, `wrong`), or be `silent`; `` answers again."""
        self._control("mode", mode=mode)

    def delay(self, seconds: float) -> None:
        """Answer each request so much later."""
        self._control("delay", seconds=seconds)

    def keep_versions(self, bucket: str = BUCKET) -> None:
        """Keep every version of an object from now on."""
        self._control("versions", bucket=bucket)

    def begin_upload(self, name: str, bucket: str = BUCKET) -> None:
        """Begin an upload in parts that nobody completes."""
        self._control("upload", bucket=bucket, prefix=name)

    def fill(self, prefix: str, count: int, suffix: str = "", *, bucket: str = BUCKET) -> None:
        """Put so many objects whose names begin and end so."""
        self._control("fill", bucket=bucket, prefix=prefix, count=count, suffix=suffix)

    def remove_bucket(self, name: str = BUCKET) -> None:
        """Remove a bucket with everything in it."""
        self._control("drop", bucket=name)

    def send(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Send a request that is not signed."""
        request = Request(f"{self._address}{path}", body or None, method=method)  # noqa: S310 - as above
        with urlopen(request) as answer:  # noqa: S310 - as above
            return bytes(answer.read())

    def names(self, folder: str) -> list[str]:
        """Return the names of the objects in a folder of the bucket."""
        query = urlencode({"list-type": 2, "prefix": f"{folder}/", "delimiter": "/"})
        listed = self.send("GET", f"/{BUCKET}?{query}").decode()
        return [name.rpartition("/")[2] for name in re.findall(r"<Key>([^<]+)</Key>", listed)]

    def make_bucket(self, name: str = BUCKET) -> None:
        request = Request(f"{self._address}/{name}", method="PUT")  # noqa: S310 - as above
        urlopen(request).close()  # noqa: S310 - as above

    def _control(self, verb: str, **query: object) -> Any:
        with urlopen(f"{self._address}/_control/{verb}?{urlencode(query)}") as answer:  # noqa: S310 - as above
            return json.load(answer)

    def answers(self) -> bool:
        with suppress(OSError):
            self._control("met")
            return True
        return False


@contextmanager
def s3() -> Iterator[S3]:
    """Start a server, or skip what needs it; its process has ended afterwards."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    port = free_port()
    program = Path(__file__).with_name("s3_server.py")
    process = subprocess.Popen(
        [PYTHON, program, str(port)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    server = S3(port)
    try:
        eventually(lambda: process.poll() is not None or server.answers())
        assert process.poll() is None, "the server ended"
        server.make_bucket()
        yield server
    finally:
        process.kill()
        process.wait()


def stage() -> str | None:
    """Stage the jars by Maven; returns why they cannot be staged."""
    if why_not() is None:
        return None
    shutil.rmtree(FOLDER, ignore_errors=True)
    why_not.cache_clear()
    return _by_maven(PINS, FOLDER.absolute()) or why_not()


if __name__ == "__main__":
    sys.exit(stage())

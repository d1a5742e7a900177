"""Google's storage protocol on this machine: fake-gcs-server, and Google's client of Hadoop.

`make gcs-server` builds the one, at the version that `fake_gcs/go.mod` pins, and stages the other;
without them tests are skipped. A proxy before the server holds a chosen request.
"""

import hashlib
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from holdfast.deploy.local.ports import free_port
from tests.support.servers.fault_proxy import FaultProxy
from tests.support.servers.held_requests import HeldRequests
from tests.support.waiting import eventually

FOLDER = Path(".holdfast/gcs")
PROGRAM = FOLDER / "fake-gcs-server"
JAR = FOLDER / "gcs-connector-3.1.9-shaded.jar"
SHA256 = "c5fcafb3b1671801c9fe61dff16d946729314d495c4e03590b79e52d01d081bb"
BUCKET = "checkpoints"


@cache
def why_not() -> str | None:
    """Why there is no such server here; None where it can be started."""
    with suppress(OSError):
        is_pinned = hashlib.sha256(JAR.read_bytes()).hexdigest() == SHA256
        if is_pinned and PROGRAM.exists():
            return None
    return f"no Google storage: {PROGRAM} or {JAR} is not there; `make gcs-server` (needs go)"


class Gcs(HeldRequests):
    """One server with one empty bucket."""

    bucket = BUCKET
    patience = {"spark.hadoop.fs.gs.http.read-timeout": "900s"}  # noqa: RUF012 - as of S3

    def __init__(self, proxy: FaultProxy) -> None:
        super().__init__(proxy)
        self.port = proxy.port
        self._address = f"http://127.0.0.1:{proxy.port}/"

    @property
    def uri(self) -> str:
        return f"gs://{self.bucket}"

    @property
    def settings(self) -> dict[str, str]:
        """Hadoop's settings, which are Spark's with `spark.hadoop.` before each."""
        return {
            "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
            "fs.AbstractFileSystem.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFS",
            # The default of Hadoop 3.5 for its own client, 64m, which Google's cannot read.
            "fs.gs.block.size": "67108864",
            # It was compiled against an older Hadoop, which reads ranges of a file otherwise.
            "parquet.hadoop.vectored.io.enabled": "false",
            # The server does not know how to move an object, which Google's own does.
            "fs.gs.operation.move.enable": "false",
            "fs.gs.storage.root.url": self._address,
            "fs.gs.auth.type": "UNAUTHENTICATED",
            "fs.gs.project.id": "test",
        }

    @property
    def spark_settings(self) -> dict[str, str]:
        """Those of a job's `--conf`, with the client's jar."""
        jar = {"spark.jars": str(JAR.absolute())}
        return jar | {f"spark.hadoop.{name}": value for name, value in self.settings.items()}

    @staticmethod
    def write_of(name: str) -> str:
        """Return the pattern of the upload that makes an object; `name` is a pattern itself."""
        return rf"^PUT /upload/storage/v1/b/{BUCKET}/o\?uploadType=resumable&name={name}&"

    def make_bucket(self, name: str = BUCKET) -> None:
        body = json.dumps({"name": name}).encode()
        urlopen(Request(f"{self._address}storage/v1/b?project=test", body)).close()  # noqa: S310 - as above

    def answers(self) -> bool:
        with suppress(OSError):
            urlopen(f"{self._address}storage/v1/b?project=test").close()  # noqa: S310 - as above
            return True
        return False


@contextmanager
def gcs() -> Iterator[Gcs]:
    """Start a server, or skip what needs it; its process has ended afterwards."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    port = free_port()
    with FaultProxy.before_port(port) as proxy:
        # Clients continue an upload at the address that the server names.
        process = subprocess.Popen(
            [
                *(str(PROGRAM), "-scheme", "http", "-backend", "memory", "-log-level", "error"),
                *("-host", "127.0.0.1", "-port", str(port)),
                *("-public-host", f"127.0.0.1:{proxy.port}"),
            ],
            stdin=subprocess.DEVNULL,
        )
        server = Gcs(proxy)
        try:
            eventually(lambda: process.poll() is not None or server.answers())
            assert process.poll() is None, "the server ended"
            server.make_bucket()
            yield server
        finally:
            process.kill()
            process.wait()

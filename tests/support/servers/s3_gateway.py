"""A second server with S3's protocol: Versity's gateway, which keeps objects as files.

`make s3-gateway` builds it, at the version that `gateway/go.mod` pins; without it tests are
skipped. A proxy before it holds a chosen request.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from holdfast.deploy.local.ports import free_port
from tests.support.servers import s3
from tests.support.servers.fault_proxy import FaultProxy
from tests.support.servers.held_requests import HeldRequests
from tests.support.servers.s3 import S3
from tests.support.waiting import eventually

PROGRAM = Path(".holdfast/s3-gateway/versitygw")


def why_not() -> str | None:
    """Why there is no such server here; None where it can be started."""
    if not PROGRAM.exists():
        return f"no second S3: {PROGRAM} is not there; `make s3-gateway` builds it (needs go)"
    return s3.why_not()


class Gateway(HeldRequests, S3):
    """One server with one empty bucket, which is a folder."""

    bucket = "gateway"

    def __init__(self, root: Path, proxy: FaultProxy) -> None:
        HeldRequests.__init__(self, proxy)
        S3.__init__(self, proxy.port)
        self.root = root

    def make_bucket(self, name: str = "gateway") -> None:
        (self.root / name).mkdir()

    def answers(self) -> bool:
        try:
            urlopen(f"http://127.0.0.1:{self.port}/").close()
        except HTTPError:
            return True  # the request is not signed
        except OSError:
            return False
        return True


@contextmanager
def gateway(folder: Path) -> Iterator[Gateway]:
    """Start a server over an empty folder, or skip what needs it; it has ended afterwards."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    port = free_port()
    (folder / "buckets").mkdir(parents=True)
    (folder / "metadata").mkdir()
    places = ("--sidecar", str(folder / "metadata"), str(folder / "buckets"))
    keys = ("--access", "test", "--secret", "test", "--region", "eu-central-1")
    address = ("--port", f"127.0.0.1:{port}")
    command = [str(PROGRAM), *address, *keys, "--quiet", "posix", *places]
    with (folder / "log").open("wb") as log, FaultProxy.before_port(port) as proxy:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        server = Gateway(folder / "buckets", proxy)
        try:
            eventually(lambda: process.poll() is not None or server.answers())
            assert process.poll() is None, (folder / "log").read_text()
            server.make_bucket()
            yield server
        finally:
            with suppress(OSError):
                process.kill()
            process.wait()

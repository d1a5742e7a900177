"""A client's key is on no disk: real processes that are killed while they load one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from signal import SIGKILL

import pytest

from holdfast.dispatcher.outbound.target import Target
from holdfast.dispatcher.outbound.transport.certificates import authorities, extend
from tests.support.dispatch.transports import LOOPBACK
from tests.support.servers.certificates import Authority

CERTIFICATE, KEY = Authority().client()
TARGET = Target(1, "https://localhost/", LOOPBACK, 5, 5, None, CERTIFICATE, KEY)

DIES_BEFORE_LOADING = """
import json, os, signal, ssl, sys
from holdfast.dispatcher.outbound.target import Target
from holdfast.dispatcher.outbound.transport.certificates import extend

class Dying(ssl.SSLContext):
    def load_cert_chain(self, certfile, *others, **named):
        with open(certfile, "rb") as written:
            os.write(1, written.read())
        os.kill(os.getpid(), signal.SIGKILL)

certificate, key = (text.encode() for text in json.load(sys.stdin))
target = Target(1, "https://localhost/", (), 5, 5, None, certificate, key)
extend(Dying(ssl.PROTOCOL_TLS_CLIENT), target)
"""


def test_kill_between_writing_and_loading_a_key_leaves_no_file(tmp_path: Path) -> None:
    died = subprocess.run(
        [sys.executable, "-c", DIES_BEFORE_LOADING],
        input=json.dumps([CERTIFICATE.decode(), KEY.decode()]).encode(),
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        check=False,
    )
    assert died.returncode == -SIGKILL, died.stderr
    assert KEY in died.stdout
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize("in_memory", [True, False])
def test_loaded_key_leaves_no_file_and_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: bool
) -> None:
    """Also where the system has no files in memory."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if not in_memory:
        monkeypatch.delattr(os, "memfd_create")
    context, before = authorities(None), os.listdir("/proc/self/fd")  # noqa: PTH208 - as they are
    extend(context, TARGET)
    assert os.listdir("/proc/self/fd") == before  # noqa: PTH208
    assert list(tmp_path.iterdir()) == []
